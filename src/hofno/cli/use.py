"""Commands that use what was made: `hofno evaluate`, `predict`, `report`, `bench` and `check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hofno.cli.options import print_table, read_settings
from hofno.errors import CheckpointError, SpecError
from hofno.storage.runs import refuse_several, runs_of_study

if TYPE_CHECKING:
    from hofno.spec import Spec

WORST = 5
BATCH = 32
"""Samples in a forward pass."""
SYMMETRIC = "train.symmetric"
BENCHES = ("model", "engine", "peers", "transform", "study")


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The folder of a run of hofno train; with --resolution, or of a study."),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change data.KEY, train.symmetric or device, as data.seed=7. Repeatable.",
        ),
    ] = None,
    resolution: Annotated[
        list[int] | None,
        typer.Option(min=2, metavar="POINTS", help="Evaluate on this many points along each axis. Repeatable."),
    ] = None,
) -> None:
    """Print the test errors of a finished run; with --set data.KEY=VALUE, on other data of the same problem.

    What the run was trained or validated on is never tested: where one set of samples was split, as that of own files,
    the split stays as it was, unless other files, or of flows another data.seed, are named.

    With --set train.symmetric=true, or false, those of the mean over the problem's symmetries, or of one pass.

    With --resolution, on the same test functions sampled on other grids, beside the grid of training: numbers and a
    figure of the error against the resolution are written to RUN, which may then be a whole study.
    """
    import statistics

    from hofno import fits, stages
    from hofno import spec as specs
    from hofno.cli.expect import beside_the_bound, names_of_errors, outcome_rows, what_was_kept
    from hofno.cli.other_data import refuse_known_samples, refuse_samples_of_start, refuse_unseen_motions
    from hofno.data.names import quantities_of
    from hofno.data.stamps import changed_sources
    from hofno.evaluation.score import LEAST_KNOWN
    from hofno.saved import load
    from hofno.show import choose_show, progress_on

    changes = read_settings(settings)
    for key in changes:
        if key not in ("device", "targets", SYMMETRIC) and (not key.startswith("data.") or key == "data.problem"):
            raise SpecError(
                f"evaluate can change the data (data.KEY=VALUE), {SYMMETRIC}, the device and names of targets; got "
                f"{key!r}; train another run for that"
            )
    if resolution:
        from hofno.cli.resolutions import evaluate_resolutions

        evaluate_resolutions(run, resolution, changes)
        return
    spec = stages.read_spec(run)
    changed = specs.override(spec, changes) if changes else spec
    refuse_unseen_motions(run, changed)
    same_set = refuse_known_samples(spec, changed)
    surrogate = load(run, changed.device)
    refuse_samples_of_start(spec, changed, surrogate)
    fits.check(changed, learns=False)
    fits.check_channels(changed, surrogate)
    stages.predict_as(changed, surrogate)
    data = stages.make_test_data(changed, progress_on(choose_show(True)))
    record: dict[str, Any] = {}
    if changed.run_hash == spec.run_hash:
        record, scores = stages.evaluate_run(changed, data, run, surrogate)
        means, bound, note = record["metrics"], record.get("bound"), f"written to {run / 'evaluation.json'}"
        outcomes = record.get("outcomes", {})
        if changed_sources(surrogate.stamp.get("data"), data.stamp):
            note = "other files than the run was trained on: nothing is written"
    else:
        found = stages.measure(changed, data, surrogate)
        other = "data" if changed.data_hash != spec.data_hash else "predictions"
        scores, means, bound = found.scores, found.metrics, found.bound
        outcomes = found.curves.get("outcomes", {})
        note = f"other {other} than the run's own: nothing is written"
        note += _more_of_files(changed) if other == "data" and not same_set else ""
    rows = []
    of_fields = {f"rel_l2_field_{i}": column for i, column in enumerate(scores.by_field.unbind(1), 1)}
    of_fields |= {f"rmse_field_{i}": column.sqrt() for i, column in enumerate(scores.field_mse.unbind(1), 1)}
    called = names_of_errors(quantities_of(changed).targets)
    for name, mean in means.items():
        values = of_fields.get(name, getattr(scores, name, None))
        spread = ["-", "-"]
        if values is not None:
            spread = [f"{statistics.median(values.tolist()):.6g}", f"{float(values.max()):.6g}"]
        rows.append([f"{name}: {called[name]}" if name in called else name, f"{mean:.6g}", *spread])
    of_each = f" of {data.test.together} fields each" * (data.test.together > 1)
    print_table(f"{run}: {len(scores.rel_l2)} test samples{of_each}", ["metric", "mean", "median", "worst"], rows)
    order = scores.rel_l2.argsort(descending=True)[:WORST].tolist()
    worst = ", ".join(f"{index} ({float(scores.rel_l2[index]):.4g})" for index in order)
    typer.echo(f"worst samples by rel_l2: {worst}")
    if mean := record.get("mean_target"):
        typer.echo(f"predicting the mean of the training targets: rel_l2 {mean['rel_l2']:.4g}")
    for line in what_was_kept(bound or {}, beside_the_bound(surrogate, data.test)):
        typer.echo(line)
    if outcomes:
        print_table("quantities of interest", *outcome_rows(outcomes))
        if not any("bound" in one for one in outcomes.values()):
            known = len(data.valid) // data.test.together
            typer.echo(f"bounds of these take {LEAST_KNOWN} validation samples, and {known} were at hand")
    if surrogate.experience is None:
        typer.echo("no bound of the error is known: the training had no validation samples")
    typer.echo(note)


def _more_of_files(spec: Spec) -> str:
    """How all samples of other files of one's own are scored, of which the test samples are some."""
    from hofno.problems.registry import problem

    made = problem(spec.data.problem, spec.data.parameters)
    if made.origin != "user" or made.train + made.valid < 3:
        return ""
    rest = made.train + made.valid + made.test - 2
    return (
        f"; these are {made.test} of {rest + 2} samples, more are scored with --set data.train=1 --set data.valid=1 "
        f"--set data.test={rest}"
    )


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run, or of a saved model.")],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT.npy",
            help="Inputs (n, c, *grid), or one sample (c, *grid). Frames: (n, history, *grid), or with several fields "
            "(n, history, fields, *grid).",
        ),
    ],
    target: Annotated[Path, typer.Argument(metavar="OUTPUT.npy", help="Where the predictions go.")],
    coords: Annotated[
        Path | None, typer.Option(metavar="FILE.npy", help="Places (n, d, *grid), for a mesh or points.")
    ] = None,
    mask: Annotated[
        Path | None, typer.Option(metavar="FILE.npy", help="Which points are there (n, N), where samples have fewer.")
    ] = None,
    fixed: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy", help="Fields (n, c, *grid) that do not change in time, for a model in time."),
    ] = None,
    spread: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy", help="Also write how far predictions lie apart whose mean OUTPUT is, there."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace output files that are there.")] = False,
    steps: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Frames to predict, for a model in time; its horizon if left out."),
    ] = None,
) -> None:
    """Predict from a NumPy file to a NumPy file, in physical units.

    For a model at points whose only input is their places, INPUT.npy holds the places. Below the shapes it says what
    comes of the predictions, such as a lift, where the run's problem has such outcomes, what error to expect, by the
    validation samples of the training, and which inputs are unlike those of training.
    """
    from hofno import storage
    from hofno.cli.expect import has_bounds, predicted_outcomes_table, what_to_expect
    from hofno.data.given import what_is_lost
    from hofno.data.npy import npy_bytes, read_npy
    from hofno.geometry import Points
    from hofno.saved import load

    read = {file.resolve() for file in (source, coords, mask, fixed) if file is not None}
    written = [file.resolve() for file in (target, spread) if file is not None]
    if read & {*written} or len({*written}) < len(written):
        raise SpecError(
            "predictions, their spread and what they are made from need a file each; got "
            f"{', '.join(map(str, (source, target, *([] if spread is None else [spread]))))}; give other names"
        )
    for file in (target, spread):
        if file is not None and file.exists() and not force:
            raise SpecError(f"{file} exists already; give another file, or --force to replace it")
    refuse_several(run)
    values = read_npy(source)
    places, inside, kept = (None if file is None else read_npy(file) for file in (coords, mask, fixed))
    operator = load(run, "auto")
    asked = (values, places)
    if isinstance(operator.grid, Points) and operator.inputs.mean.shape[0] == 0 and places is None:
        asked = (None, values)
    operator.check_call(BATCH, steps)
    batch = operator.asked(*asked, inside, kept)
    given, moments = {"coords": batch.coords, "mask": batch.inside}, None
    if spread is not None or has_bounds(operator, steps):
        found, moments = operator.predict_apart(batch.fields, BATCH, steps, **given)
    else:
        found = operator.predict_tensor(batch.fields, BATCH, steps, **given)
    fields = operator.targets.mean.shape[0]
    predicted = batch.result(found, fields)
    if spread is not None and moments is not None:
        storage.write_bytes(spread, npy_bytes(batch.result(moments[1].float(), fields)))
    storage.write_bytes(target, npy_bytes(predicted))
    typer.echo(f"{' x '.join(map(str, values.shape))} -> {' x '.join(map(str, predicted.shape))}, written to {target}")
    if lost := what_is_lost(found):
        typer.echo(lost)
    if outcomes := predicted_outcomes_table(run, operator, batch, found):
        print_table(*outcomes)
    for line in what_to_expect(operator, *asked, inside, kept, steps=steps, moments=moments):
        typer.echo(line)


def report(
    source: Annotated[Path, typer.Argument(metavar="OUT|FILE", help="The folder of a study, or a results file.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to write; needed for a results file.")
    ] = None,
) -> None:
    """Write the report of a study again from its results.json, or of another file of the same form.

    A study whose runs were evaluated on other grids (hofno evaluate STUDY --resolution N) has a section on that.

    Of those in results/, that is all in paper/ and best/, and others that hold the test errors of whole studies.
    """
    import shlex

    from hofno import storage
    from hofno.study_report import check_report_folder, write_report
    from hofno.study_results import check_reportable

    file = source if source.is_file() else source / "results.json"
    if not file.is_file():
        given = shlex.quote(str(source))
        make = f"make one with: hofno run SPEC --out {'OTHER' if source.exists() else given}"
        if (source / "spec.toml").is_file():
            raise CheckpointError(
                f"{source} is a single run, and a report is of a study; its errors are printed by: hofno evaluate "
                f"{given}; to have a study, {make}"
            )
        if source.name == "runs" and (source.parent / "results.json").is_file():
            raise CheckpointError(f"{source} holds the runs of a study; give the study: {source.parent}")
        if runs := runs_of_study(source):
            raise CheckpointError(
                f"{source} is a study of {len(runs)} run{'s' * (len(runs) > 1)} without its results.json; give its "
                "hofno run again, which writes it and keeps finished runs"
            )
        raise CheckpointError(f"{source} holds no study: there is no {file}; {make}")
    if source.is_file() and out is None:
        raise SpecError(f"{source} is a results file; say where its report goes with --out FOLDER")
    results = storage.read_json(file)
    check_reportable(results, str(file))
    check_report_folder(out or source)
    typer.echo(f"report: {write_report(out or source, results)}")


def bench(
    what: Annotated[
        str, typer.Argument(metavar="[model|engine|peers|transform|study]", help="What is measured.")
    ] = "model",
    studies: Annotated[
        list[str] | None,
        typer.Argument(metavar="SPEC", help="Of study: one or more specs, whose networks are measured."),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(metavar="darcy|ns|small|all", help="Published shape to measure at.", show_default="all"),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Samples in a batch; of peers, while it grows.", show_default="1"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Of study: change a key of the specs. Repeatable."),
    ] = None,
    reference: Annotated[
        str,
        typer.Option(
            metavar="LABEL",
            help="Of study: the network that others are compared with; FNO if there is one, else the first.",
        ),
    ] = "",
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the numbers to this file.")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Of peers: draw how cost grows; of study: draw the costs (.svg, .png or .pdf)."
        ),
    ] = None,
) -> None:
    """Measure speed on this machine, side by side; of forms of one network, after a check that both do the same.

    model: ours against its plain FFT form. engine: the training step in each precision, as training takes it, with
    peak memory. peers: ours against the plain form and neuraloperator (from the extra "bench"), over resolution and
    batch, with peak memory. transform: matrix products against the FFT.

    study: what every network of a SPEC costs, with random numbers in place of data: seconds of a training epoch and of
    predicting the test set, peak memory of training, parameters, each also relative to one of the networks.
    """
    from hofno.geometry import choose

    choose(what, BENCHES, "what")
    if what == "study":
        if shape is not None or batch is not None:
            raise SpecError(
                "--shape and --batch are not for `hofno bench study`, whose SPEC says them; try --set "
                "train.batch_size=8"
            )
        from hofno.cli.bench_study import bench_studies

        bench_studies(studies or [], settings, reference, json, plot)
        return
    if studies or settings or reference:
        raise SpecError(
            f"a SPEC, --set and --reference are for `hofno bench study`; got {what!r}; leave them out, or measure a "
            "study"
        )
    from hofno.bench import bench_command

    given = (what, shape or "all", batch or 1, json)
    if plot is None:
        bench_command(*given)
        return
    from hofno.bench.curves import check_plot, draw_peers

    if what != "peers":
        raise SpecError(f"--plot is for `hofno bench peers` and `hofno bench study`; got {what!r}; leave --plot out")
    check_plot(plot)
    written = draw_peers(bench_command(*given), plot)
    typer.echo(f"plot: {', '.join(map(str, written))}")


def check(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, a saved model or a study.")],
) -> None:
    """Verify every file of a run, a saved model or a study, and say what is sound."""
    from hofno.cli.verify import verify_run

    folders = [run]
    if (run / "runs").is_dir():
        folders = sorted(path for path in (run / "runs").iterdir() if path.is_dir())
    faults = 0
    for folder in folders:
        for name, fault in verify_run(folder):
            faults += fault is not None
            typer.echo(f"{folder / name}: {'sound' if fault is None else 'NOT SOUND: ' + fault}", err=fault is not None)
    if faults:
        raise typer.Exit(1)
