"""Commands that make something: `hofno generate`, `hofno train` and `hofno run`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hofno.cli.failures import INTERRUPTED, WRONG
from hofno.cli.options import SPEC_HELP, Settings, SpecName, load_spec, load_study, print_table
from hofno.cli.threads import Threads, settle_threads
from hofno.errors import DivergedError, HofnoError, SpecError
from hofno.storage.runs import is_finished

if TYPE_CHECKING:
    from hofno.problems.base import Problem
    from hofno.spec import Spec
    from hofno.train.ranks import Ranks


def generate(
    spec: SpecName,
    settings: Settings = None,
    force: Annotated[bool, typer.Option("--force", help="Make the data again if they are stored already.")] = False,
    threads: Threads = None,
) -> None:
    """Make the data of a spec and keep them in the store (HOFNO_DATA, or .hofno/data).

    What the spec says of a model does not matter here; one that does not fit these data is told.
    """
    from hofno import fits, stages
    from hofno.data.moments import moments, moments_of_frames
    from hofno.data.names import quantities_of
    from hofno.data.ondisk import channels_of, pieces_of
    from hofno.data.store import data_folder, store_folder
    from hofno.show import choose_show, progress_on

    settle_threads(threads)
    read = load_spec(spec, settings)
    made = fits.check_data(read)
    folder = data_folder(made.name, made.parameters(), store_folder())
    stored = made.sources or (not force and stages.is_made(made))
    _check_store(made, again=force)
    with _told_what_is_kept(made, again=force):
        data = stages.make_data(read, progress_on(choose_show(True)), again=force)
    rows, known = [], quantities_of(read)
    for split_name in ("train", "valid", "test"):
        parts = getattr(data, split_name).parts
        if len(parts.x) == 0:
            continue
        called = {"input": known.inputs, "target": known.targets}
        called |= {} if data.rollout is None else {"fixed field": known.inputs, "input": known.targets}
        given = [("input", parts.x)]
        if data.rollout is not None and data.rollout.fixed:
            count, whole = data.rollout.fixed, parts.x.shape[1]
            given = [("fixed field", channels_of(parts.x, 0, count)), ("input", channels_of(parts.x, count, whole))]
        for kind, values in (*given, ("target", parts.y)):
            lengths, name_of = [values.shape[0], *values.shape[2:]], f"{kind} {{}}"
            if data.rollout is None or kind == "fixed field":
                count, means, squares = moments(pieces_of(values), kept=[1])
            else:
                fields = data.rollout.fields
                count, means, squares = moments_of_frames(pieces_of(values), fields)
                lengths.insert(1, values.shape[1] // fields)
                name_of = f"{kind} frames" if fields == 1 else f"{kind} field {{}}"
            for channel, (mean, square) in enumerate(zip(means.flatten(), squares.flatten(), strict=True)):
                label = name_of.format(channel + 1)
                label += f": {called[kind][channel]}" if channel < len(called.get(kind, ())) else ""
                std = (square / max(1, count - 1)).sqrt()
                rows.append([split_name, label, " x ".join(map(str, lengths)), f"{mean:.4g}", f"{std:.4g}"])
    print_table(f"{made.name}, {data.origin}", ["split", "channel", "samples x grid", "mean", "std"], rows)
    typer.echo(f"{'read from' if stored else 'written to'} {', '.join(made.sources.values()) or folder}")
    try:
        fits.check(read)
    except HofnoError as error:
        typer.echo(f"the model of {spec} cannot be trained on them as it is: {error}")


def _check_store(made: Problem, again: bool = False) -> None:
    """Fail before data are made that could not be written in the end."""
    from tempfile import TemporaryFile

    from hofno import stages
    from hofno.data.store import store_folder

    if not made.sources and (again or not stages.is_made(made)):
        store = store_folder()
        store.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=store).close()


@contextmanager
def _told_what_is_kept(made: Problem, again: bool = False) -> Iterator[None]:
    """Say of an interruption that nothing solved is lost, of data whose solutions are kept one by one.

    The command that makes all samples `again` does not go on.
    """
    from hofno.problems.kept_samples import KeepsSamples

    try:
        yield
    except KeyboardInterrupt:
        one_by_one = isinstance(made, KeepsSamples) or made.rollout is not None
        kept = one_by_one and made.origin == "generated" and not again
        told = "interrupted; what is solved is kept in the store: give the same command again to go on" if kept else ""
        raise KeyboardInterrupt(told) from None


def train(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help=SPEC_HELP)] = "",
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="Folder of the new run.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Continue the run in this folder instead.")] = None,
    threads: Threads = None,
    track: Annotated[
        list[str] | None, typer.Option(metavar="tensorboard|wandb", help="Also write its rows there. Repeatable.")
    ] = None,
) -> None:
    """Make the data of a spec, train its model and evaluate it; or continue a run that was interrupted.

    Several GPUs train one network together if torchrun starts this: torchrun --nproc-per-node=4 -m hofno train SPEC
    --out RUN. Each takes its share of every batch; the spec, and train.batch_size, stay as they are.
    """
    settle_threads(threads)
    if resume is not None:
        if spec or out is not None or settings:
            raise SpecError("--resume RUN continues a run as it is; leave out SPEC, --out and --set")
        _resume(resume, tuple(track or ()))
        return
    if not spec or out is None:
        raise SpecError("give a SPEC and --out RUN for a new run, or --resume RUN to continue one")
    from hofno import fits, stages

    study = load_spec(spec, settings)
    read = study.single()
    fits.check(read)
    ranks = _ranks(read)
    if ranks.first and (study.compare or study.sweep):
        count = len(study.members())
        typer.echo(f"note: {spec} is a study of {count} runs; only its own is trained here, use hofno run for all")
    with _told_once(ranks):
        ranks.by_first(lambda: stages.check_new_folder(out))
        _train_and_evaluate(read, out, ranks, resume=False, track=tuple(track or ()))


def run(
    spec: SpecName,
    out: Annotated[Path, typer.Option(metavar="OUT", help="Folder of the study.")],
    settings: Settings = None,
    workers: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Runs trained at the same time, spread over the GPUs there are."),
    ] = 1,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="Only the runs so called, by label, or label and seed. Repeatable."),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also merge the measured runs into this file.")
    ] = None,
    threads: Threads = None,
) -> None:
    """Run the whole study of a spec, train and evaluate each member, and write its report.

    A part of a study is run with --only, as "FNO" or "FNO, seed 1": the same command without it does the rest, and
    parts that were run on several machines are put together by --results.
    """
    from hofno.problems.registry import problem
    from hofno.report.page import check_page_folder
    from hofno.show import choose_show
    from hofno.study import check_study_folder, gather, refuse_diverged, run_study
    from hofno.study_report import write_report
    from hofno.study_results import check_mergeable, merge_into
    from hofno.train.loop import Interrupted
    from hofno.train.ranks import are_several

    settle_threads(threads)
    read = load_study(spec, settings)
    if are_several():
        raise SpecError(
            "hofno run trains each run of a study in one process, and several at a time with --workers; start it "
            "without torchrun, or use torchrun -m hofno train for one run"
        )
    check_study_folder(out, read)
    check_page_folder(out)
    if results is not None:
        check_mergeable(results, gather(read, [None] * len(read.members()), 0.0))
    _check_store(problem(read.data.problem, read.data.parameters))
    try:
        measured = run_study(read, out, choose_show(True), workers, only or ())
    except KeyboardInterrupt as error:
        told = f"{error}; or" if str(error) else "interrupted; finished runs and checkpoints are kept:"
        raise Interrupted(f"{told} give the same hofno run again to go on with the study") from None
    if not measured["runs"]:
        refuse_diverged(measured)
    if results is not None:
        merge_into(results, measured)
    page = write_report(out, measured)
    print_table(
        measured["title"], ["run", "seeds", "rel_l2", "spread", "parameters", "seconds"], summary(measured["runs"])
    )
    typer.echo(f"report: {page}")
    refuse_diverged(measured)


def summary(runs: list[dict[str, Any]]) -> list[list[str]]:
    """One row for each label: mean test rel_l2 over its seeds and its standard deviation."""
    import statistics

    groups: dict[str, list[dict[str, Any]]] = {}
    for record in runs:
        groups.setdefault(record["label"], []).append(record)
    rows = []
    for label, group in groups.items():
        errors = [record["metrics"]["rel_l2"] for record in group]
        spread = f"{statistics.stdev(errors):.2g}" if len(errors) > 1 else "-"
        seconds = sum(record["seconds"] or 0.0 for record in group)
        parameters = f"{group[0]['parameters']['real']:,}"
        rows.append([label, str(len(group)), f"{statistics.fmean(errors):.4g}", spread, parameters, f"{seconds:.1f}"])
    return rows


def _resume(path: Path, track: tuple[str, ...]) -> None:
    from hofno import fits, stages

    read = stages.read_spec(path)
    ranks = _ranks(read)
    if is_finished(path) and (path / "evaluation.json").exists():
        if ranks.first:
            typer.echo(f"the run in {path} is finished; nothing is left to train")
        return
    fits.check(read)
    with _told_once(ranks):
        _train_and_evaluate(read, path, ranks, resume=True, track=track)


def _train_and_evaluate(read: Spec, path: Path, ranks: Ranks, *, resume: bool, track: tuple[str, ...]) -> None:
    from hofno import stages
    from hofno.cli.expect import names_of_errors
    from hofno.data.names import quantities_of
    from hofno.problems.registry import problem
    from hofno.show import choose_show, progress_on
    from hofno.train.track import check_trackers

    check_trackers(track, path)
    show, trained = choose_show(True), resume and is_finished(path)
    made = problem(read.data.problem, read.data.parameters)
    ranks.by_first(lambda: _check_store(made))
    with _told_what_is_kept(made):
        data = ranks.by_first(lambda: stages.make_data(read, progress_on(show)))
    data = stages.make_data(read) if data is None else data
    surrogate = None
    if not trained:
        surrogate = stages.train_run(read, data, path, resume=resume, show=show, track=track).surrogate
    if not ranks.first:
        return
    record, _ = stages.evaluate_run(read, data, path, surrogate)
    called = names_of_errors(quantities_of(read).targets)
    for name, value in record["metrics"].items():
        typer.echo(f"test {name}{f' of {called[name]}' if name in called else ''}: {value:.6g}")
    if mean := record.get("mean_target"):
        typer.echo(f"predicting the mean of the training targets: rel_l2 {mean['rel_l2']:.6g}")
    typer.echo(f"saved in {path}")


def _ranks(read: Spec) -> Ranks:
    """This process among those that train one network together; mostly it is alone."""
    from hofno.device import find_device
    from hofno.train.ranks import join

    return join(find_device(read.device))


@contextmanager
def _told_once(ranks: Ranks) -> Iterator[None]:
    """What stops all processes that train together is told by the first of them."""
    from hofno.train.loop import Interrupted
    from hofno.train.ranks import TogetherError

    try:
        yield
    except (Interrupted, DivergedError, TogetherError) as error:
        if ranks.first:
            raise
        raise typer.Exit(INTERRUPTED if isinstance(error, Interrupted) else WRONG) from None
