"""`hofno.fit`: train a model on a dataset, from Python."""

from __future__ import annotations

import copy
import difflib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from hofno import storage
from hofno.data.dataset import Dataset
from hofno.device import find_device
from hofno.errors import CheckpointError, SpecError
from hofno.models.registry import MODELS
from hofno.show import choose_show
from hofno.spec import TrainSpec, check_seed
from hofno.storage import fingerprint
from hofno.surrogate import Surrogate, surrogate_of
from hofno.train.loop import Folder, Run, train
from hofno.train.ranks import join
from hofno.train.same_data import describe_data, remember_data
from hofno.train.start import note_of, opened, refuse_known
from hofno.train.track import Tracker, check_trackers, make_trackers

SETTINGS = "settings.json"


def train_spec(settings: dict[str, Any]) -> TrainSpec:
    """Check training settings given as keywords."""
    unknown = [key for key in settings if key not in TrainSpec.model_fields]
    if unknown:
        close = difflib.get_close_matches(unknown[0], TrainSpec.model_fields, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(TrainSpec.model_fields)}"
        raise SpecError(f"fit has no setting {unknown[0]!r}; {hint}")
    try:
        return TrainSpec(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise SpecError(f"{first['loc'][0]}: {first['msg']}; got {first.get('input')!r}") from None


def remember_settings(settled: dict[str, Any], seed: int, model: nn.Module, folder: Path) -> None:
    """Note the settings of a run in its folder; where one differs from those of its checkpoints, say which.

    A run from before such notes were taken has none, and is told by its hash alone.
    """
    kind, config = type(model), getattr(model, "config", {})
    arguments = {f"model.{key}": repr(value) for key, value in config.items()} if isinstance(config, dict) else {}
    found: dict[str, Any] = {**settled, "seed": seed, "model": kind.__qualname__, **arguments}
    file = folder / SETTINGS
    if not (folder / "checkpoints").exists():
        storage.write_json(file, found)
        return
    noted = storage.read_json(file) if file.exists() else found
    for key in dict.fromkeys((*found, *noted)):
        default = TrainSpec.model_fields[key].default if key in TrainSpec.model_fields else "nothing"
        was, now = noted.get(key, default), found.get(key, default)
        if was != now:
            raise CheckpointError(
                f"the run in {folder} was started with other settings: {key} was {was} and is {now}; resume it with "
                "those settings, or start a new run with another out"
            )


def fit(
    model: nn.Module | Surrogate | Run,
    data: Dataset,
    *,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    track: str | tuple[str, ...] = (),
    **settings: Any,
) -> Run:
    """Train `model` in place on `data.train`, watching `data.valid`; `data.test` is never touched.

    In a script that `torchrun` starts in several processes, these train one network together, see
    `hofno.train.ranks`: each calls this with the same data, and the first one shows progress and writes files.

    Ctrl-C ends it after the step with a `hofno.Interrupted`, a `KeyboardInterrupt`, whose `run` is what was trained.

    Args:
        model: any module from (b, c, *grid) to (b, c', *grid); at points, from (b, c, N), coords (b, d, N) in units of
            the box around the training points, and where samples are ragged a mask (b, N). A trained operator, what
            `hofno.load` or this returns, is started with: a copy of its network is trained further, with its
            statistics of inputs and targets in place of those of the data.
        data: from `hofno.generate` or `hofno.from_arrays`.
        seed: seed of the data order and of stochastic depth. The weights are the model's own.
        device: "auto", "cpu" or "cuda".
        out: run folder for checkpoints, `metrics.jsonl` and the trained model; None writes nothing. A module of your
            own class cannot be rebuilt from files: its weights stay in the checkpoints; `resume` gives the run back.
        resume: go on from the newest checkpoint in `out`, with the same model, settings and data.
        progress: show a progress bar.
        track: "tensorboard", "wandb" or both in a tuple (needs `out`).
        settings: `epochs`, `batch_size`, `lr`, ...: every key of `hofno.spec.TrainSpec`, as `hofno show --train` lists
            them.
    """
    _check_arguments(model, data)
    seed = check_seed(seed)
    spec = train_spec(settings)
    model, start = _begin(model, data, spec)
    place = find_device(device)
    trackers = (track,) if isinstance(track, str) else tuple(track)
    check_trackers(trackers, None if out is None else Path(out))
    if out is None:
        if resume:
            raise SpecError("resume=True needs the run folder: give out=...")
        return train(model, data, spec, seed=seed, device=place, show=choose_show(progress), start=start)
    path = Path(out)
    settled = spec.model_dump(mode="json", exclude_defaults=True)  # a setting added later changes no hash
    settled |= note_of(start)  # what it is, wherever it lies
    config = getattr(model, "config", None)
    run_hash = fingerprint([settled, seed, repr(config if isinstance(config, dict) else type(model))])
    folder = Folder(path, run_hash, resume, "the same hofno.fit call with resume=True")
    ranks, can_load = join(place), type(model) in MODELS.values()
    show, contents = choose_show(progress), describe_data(data)

    def begin() -> list[Tracker]:
        """What the first process does before any trains: refuse, or note what the run is."""
        kept = ("checkpoints", "model.safetensors", "spec.toml", "manifest.json")
        if not resume and any((path / name).exists() for name in kept):
            raise SpecError(
                f"{path} holds an earlier run or saved files; give another out, or resume=True to go on with a run"
            )
        held.enter_context(storage.RunLock(path))
        remember_settings(settled, seed, model, path)
        remember_data(contents, path)
        if not can_load:
            show.note(
                f"{type(model).__name__} is not a model of hofno: its weights are kept in {path / 'checkpoints'}, and "
                "nothing is written for hofno.load; the same call with resume=True gives the trained run back"
            )
        return make_trackers(trackers, path, path.name, spec.model_dump(mode="json"))

    with ExitStack() as held:
        rows = ranks.by_first(begin)
        run = train(
            model,
            data,
            spec,
            seed=seed,
            device=place,
            folder=folder,
            show=show,
            trackers=rows,
            contents=contents,
            start=start,
        )
        if can_load and ranks.first:
            storage.update_folder(path, run.surrogate.files(), {"kind": "model"})
    return run


def _begin(model: nn.Module | Surrogate | Run, data: Dataset, spec: TrainSpec) -> tuple[nn.Module, Surrogate | None]:
    """The network to train, and the operator it starts with if there is one."""
    start = opened(spec)
    if not isinstance(model, nn.Module):
        if start is not None:
            raise SpecError("an operator to start with is given, and another one by start=...; leave one of them out")
        start = surrogate_of(model, "fit")
        model = copy.deepcopy(start.model)
    if start is not None:
        refuse_known(start, data.stamp)
    return model, start


def _check_arguments(model: object, data: object) -> None:
    """Refuse what is no module or operator or no dataset, and say what is wanted."""
    if not isinstance(model, nn.Module | Surrogate | Run):
        raise SpecError(f"fit trains a torch module, such as hofno.HOFNO(..); got {type(model).__name__}; give one")
    if not isinstance(data, Dataset):
        raise SpecError(
            f"fit takes a dataset with its three splits; got {type(data).__name__}; make one of arrays with "
            "hofno.from_arrays(x, y)"
        )
