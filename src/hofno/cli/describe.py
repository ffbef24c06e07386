"""What there is and what a run would be: `hofno list` and `hofno show`. Nothing is written, nothing is trained."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from hofno.cli.options import Settings, load_spec, print_table, spec_folders
from hofno.errors import SpecError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from hofno.geometry import Geometry
    from hofno.problems.base import Rollout
    from hofno.spec import Spec

KINDS = ("models", "problems", "specs")


def list_all(
    what: Annotated[
        str, typer.Argument(metavar="[models|problems|specs]", help="Which list; all of them if left out.")
    ] = "",
) -> None:
    """List the models, problems and specs there are."""
    if what and what not in KINDS:
        raise SpecError(f"there is no list of {what!r}; choose one of: {', '.join(KINDS)}")
    if what in ("", "models"):
        from hofno.models.registry import MODELS

        rows = [[name, _first_line(model)] for name, model in MODELS.items()]
        print_table("models", ["name", "what it is"], rows)
    if what in ("", "problems"):
        from hofno.problems.registry import PROBLEMS

        print_table("problems", ["name", "what it is"], [[name, kind.summary] for name, kind in PROBLEMS.items()])
    if what in ("", "specs"):
        print_table("specs", ["name", "what it is"], _shipped_specs())


def show(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A TOML file, or the name of a spec in specs/.")] = "",
    settings: Settings = None,
    problem: Annotated[
        str, typer.Option(metavar="NAME", help="Show the card and the parameters of a problem instead.")
    ] = "",
    model: Annotated[str, typer.Option(metavar="NAME", help="Show the arguments of a model instead.")] = "",
) -> None:
    """Show what a run would be, and fail early on anything wrong with it."""
    if sum(map(bool, (spec, problem, model))) != 1:
        raise SpecError("give one of: a SPEC, --problem NAME, --model NAME; `hofno list` shows the names")
    if settings and not spec:
        raise SpecError("--set changes a spec; give the SPEC, or leave --set out")
    if problem:
        _show_problem(problem)
    elif model:
        _show_model(model)
    else:
        _show_spec(load_spec(spec, settings))


def _show_problem(name: str) -> None:
    from hofno.problems.registry import problem_class

    kind = problem_class(name)
    typer.echo(kind.card)
    rows = [[key, str(field.default), field.description or ""] for key, field in kind.model_fields.items()]
    print_table("parameters, the keys of [data]", ["name", "default", "meaning"], rows)


def _show_model(name: str) -> None:
    from hofno.models.registry import model_class

    kind = model_class(name)
    typer.echo(inspect.getdoc(kind) or "")
    typer.echo("")
    rows, hints = [], get_type_hints(kind.__init__)
    for key, parameter in inspect.signature(kind.__init__).parameters.items():
        if key in ("self", "in_channels", "out_channels"):
            continue
        default = "(needed)" if parameter.default is inspect.Parameter.empty else str(parameter.default)
        rows.append([key, _type_name(hints[key]), default])
    print_table("arguments, the keys of [model]; channels follow from the data", ["name", "type", "default"], rows)


def _show_spec(spec: Spec) -> None:
    from hofno import stages
    from hofno.geometry import Points
    from hofno.models.registry import parameter_counts
    from hofno.problems.registry import problem as make_problem
    from hofno.study import checked_members
    from hofno.surrogate import find_device

    members = checked_members(spec)
    made, device = make_problem(spec.data.problem, spec.data.parameters), find_device(spec.device)
    channels_in, channels_out = made.channels
    model = stages.make_model(spec, channels_in, channels_out)
    counts = parameter_counts(model)
    points = made.grid_geometry.shape
    single = spec.train.batch_of == "windows"
    items = made.train * made.together * (made.windows if single else 1)
    passes = min(spec.train.batch_size, items) * (1 if single else made.windows)  # forward passes in a step
    batches = math.ceil(items / spec.train.batch_size)
    data_bytes = made.memory_bytes()
    stored = sum(p.numel() * p.element_size() for p in model.parameters())
    copies = 4 + bool(spec.train.ema) + (spec.train.select == "best")
    places = _places(made.grid_geometry)
    coordinates = made.grid_geometry.dim if isinstance(made.grid_geometry, Points) else 0
    activations = saved_bytes(model, (channels_in, *points), coordinates) * passes
    rows = [
        ["run", spec.title or spec.name],
        ["problem", f"{spec.data.problem}: {places}; {channels_in} input and {channels_out} target channels"],
        [
            "samples",
            f"{made.train} training, {made.valid} validation, {made.test} test"
            + (f", of {made.together} fields each" if made.together > 1 else ""),
        ],
        *([["rollout", _rollout(made.rollout, spec)]] if made.rollout is not None else []),
        ["model", f"{spec.model.name}: {_arguments(spec.model.arguments)}"],
        ["parameters", f"{counts['real']:,} real numbers; {counts['complex_once']:,} counting complex ones once"],
        ["training", f"{spec.train.epochs} epochs of {batches} batches: {spec.train.epochs * batches:,} steps"],
        ["device", f"{device}, {_precision(spec, device)}, seed {spec.seed}"],
        ["data memory", _size(data_bytes)],
        [
            "training memory",
            f"about {_size(2 * data_bytes + copies * stored + activations)} (data, weights, activations)",
        ],
        ["hash", spec.run_hash],
    ]
    if len(members) > 1:
        rows.append(["study", f"{len(members)} runs: {_study(spec)}"])
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")


def _places(geometry: Geometry) -> str:
    from hofno.geometry import Mesh, Points

    points = " x ".join(map(str, geometry.shape))
    if isinstance(geometry, Points):
        return f"{points} scattered points in {geometry.dim} dimensions"
    return (
        f"{points} points, {'mesh' if isinstance(geometry, Mesh) else 'periodic' if geometry.periodic else 'both ends'}"
    )


def saved_bytes(model: nn.Module, sample_shape: tuple[int, ...], coordinates: int = 0) -> int:
    """Bytes of activations that one sample's forward pass keeps for its backward pass; weights are not counted.

    A model at points is given as many `coordinates` of each.
    """
    import torch

    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in weights:
            found[memory.data_ptr()] = memory.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        places = (torch.rand(1, coordinates, *sample_shape[1:]),) if coordinates else ()
        result = model(torch.zeros(1, *sample_shape), *places)
    del result
    return sum(found.values())


def _precision(spec: Spec, device: torch.device) -> str:
    from hofno.train.precision import REDUCED_ON, policy_of

    asked = spec.train.precision
    if device.type not in REDUCED_ON:
        return "precision fp32" + (f" ({asked} is for GPUs)" if asked != "fp32" else "")
    first, final = (policy_of(spec.train, epoch, device) for epoch in (0, spec.train.epochs - 1))
    return f"precision {first}" + (f", at the end {final}" if final != first else "")


def _rollout(rollout: Rollout, spec: Spec) -> str:
    taught = "true frames" if spec.train.forcing == "teacher" else "predicted frames"
    given = "one frame" if rollout.history == 1 else f"{rollout.history} frames"
    return f"{given} to the next, {rollout.horizon} times; learnt from {taught} in batches of {spec.train.batch_of}"


def _study(spec: Spec) -> str:
    labels = ", ".join([spec.label or spec.name, *(variant.label for variant in spec.compare)])
    swept = [f"{key} in {', '.join(map(str, values))}" for key, values in spec.sweep.items()]
    return "; ".join([labels, *swept])


def _arguments(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in arguments.items())


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " | ".join(map(str, get_args(kind)))
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _shipped_specs() -> list[list[str]]:
    import tomllib

    found: dict[str, str] = {}
    for folder in spec_folders():
        for path in sorted(folder.glob("**/*.toml")):
            name = path.relative_to(folder).with_suffix("").as_posix()
            try:
                title = str(tomllib.loads(path.read_text(encoding="utf-8")).get("title", ""))
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
                title = "(cannot be read)"
            found.setdefault(name, title)
    return [[name, title] for name, title in sorted(found.items())]


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
