"""What a run is: frozen, validated, TOML in and out, hashed. Unknown keys fail.

    name = "quick-poisson"          [data]  problem = "poisson", then the problem's own parameters
    seed = 0                        [model] name = "hofno", then the model's own arguments
                                    [train] epochs, batch_size, lr, ... (`TrainSpec`)

A spec describes one run. It may also describe a study around it: `[[compare]]` adds runs that differ in a few keys, and
`[sweep]` runs every combination of the listed values. Keys are dotted paths, as in `--set train.epochs=10`.
"""

from __future__ import annotations

import difflib
import itertools
import json
import math
import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hofno.checked import ONE_OR_EACH, Checked
from hofno.errors import SpecError
from hofno.exact import is_whole
from hofno.storage import fingerprint

LARGEST_SEED = 2**63 - 1


class Section(Checked):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class DataSpec(BaseModel):
    """The problem and its parameters; the problem itself checks them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    problem: str

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class ModelSpec(BaseModel):
    """The model and its arguments, channels excepted (the data give them); the registry checks them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


def _as_text(path: object) -> object:
    """A path of `pathlib`, as `Run.save` returns one, as what a spec holds."""
    return os.fspath(path) if isinstance(path, os.PathLike) else path


class TrainSpec(Section):
    """How a model is trained."""

    epochs: int = Field(100, ge=1, description="passes over the training set")
    batch_size: int = Field(20, ge=1, description="samples in a step; the last, smaller batch of an epoch is used too")
    loss: Literal["rel_l2", "mse", "mae", "rmse", "rel_l2_gradient"] = Field(
        "rel_l2",
        description="relative L2 error in physical units; mean square, mean absolute one, or root of the mean square "
        "of each sample, standardised; rel_l2 with gradients",
    )
    optimiser: Literal["adamw", "muon", "soap"] = Field(
        "adamw", description="muon, soap: matrices of the blocks by Muon or SOAP, the rest by AdamW"
    )
    lr: float = Field(1e-3, gt=0, description="peak learning rate of AdamW")
    muon_lr: float = Field(0.02, gt=0, description="peak learning rate of Muon")
    soap_lr: float = Field(0.02, gt=0, description="peak learning rate of SOAP")
    weight_decay: float = Field(1e-5, ge=0, description="decoupled weight decay")
    schedule: Literal["constant", "cosine", "wsd", "onecycle"] = Field(
        "cosine", description="learning rate over the steps; wsd: warm-up, stable, straight fall in the last fifth"
    )
    warmup: float = Field(0.0, ge=0, lt=1, description="fraction of the steps with a linear rise (onecycle: 0.3 if 0)")
    final_lr: float = Field(0.0, ge=0, le=1, description="last learning rate as a fraction of the peak")
    clip: float = Field(0.0, ge=0, description="largest gradient norm; 0 leaves gradients alone")
    ema: float = Field(0.0, ge=0, lt=1, description="decay of the weight average that is evaluated and saved; 0 is off")
    precision: Literal["fp32", "tf32", "bf16", "mixed"] = Field(
        "fp32",
        description="on a GPU: fp32; tf32 products; bf16 products; mixed: bf16 factors and MLPs, tf32 transforms",
    )
    finish: float = Field(
        0.0, ge=0, le=1, description="fraction of the epochs, the last ones, in fp32 whatever precision is"
    )
    compile: bool = Field(False, description="torch.compile the model")
    cuda_graph: bool = Field(False, description="capture the training step in a CUDA graph; on a CPU it runs as it is")
    normalise_inputs: bool = Field(
        True, description="standardise each input channel by its training mean and deviation"
    )
    normalise_targets: bool = Field(True, description="standardise each target channel likewise")
    normaliser: Literal["channel", "pixel", "column"] = Field(
        "channel",
        description="statistics for each channel; for each pixel or each place on the last axis, as published",
    )
    validate_every: int = Field(1, ge=1, description="epochs between validations")
    checkpoint_every: int = Field(1, ge=1, description="epochs between checkpoints")
    forcing: Literal["teacher", "free"] = Field(
        "teacher", description="trajectories: learn each frame from the true ones before it, or from predicted ones"
    )
    batch_of: Literal["trajectories", "windows"] = Field(
        "trajectories", description="what batch_size counts: trajectories with all their frames, or single next frames"
    )
    augment: bool = Field(False, description="move training samples by the symmetries of their problem, at random")
    symmetric: bool = Field(
        False, description="predict by the mean over these symmetries, at as many times the work; needs augment"
    )
    coarser: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (), description="learn from every n-th point of each sample too, as [2, 3], for use on several grids"
    )
    coarse_first: float = Field(
        0.0, ge=0, lt=1, description="fraction of the epochs, the first ones, on every coarse_by-th point alone: faster"
    )
    coarse_by: Annotated[Annotated[int, Field(ge=2)] | tuple[Annotated[int, Field(ge=1)], ...], ONE_OR_EACH] = Field(
        2, description="of which points the epochs of coarse_first take every n-th; [2, 1]: along each axis"
    )
    noise: float = Field(
        0.0,
        ge=0,
        description="deviation of the noise added to standardised inputs, but for fixed fields of trajectories",
    )
    select: Literal["last", "best"] = Field("last", description="save the last weights, or those best on validation")
    start: Annotated[str, BeforeValidator(_as_text)] = Field(
        "", description="folder of a trained operator to begin with: its weights and statistics in place of new ones"
    )


class Variant(Section):
    """A run that differs from the spec's own in a few keys."""

    label: str = Field(description="what the run is called in tables")
    set: dict[str, Any] = Field(default_factory=dict, description="its other values, by dotted keys")


class Spec(Section):
    """One run, and the study around it."""

    name: str = Field("run", description="name of the run; that of the file if left out")
    title: str = Field("", description="title of the report")
    label: str = Field("", description="what the spec's own run is called in tables; its name if left out")
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="seed of the weights and of the order of the data")
    device: str = Field("auto", description="auto, cpu, cuda, or one GPU: cuda:1")
    data: DataSpec = Field(description="problem and its parameters: hofno list problems, hofno show --problem NAME")
    model: ModelSpec = Field(description="name and arguments of the model: hofno list models, hofno show --model NAME")
    train: TrainSpec = Field(TrainSpec(), description="how it is trained: hofno show --train")  # pyright: ignore[reportCallIssue]
    compare: tuple[Variant, ...] = Field(
        (), description='[[compare]], more runs that differ in some keys: label = "FNO", set = {"model.name" = "fno"}'
    )
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict,
        description='[sweep], every run with each of these values: seed = [0, 1, 2], "model.depth" = [1, 4]',
    )
    published: str = Field("", description="published table to print beside the results, such as poisson")
    inputs: tuple[str, ...] = Field(
        (), description='names of input channels, with units: ["force (N)"]; in time, of fixed fields; known of ours'
    )
    targets: tuple[str, ...] = Field((), description="likewise of target channels; in time, of the fields of a frame")
    remark: str = Field("", description="what a reader of the numbers should know; stands in results and reports")

    def plain(self) -> dict[str, Any]:
        """Plain values, defaults included."""
        return self.model_dump(mode="json")

    @property
    def data_hash(self) -> str:
        return fingerprint(self.data.model_dump(mode="json"))

    @property
    def run_hash(self) -> str:
        """Hash of all that makes a run's numbers: data, model, training, seed.

        Training settings that have their default are left out, so that a setting added later changes no hash. A default
        that is once released therefore never changes.
        """
        parts = {"data": self.data, "model": self.model, "train": self.train}
        values = {key: part.model_dump(mode="json", exclude_defaults=True) for key, part in parts.items()}
        return fingerprint({**values, "seed": self.seed})

    @property
    def study_hash(self) -> str:
        """Hash of the whole study. A remark and names of channels say something about it and change nothing."""
        said = ("remark", "inputs", "targets")
        return fingerprint({key: value for key, value in self.plain().items() if key not in said})

    def single(self) -> Spec:
        """The spec's own run, without the study around it."""
        return self.model_copy(update={"compare": (), "sweep": {}})

    def members(self) -> list[tuple[Spec, dict[str, Any]]]:
        """Every run of the study, each with the keys that tell it apart. The spec's own run comes first."""
        base = self.single()
        variants: list[tuple[Spec, dict[str, Any]]] = [(base, {})]
        for variant in self.compare:
            try:
                member = override(base, {"label": variant.label, **variant.set})
            except SpecError as error:
                raise SpecError(f"member {variant.label!r} of the study: {error}") from None
            variants.append((member, {"label": variant.label}))
        keys = list(self.sweep)
        found: list[tuple[Spec, dict[str, Any]]] = []
        for spec, cell in variants:
            for values in itertools.product(*(self.sweep[key] for key in keys)):
                chosen = dict(zip(keys, values, strict=True))
                found.append((override(spec, chosen), {**cell, **chosen}))
        return found


def check_seed(seed: object) -> int:
    """A seed of random numbers, given from Python."""
    if not is_whole(seed) or not 0 <= int(seed) <= LARGEST_SEED:
        raise SpecError(f"seed is a whole number from 0 to {LARGEST_SEED}; got {seed!r}; give such a one")
    return int(seed)


def parse(values: dict[str, Any], where: str = "the spec") -> Spec:
    """Validate plain values; the error names the key, what it needs, and the nearest known key."""
    _refuse_not_finite(values, where)
    try:
        return Spec.model_validate(values)
    except ValidationError as error:
        raise SpecError(_explain(error, where)) from None


def load(path: str | Path) -> Spec:
    """Read a TOML file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(f"there is no file {path}; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot read the spec {path}: {error}; give a readable TOML file") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path} is not valid TOML: {error}; correct that line") from None
    return parse({"name": path.stem, **values}, str(path))


def override(spec: Spec, changes: dict[str, Any]) -> Spec:
    """A copy with the dotted keys replaced."""
    values = spec.plain()
    for key, value in changes.items():
        *sections, last = key_path(key)
        target = values
        for section in sections:
            inner = target.get(section)
            if not isinstance(inner, dict):
                known = [k for k, v in target.items() if isinstance(v, dict)]
                raise SpecError(f"no section {section!r} for the key {key!r}; there are: {', '.join(known)}")
            target = inner
        target[last] = value
    changed = parse(values, "the changed spec")
    if changed.model.name == spec.model.name:
        return changed
    values["model"] = _for_other_model(values["model"], spec.model.name, changes)
    if ["compare"] not in map(key_path, changes):
        values["compare"] = [_as_before(variant, spec.model, values["model"]) for variant in changed.compare]
    return parse(values, "the changed spec")


def _for_other_model(values: dict[str, Any], before: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Arguments that the model before has and the new one has not are left behind, unless they are set anew.

    One that neither has stays, and is refused when the model is built.
    """
    from hofno.models.registry import arguments_of

    anew = [key_path(key) for key in changes]
    left = set() if ["model"] in anew else arguments_of(before) - arguments_of(values["name"])
    return {key: value for key, value in values.items() if key not in left or ["model", key] in anew}


def _as_before(variant: Variant, own: ModelSpec, changed: dict[str, Any]) -> dict[str, Any]:
    """A variant with a model of its own, which keeps the arguments that the spec's own model had and has no more."""
    from hofno.models.registry import arguments_of

    given = {tuple(key_path(key)): value for key, value in variant.set.items()}
    name = given.get(("model", "name"))
    kept: dict[str, Any] = {}
    if isinstance(name, str):
        lost = {key: value for key, value in own.arguments.items() if key not in changed and key in arguments_of(name)}
        kept = {f"model.{_key(key)}": value for key, value in lost.items() if ("model", key) not in given}
    return {"label": variant.label, "set": {**kept, **variant.set}}


def key_path(key: str) -> list[str]:
    """The parts of a dotted key as TOML reads it: a part with a dot of its own stands in quotes."""
    try:
        node: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        raise SpecError(f"{key!r} is not a dotted key such as train.epochs or sweep.'model.depth'") from None
    path: list[str] = []
    while isinstance(node, dict):
        ((part, node),) = node.items()
        path.append(part)
    return path


def parse_setting(text: str) -> tuple[str, Any]:
    """Read `key=value` with the value in TOML; a bare word is a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"expected --set key=value, such as train.epochs=10; got {text!r}")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def to_toml(values: dict[str, Any]) -> str:
    """TOML text of plain values, None left out."""
    lines: list[str] = []
    _write_table(lines, values, ())
    return "\n".join(lines).strip() + "\n"


def _write_table(lines: list[str], table: dict[str, Any], path: tuple[str, ...]) -> None:
    inner: list[tuple[str, Any]] = []
    for key, value in table.items():
        is_tables = isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)
        if isinstance(value, dict) or is_tables:
            inner.append((key, value))
        elif value is not None:
            lines.append(f"{_key(key)} = {_value(value)}")
    for key, value in inner:
        name = ".".join(_key(part) for part in (*path, key))
        for item in [value] if isinstance(value, dict) else value:
            lines.append(f"\n[{name}]" if isinstance(value, dict) else f"\n[[{name}]]")
            _write_table(lines, item, (*path, key))


def _key(text: str) -> str:
    return text if re.fullmatch("[A-Za-z0-9_-]+", text) else _value(text)


def _value(value: Any) -> str:
    """A plain value as TOML, which is JSON but for one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _refuse_not_finite(values: Any, where: str, path: tuple[str, ...] = ()) -> None:
    """Infinities and NaN have no place in JSON or in a hash."""
    inner = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in inner:
        _refuse_not_finite(value, where, (*path, str(key)))
    if isinstance(values, float) and not math.isfinite(values):
        raise SpecError(f"{where}: {'.'.join(path)} must be a finite number; got {values}")


def _section_of(key: str) -> str:
    """The section of a spec that knows a key which stands outside of it; nothing if none does."""
    from hofno.models.registry import MODELS, arguments_of

    if key in TrainSpec.model_fields:
        return "train"
    return "model" if any(key in arguments_of(name) for name in MODELS) else ""


def _explain(error: ValidationError, where: str) -> str:
    first, *others = error.errors()
    first = next((found for found in (first, *others) if found["type"] == "extra_forbidden"), first)
    parts = [str(part) for part in first["loc"]]
    key = ".".join(parts)
    if first["type"] == "extra_forbidden":
        sections = {"train": TrainSpec, "compare": Variant}
        kind = sections.get(parts[0], Spec) if len(parts) > 1 else Spec
        if kind is Spec and (section := _section_of(parts[-1])):
            return f"{where} has an unknown key {key!r}; did you mean '{section}.{key}'?"
        close = difflib.get_close_matches(parts[-1], kind.model_fields, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(kind.model_fields)}"
        return f"{where} has an unknown key {key!r}; {hint}"
    if first["type"] == "missing":
        return f"{where} lacks {key!r}; add it"
    told = first["msg"].replace("a valid tuple", "a valid list")  # as TOML calls it
    return f"{where}: {key}: {told[0].lower()}{told[1:]}; got {first.get('input')!r}"
