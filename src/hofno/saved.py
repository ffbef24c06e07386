"""Trained operators from the folders they were saved in."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from hofno import storage
from hofno.data.dataset import Rollout
from hofno.data.experience import saved_experience
from hofno.data.normalise import saved_normaliser
from hofno.device import find_device
from hofno.errors import CheckpointError
from hofno.geometry import read_geometry
from hofno.models.registry import build, place
from hofno.problems.symmetry import read_symmetry
from hofno.storage.files import taken_from
from hofno.surrogate import EXPERIENCE, Surrogate


def resume_command(path: Path) -> str:
    """What goes on with a run, as a shell takes it."""
    return f"hofno train --resume {shlex.quote(str(path))}"


def load(path: str | Path, device: str = "cpu") -> Surrogate:
    """Load a saved model, or the run folder it was trained in. Nothing in it is executed."""
    path = Path(path)
    if not path.is_dir():
        hint = "it is a file; hofno models are folders" if path.exists() else "there is nothing there"
        if left := storage.left_by_interrupted_save(path):
            hint = f"{hint}, but beside it are {', '.join(map(str, left))}: rename the one you want"
        wanted = f"give the folder that training or save() wrote, by its path{taken_from(path)}"
        raise CheckpointError(f"no saved model at {path}: {hint}; {wanted}")
    if not (path / "model.safetensors").exists() and (path / "spec.toml").exists():
        raise CheckpointError(f"the run {path} has not finished; continue it with: {resume_command(path)}")
    if not (path / "model.safetensors").exists() and (path / "checkpoints").is_dir():
        raise CheckpointError(
            f"the run {path} has not finished, or trained a model class of your own, which cannot be rebuilt from "
            "files; the same hofno.fit call with resume=True goes on with it, or gives the trained run back"
        )
    storage.verify_folder(path)
    description = storage.read_json(path / "model.json")
    try:
        grid = read_geometry(description["grid"])
        with _in_float32():
            model = build(description["model"], description["arguments"])
            place(model, grid, filled=False)
        stamp = dict(description["stamp"])
        rollout = Rollout(**description["rollout"]) if "rollout" in description else None
        symmetry = read_symmetry(description["symmetry"]) if "symmetry" in description else None
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path / 'model.json'} lacks or misstates {error}; it is of another version") from None
    load_weights(model, storage.read_tensors(path / "model.safetensors"), path)
    statistics = storage.read_tensors(path / "normalisers.safetensors")
    known = path / EXPERIENCE
    is_known = EXPERIENCE in storage.read_manifest(path)["files"]
    made = Surrogate(
        model,
        saved_normaliser(statistics, "inputs"),
        saved_normaliser(statistics, "targets"),
        grid,
        stamp,
        rollout,
        symmetry,
        saved_experience(storage.read_tensors(known), known) if is_known else None,
    )
    made.model.to(find_device(device)).eval()
    return made


@contextmanager
def _in_float32() -> Iterator[None]:
    """Weights and tables are made as they were saved, whatever precision a program has chosen for its own tensors."""
    chosen = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(chosen)


def load_weights(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Copy weights into a model; a name or shape that does not fit is an error that names it."""
    expected = model.state_dict()
    for key, value in expected.items():
        if key not in tensors:
            raise CheckpointError(f"the weights in {path} lack {key!r}; they belong to another model")
        if tensors[key].shape != value.shape:
            raise CheckpointError(
                f"{key!r} in {path} has shape {tuple(tensors[key].shape)}, the model needs {tuple(value.shape)}; "
                "they belong to another model"
            )
    extra = sorted(set(tensors) - set(expected))
    if extra:
        raise CheckpointError(
            f"the weights in {path} hold {extra[0]!r}, which the model has not; they belong to another model"
        )
    model.load_state_dict(tensors)
