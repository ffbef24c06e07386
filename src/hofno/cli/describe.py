"""What there is, and what a run would be and cost: `hofno list` and `hofno show`. Nothing is written or trained."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from hofno.cli.keys import described, show_spec_keys, show_train_keys, type_name
from hofno.cli.options import SPEC_HELP, Settings, load_study, print_table, spec_files
from hofno.cli.prose import print_card, tell
from hofno.cli.threads import Threads, settle_threads
from hofno.errors import SpecError

if TYPE_CHECKING:
    import torch

    from hofno.geometry import Geometry
    from hofno.problems.base import Problem, Rollout
    from hofno.spec import Spec
    from hofno.train.phases import Phase

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
        from hofno.models.registry import GEOMETRIES, MODELS

        rows = [
            [name, ", ".join(GEOMETRIES[name]), _first_line(model).partition(", (b,")[0].rstrip(".")]
            for name, model in MODELS.items()
        ]
        print_table("models", ["name", "fields on", "what it is"], rows)
    if what in ("", "problems"):
        from hofno.problems.registry import PROBLEMS

        print_table("problems", ["name", "what it is"], [[name, kind.summary] for name, kind in PROBLEMS.items()])
    if what in ("", "specs"):
        print_table("specs", ["name", "what it is"], _shipped_specs())


def show(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help=SPEC_HELP)] = "",
    settings: Settings = None,
    problem: Annotated[
        str, typer.Option(metavar="NAME", help="Show the card and the parameters of a problem instead.")
    ] = "",
    model: Annotated[str, typer.Option(metavar="NAME", help="Show the arguments of a model instead.")] = "",
    train: Annotated[bool, typer.Option("--train", help="Show the settings of training instead.")] = False,
    keys: Annotated[bool, typer.Option("--spec", help="Show the keys and sections of a spec instead.")] = False,
    time: Annotated[
        bool,
        typer.Option("--time", help="Time a few training steps here, of each member of a study, and project them."),
    ] = False,
    threads: Threads = None,
) -> None:
    """Show what a run would be and what it costs, and fail early on anything wrong with it.

    Without --time no step is run. Arithmetic counts the matrix products and transforms of a step, forward and backward.
    """
    if sum(map(bool, (spec, problem, model, train, keys))) != 1:
        raise SpecError(
            "give one of: a SPEC, --problem NAME, --model NAME, --train, --spec; `hofno list` has the names"
        )
    if settings and not spec:
        raise SpecError("--set changes a spec; give the SPEC, or leave --set out")
    if (time and not spec) or (threads is not None and not time):
        raise SpecError("--time is for the steps of a SPEC, and --threads for --time; leave out what does not belong")
    if problem:
        _show_problem(problem)
    elif model:
        _show_model(model)
    elif train:
        show_train_keys()
    elif keys:
        show_spec_keys()
    else:
        settle_threads(threads)
        _show_spec(load_study(spec, settings), time)


def _show_problem(name: str) -> None:
    from hofno.problems.registry import problem_class

    kind = problem_class(name)
    print_card(kind.card)
    print_table("parameters, the keys of [data]", *described(kind))


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
        rows.append([key, type_name(hints[key]), default])
    print_table("arguments, the keys of [model]; channels follow from the data", ["name", "type", "default"], rows)


def _show_spec(spec: Spec, time: bool) -> None:
    from hofno import fits, stages
    from hofno.bench.rehearse import epoch_of
    from hofno.cli.cost import cost_of
    from hofno.device import find_device
    from hofno.models.registry import parameter_counts, place
    from hofno.problems.registry import problem as make_problem
    from hofno.study import checked_members
    from hofno.train.activations import saved_bytes
    from hofno.train.phases import coarse_epochs

    members = checked_members(spec)
    made, device = make_problem(spec.data.problem, spec.data.parameters), find_device(spec.device)
    channels_in, channels_out = made.channels
    model = stages.make_model(spec, channels_in, channels_out)
    place(model, made.grid_geometry, filled=False)
    counts = parameter_counts(model)
    known: dict[str, tuple[float, float]] = {}
    cost = cost_of(spec, known)
    whole = " on the whole grid" if coarse_epochs(spec.train) else ""
    data_bytes = made.memory_bytes()
    stored = sum(p.numel() * p.element_size() for p in model.parameters())
    copies = 4 + bool(spec.train.ema) + (spec.train.select == "best")
    places, arguments = _places(made.grid_geometry), _arguments(spec.model.arguments)
    activations = saved_bytes(model, *fits.sample_shapes(made)) * cost.passes
    rows = [
        ["run", spec.title or spec.name],
        ["problem", f"{spec.data.problem}: {places}; {channels_in} input and {channels_out} target channels"],
        *_quantities(spec, made),
        [
            "samples",
            f"{made.train} training, {made.valid or 'no'} validation, {made.test} test"
            + (f", of {made.together} fields each" if made.together > 1 else ""),
        ],
        *_files(made, spec),
        *([["rollout", _rollout(made.rollout, spec)]] if made.rollout is not None else []),
        ["model", f"{spec.model.name}: {arguments or 'all arguments have their defaults'}"],
        *([["start", f"weights and statistics of the operator in {spec.train.start}"]] if spec.train.start else []),
        ["parameters", f"{counts['real']:,} real numbers; {counts['complex_once']:,} counting complex ones once"],
        ["training", _training(spec, cost.batches, cost.steps, epoch_of(made, spec.train).items)],
        ["arithmetic", f"about {_flop(cost.step_flops)} in a step{whole}, {_flop(cost.flops)} in all"],
        ["device", f"{device}, {_precision(spec, device)}, seed {spec.seed}"],
        ["data memory", _size(data_bytes)],
        [
            "training memory",
            f"about {_size(2 * data_bytes + copies * stored + activations)} (data, weights, activations)",
        ],
        ["hash", spec.run_hash],
    ]
    runs, every = [member for member, _ in members], [cost_of(member, known) for member, _ in members]
    if len(runs) > 1:
        rows.append(["study", f"{len(runs)} runs: {_study(spec)}"])
        steps, flops = sum(one.steps for one in every), sum(one.flops for one in every)
        rows.append(["all runs", f"{steps:,} steps, about {_flop(flops)}; {_data_sets(runs)}"])
    if time:
        rows += _times(spec, runs)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        tell(f"{name:<{width}}  {value}", indent=width + 2)


def _training(spec: Spec, batches: int, steps: int, items: int) -> str:
    """Epochs and steps; a batch that is larger than what there is to train on holds all of it."""
    from hofno.train.phases import coarse_epochs, share_of_points

    epochs, size = spec.train.epochs, spec.train.batch_size
    told = f"{epochs} epoch{'s' * (epochs > 1)} of {batches} batch{'es' * (batches > 1)}: {steps:,} steps"
    if (coarse := coarse_epochs(spec.train)) > 0:
        told += f", the first {coarse} epochs on {share_of_points(spec.train.coarse_by)}"
    if size <= items:
        return told
    return f"{told}; batch_size={size} is more than the {items} there are, so that each step takes all of them"


def _quantities(spec: Spec, made: Problem) -> list[list[str]]:
    """What the channels are called, where it is known, and which numbers are asked of the fields."""
    from hofno.data.names import quantities_of
    from hofno.problems.quantities import Quantity

    asked = tuple(Quantity(name, outcome.unit) for name, outcome in made.outcomes.items())
    parts = {**vars(quantities_of(spec)), "outcomes": asked}
    return [[key, ", ".join(map(str, part))] for key, part in parts.items() if part]


def _files(made: Problem, spec: Spec) -> list[list[str]]:
    """What is in the files that data are read from, by their heads, and which keys say nothing about these."""
    from hofno.data.files import look
    from hofno.problems.base import Published

    if not made.sources:
        return []
    told = "; ".join(
        f"{path} holds " + ", ".join(f"{name} {_shape(shape)}".strip() for name, shape in arrays.items())
        for path, arrays in look(made).items()
    )
    idle = [f"data.{key}" for key in spec.data.parameters if isinstance(made, Published) and key in made.of_solver]
    note = f"{', '.join(idle)}: of data that are generated, of no effect on files"
    return [["files", told], *([["not used", note]] if idle else [])]


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _places(geometry: Geometry) -> str:
    from hofno.geometry import Mesh, Points, Sphere, Surface

    points = " x ".join(map(str, geometry.shape))
    if isinstance(geometry, Points):
        return f"{points} scattered points in {geometry.dim} dimensions"
    if isinstance(geometry, Sphere):
        return f"{points} points on a sphere, {geometry.nodes} rows"
    if isinstance(geometry, Surface):
        return f"{points} vertices of a surface of {len(geometry.triangles)} triangles"
    kind = "mesh" if isinstance(geometry, Mesh) else "periodic" if geometry.periodic else "not periodic"
    return f"{points} points, {kind}"


def _data_sets(runs: list[Spec]) -> str:
    """How many sets of data the runs of a study have between them, and their size."""
    from hofno.problems.registry import problem

    sets = {run.data_hash: problem(run.data.problem, run.data.parameters).memory_bytes() for run in runs}
    whole = _size(sum(sets.values()))
    return f"one data set of {whole}" if len(sets) == 1 else f"{len(sets)} data sets of {whole} together"


def _times(spec: Spec, runs: list[Spec]) -> list[list[str]]:
    """Measured steps and what follows from them; runs that differ in their seed or length alone are timed once."""
    from hofno.bench.rehearse import projected, same_steps, step_seconds
    from hofno.device import find_device
    from hofno.train.state import device_name

    seconds: dict[str, dict[Phase, float]] = {}
    device = find_device(spec.device)

    def whole(run: Spec) -> float:
        if (key := same_steps(run)) not in seconds:
            seconds[key] = step_seconds(run)
        return projected(run, seconds[key])

    own = whole(spec)
    steps = ", ".join(f"{value:.3g} s in {phase}" for phase, value in next(iter(seconds.values())).items())
    rows = [["time", f"a step takes {steps} on {device_name(device)}; all of them about {_duration(own)}"]]
    if len(runs) > 1:
        total = sum(map(whole, runs))
        rows.append(["time of all", f"about {_duration(total)}, one run after the other"])
    return rows


def _precision(spec: Spec, device: torch.device) -> str:
    from hofno.train.precision import REDUCED_ON, policies_of

    asked = spec.train.precision
    if device.type not in REDUCED_ON:
        return "precision fp32" + (f" ({asked} is for GPUs)" if asked != "fp32" else "")
    return "precision " + ", at the end ".join(policies_of(spec.train, device))


def _rollout(rollout: Rollout, spec: Spec) -> str:
    taught = "true frames" if spec.train.forcing == "teacher" else "predicted frames"
    given = "one frame" if rollout.history == 1 else f"{rollout.history} frames"
    fixed = f" with {rollout.fixed} fixed field{'s' * (rollout.fixed > 1)}" if rollout.fixed else ""
    learnt = f"learnt from {taught} in batches of {spec.train.batch_of}"
    return f"{given}{fixed} to the next, {rollout.horizon} times; {learnt}"


def _study(spec: Spec) -> str:
    labels = "; ".join([spec.label or spec.name, *(variant.label for variant in spec.compare)])
    swept = " and ".join(f"{key} in {', '.join(map(str, values))}" for key, values in spec.sweep.items())
    return f"{labels}; each with {swept}" if swept else labels


def _arguments(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{key}={_short(value)}" for key, value in arguments.items())


def _short(value: Any) -> str:
    """A value of a spec, numbers with many digits in four of them."""
    return f"{value:.4g}" if isinstance(value, float) and len(str(value)) > 8 else str(value)


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _shipped_specs() -> list[list[str]]:
    import tomllib

    rows: list[list[str]] = []
    for name, path in spec_files().items():
        try:
            title = str(tomllib.loads(path.read_text(encoding="utf-8")).get("title", ""))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            title = "(cannot be read)"
        rows.append([name, title])
    return rows


def _flop(count: float) -> str:
    for unit in ("", "k", "M", "G", "T", "P"):
        if count < 999.5:
            return f"{count:.3g} {unit}FLOP"
        count /= 1000
    return f"{count:.3g} EFLOP"


def _duration(seconds: float) -> str:
    for unit, length, longest in (("s", 1, 120), ("min", 60, 120 * 60), ("hours", 3600, 48 * 3600)):
        if seconds < longest:
            return f"{seconds / length:.2g} {unit}" if seconds < 10 * length else f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.1f} days"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
