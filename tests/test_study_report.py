"""The report of a study from its results alone: headline, published numbers beside ours, conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hofno import spec as specs
from hofno import storage, study
from hofno.show import Show, Silent
from hofno.spec import Spec
from hofno.study import gather
from hofno.study_published import depth_cells
from hofno.study_report import middle, write_report

BASE: dict[str, Any] = {
    "name": "study",
    "title": "A study",
    "label": "HO-FNO order 3, depth 1",
    "published": "poisson",
    "data": {"problem": "poisson", "degree": 3},
    "model": {"name": "hofno", "modes": [16, 16], "depth": 1, "order": 3},
}
COMPARE = [
    {"label": "FNO, depth 1", "set": {"model.name": "fno"}},
    {"label": "FNO, depth 4", "set": {"model.name": "fno", "model.depth": 4}},
]


def results_of(spec: Spec, errors: list[float]) -> dict[str, Any]:
    records = [
        {
            "label": member.label,
            "seed": member.seed,
            "metrics": {"rel_l2": error, "mse": error**2 * 1e-6, "mse_standardised": error**2},
            "parameters": {"real": 1000, "complex_once": 700},
            "seconds": 1.5,
            "epochs": 100,
            "spec_hash": member.run_hash,
            "device": "a device",
            "versions": {"hofno": "0"},
        }
        for (member, _), error in zip(spec.members(), errors, strict=True)
    ]
    return gather(spec, records, 3.0)


def report(tmp_path: Path, spec: Spec, errors: list[float]) -> str:
    page = write_report(tmp_path, results_of(spec, errors))
    assert page.read_text().startswith("<!doctype html>")
    return (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(("own", "words"), [(0.05, "10.0 times lower than"), (1.0, "2.0 times higher than")])
def test_the_headline_compares_with_the_first_other(tmp_path: Path, own: float, words: str) -> None:
    text = report(tmp_path, specs.parse({**BASE, "compare": COMPARE}), [own, 0.5, 0.2])
    headline = next(line for line in text.splitlines() if line.startswith("> **"))
    assert "HO-FNO order 3, depth 1" in headline
    assert words in headline
    assert "FNO, depth 1" in headline


@pytest.mark.parametrize("own", [0.49, 0.51])
def test_errors_that_are_nearly_the_same_are_not_called_lower_or_higher(tmp_path: Path, own: float) -> None:
    text = report(tmp_path, specs.parse({**BASE, "compare": COMPARE}), [own, 0.5, 0.2])
    headline = next(line for line in text.splitlines() if line.startswith("> **"))
    assert "no clear difference from FNO, depth 1" in headline
    assert "times" not in headline
    assert "predicting the mean" not in text


@pytest.mark.parametrize("compare", [[], COMPARE])
def test_models_that_learnt_nothing_are_said_to(tmp_path: Path, compare: list[Any]) -> None:
    errors = [0.986, 0.991, 1.2][: 1 + len(compare)]
    assert "no better than predicting the mean" in report(tmp_path, specs.parse({**BASE, "compare": compare}), errors)


def test_errors_far_above_one_are_not_called_about_one(tmp_path: Path) -> None:
    text = report(tmp_path, specs.parse({**BASE, "compare": COMPARE}), [1.04, 5524.0, 1.0])
    assert "Every error here is about 1 or more: no better than predicting the mean." in text


def test_a_study_that_is_partly_done_has_a_report_and_says_so(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "compare": COMPARE})
    whole = results_of(spec, [0.05, 0.5, 0.2])
    assert "missing" not in write_report(tmp_path, whole).read_text()
    write_report(tmp_path, {**whole, "runs": whole["runs"][1:]})  # the spec's own run is not done
    text = (tmp_path / "report.md").read_text()
    assert "2 of the 3 runs of this study (1 missing or not finished)" in text
    assert "> **FNO, depth 4: relative L2 error 0.200**" in text


def test_results_are_there_as_soon_as_a_run_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = specs.parse({**BASE, "compare": COMPARE})
    whole = results_of(spec, [0.05, 0.5, 0.2])
    done = {run["spec_hash"]: run for run in whole["runs"][:2]}

    def run_some(member: Spec, out: Path, show: Show, data: None) -> dict[str, Any]:
        if member.run_hash not in done:
            raise KeyboardInterrupt
        return done[member.run_hash]

    monkeypatch.setattr(study, "run_member", run_some)
    with pytest.raises(KeyboardInterrupt):
        study.run_study(spec, tmp_path, Silent())
    found = storage.read_json(tmp_path / "results.json")
    assert [run["label"] for run in found["runs"]] == ["HO-FNO order 3, depth 1", "FNO, depth 1"]
    assert "(1 missing or not finished)" in write_report(tmp_path, found).read_text()


def test_seconds_of_different_devices_are_not_to_be_compared(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "compare": COMPARE})
    assert "not comparable" not in report(tmp_path, spec, [0.05, 0.5, 0.2])
    records = results_of(spec, [0.05, 0.5, 0.2])["runs"]
    devices = ("CPU (2 threads)", "CPU (2 threads)", "CPU (1 threads)")
    records = [{**record, "device": device} for record, device in zip(records, devices, strict=True)]
    write_report(tmp_path, gather(spec, records, 3.0))
    text = (tmp_path / "report.md").read_text()
    assert "not comparable" in text
    assert "- CPU (2 threads): HO-FNO order 3, depth 1; FNO, depth 1\n- CPU (1 threads): FNO, depth 4\n" in text


def test_what_a_reader_should_know_is_on_the_page(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "compare": COMPARE, "remark": "\nA demonstration,\nnot a benchmark.\n"})
    results = results_of(spec, [0.05, 0.5, 0.2])
    assert results["remark"] == "A demonstration,\nnot a benchmark."
    page = write_report(tmp_path, results).read_text()
    assert "<strong>Remark.</strong> A demonstration, not a benchmark.</p>\n</aside>" in page
    assert page.count("not a benchmark") == 1
    write_report(tmp_path, {**results, "remark": "Measured with an older version."})
    text = (tmp_path / "report.md").read_text()
    assert "> **Remark.** Measured with an older version.\n>\n> A demonstration,\n> not a benchmark.\n" in text
    assert "Remark" not in report(tmp_path, specs.parse(BASE), [0.5])
    assert "remark" not in results_of(specs.parse(BASE), [0.5])


def test_seconds_say_what_ran_beside(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "sweep": {"seed": [0, 1, 2]}})
    results = results_of(spec, [0.05, 0.06, 0.07])
    for run, beside, seconds in zip(results["runs"], ("alone", "alone", "two at a time"), (10, 20, 50), strict=True):
        run |= {"beside": beside, "seconds": seconds}
    write_report(tmp_path, results)
    text = (tmp_path / "report.md").read_text()
    assert "| 15.0 (alone), 50.0 (two at a time) |" in text
    assert "Training time: 30 s in 2 runs, alone; 50 s in 1 run, two at a time" in text
    assert "means over runs measured alike" in text


def test_measured_remarks_are_on_their_pages(tmp_path: Path) -> None:
    results = storage.read_json(Path(__file__).parents[1] / "results" / "best" / "elasticity.json")
    write_report(tmp_path, results)
    text = (tmp_path / "report.md").read_text()
    assert results["remark"] in text
    assert all(f"({run['beside']})" in text for run in results["runs"])


@pytest.mark.parametrize(
    ("origin", "words"),
    [("generated", "data generated here"), ("original", "the published data"), ("user", "data of your own")],
)
def test_the_lead_says_where_the_data_come_from(tmp_path: Path, origin: str, words: str) -> None:
    write_report(tmp_path, {**results_of(specs.parse(BASE), [0.5]), "origin": origin})
    assert f"1 run on {words}" in (tmp_path / "report.md").read_text()


def test_the_headline_of_a_sweep_is_its_lowest_error(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "sweep": {"model.order": [1, 3], "seed": [0, 1]}})
    text = report(tmp_path, spec, [0.9, 0.7, 0.02, 0.04])
    headline = next(line for line in text.splitlines() if line.startswith("> **"))
    assert "order 3" in headline
    assert "0.0300" in headline
    assert "The best of 2 settings by this very error; mean over the test set and 2 seeds." in text
    assert "small dots: the seeds" in text


def test_published_numbers_stand_beside_ours(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "sweep": {"model.order": [1, 3], "model.depth": [1, 2]}})
    text = report(tmp_path, spec, [0.9, 0.8, 0.05, 0.03])
    assert "(0.0503 ± 0.0024)" in text, "the published value of order 3 at depth 1"
    assert "4 of 20 cells measured" in text
    assert "easier map" in text, "the periodic grid is not the published one"


def test_the_conditions_are_there(tmp_path: Path) -> None:
    text = report(tmp_path, specs.parse(BASE), [0.5])
    for fact in ("a device", "hofno 0", "generated, problem poisson"):
        assert fact in text


def test_measured_flows_are_shown_without_their_run_folders(tmp_path: Path) -> None:
    results = storage.read_json(Path(__file__).parents[1] / "results" / "best" / "navier_stokes.json")
    page = write_report(tmp_path, results).read_text()
    text = (tmp_path / "report.md").read_text()
    assert "Trained for 20 or 40 epochs on" in text
    assert "## Rollouts\n\nCurves are of one run of each model.\n" in text
    assert "Test rel. L2 against epochs" in text, "which are swept"
    assert len(list((tmp_path / "figures").iterdir())) == 4
    first, second = (run for run in results["runs"] if run["seed"] == 0)
    for run in (first, second):
        last = run["rollout"]["rel_l2_per_step"][-1]
        assert f"{last:.3g}" in text
    assert '<span class="whole">1e-5</span>' in page
    for explained in (
        "Finite: ",
        "Bounded: those whose enstrophy mean(w²)/2 also stays below 4 times",
        "shell s holds",
    ):
        assert explained in text
    assert "Last known" not in text, "nothing is known after the horizon"
    for unexplained in ("the power", "tab:", "cells"):
        assert unexplained not in text


def test_runs_without_rollouts_have_no_such_section(tmp_path: Path) -> None:
    assert "## Rollouts" not in report(tmp_path, specs.parse({**BASE, "compare": COMPARE}), [0.1, 0.5, 0.2])


def test_other_grids_are_in_the_report_of_a_study(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "compare": COMPARE, "sweep": {"seed": [0, 1]}})
    results = results_of(spec, [0.05, 0.06, 0.5, 0.51, 0.2, 0.21])
    assert "On other grids" not in write_report(tmp_path, results).read_text()
    for index, run in enumerate(results["runs"][:5]):
        run["resolutions"] = {"trained_at": 64, "rel_l2": {"48": 0.3 + 0.01 * index, "64": 0.1, "200": 0.4}}
    write_report(tmp_path, results)
    text = (tmp_path / "report.md").read_text()
    assert "## On other grids" in text
    table = text[text.index("| points along each axis |") :].splitlines()
    assert table[0] == "| points along each axis | HO-FNO order 3, depth 1 | FNO, depth 1 | FNO, depth 4 |"
    columns = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:7]]
    assert [row[0] for row in columns] == ["rel. L2 at 48", "rel. L2 at 64", "rel. L2 at 200", "trained at", "seeds"]
    assert [row[3] for row in columns] == ["0.340", "0.100", "0.400", "64", "1"]
    assert "Errors at resolution 48 are against other functions: products of degree 3 alias" in text


def test_errors_of_each_field_are_in_the_report_of_several(tmp_path: Path) -> None:
    results = results_of(specs.parse({**BASE, "compare": COMPARE[:1]}), [0.05, 0.5])
    write_report(tmp_path, results)
    assert "field 1" not in (tmp_path / "report.md").read_text()
    for run in results["runs"]:
        run["metrics"] |= {f"rel_l2_field_{place}": place * run["metrics"]["rel_l2"] for place in (10, 1, 2)}
    write_report(tmp_path, results)
    text = (tmp_path / "report.md").read_text()
    assert "| rel. L2 of one field | field 1 | field 2 | field 10 |" in text
    assert "| HO-FNO order 3, depth 1 | 0.0500 | 0.100 | 0.500 |" in text
    assert "so that large numbers weigh most" in text


def test_errors_are_seen_beside_those_of_the_mean_training_target(tmp_path: Path) -> None:
    results = results_of(specs.parse({**BASE, "compare": COMPARE[:1]}), [0.05, 0.5])
    for run, error in zip(results["runs"], (0.4, 0.6), strict=True):
        run["mean_target"] = {"rel_l2": error, "mse": 0.2}
    write_report(tmp_path, results)
    text = (tmp_path / "report.md").read_text()
    assert "Predicting the mean of the training targets: 0.400 to 0.600." in text
    assert "| mean of the training targets | 0.400 to 0.600 | 0.200 |" in text
    assert "root mean square error" not in text, "there is one field, and its MSE"
    for run in results["runs"]:
        run["metrics"] |= {f"rmse_field_{place}": 0.3 * place for place in (1, 2)}
        run["metrics"] |= {f"rel_l2_field_{place}": 0.1 * place for place in (1, 2)}
        run["mean_target"] |= {f"{key}_field_{place}": 1.5 for key in ("rmse", "rel_l2") for place in (1, 2)}
    write_report(tmp_path, results)
    text = (tmp_path / "report.md").read_text()
    assert "| root mean square error | field 1 | field 2 |" in text
    assert text.count("| mean of the training targets | 1.50 | 1.50 |") == 2


@pytest.mark.parametrize(("error", "nothing"), [(0.03, False), (0.0395, True)])
def test_nothing_is_learnt_where_the_mean_is_as_good(tmp_path: Path, error: float, nothing: bool) -> None:
    results = results_of(specs.parse(BASE), [error])
    results["runs"][0]["mean_target"] = {"rel_l2": 0.04, "mse": 0.2}
    write_report(tmp_path, results)
    text = (tmp_path / "report.md").read_text()
    assert ("This error is no better than that." in text) == nothing


def test_errors_by_scale_are_in_the_report_of_fields_that_are_not_in_time(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "published": "pipe", "compare": COMPARE[:1]})
    results = results_of(spec, [0.05, 0.5])
    assert "Errors by scale" not in write_report(tmp_path, results).read_text()
    for run, low in zip(results["runs"], (0.031, 0.42), strict=True):
        run["metrics"] |= {"rel_l2_low": low, "rel_l2_medium": 0.7}
        run["spectra"] = {"power": {kind: [1.0, 0.5, 0.1] for kind in ("truth", "prediction", "error")}}
    write_report(tmp_path, results)
    text = (tmp_path / "report.md").read_text()
    assert "| model | all | low |k| | medium |k| |".replace("|k|", "\\|k\\|") in text
    assert "| HO-FNO order 3, depth 1 | 0.0500 | 0.0310 | 0.700 |" in text
    assert "| HO-FNO | 0.0054 | 0.14126 | 1.031456 | 1.182214 |" in text, "published"
    assert len(list((tmp_path / "figures").iterdir())) == 2
    assert "Curves are of" not in text


def test_spectra_say_which_models_and_runs_they_are_of(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "published": "", "sweep": {"model.depth": [1, 2, 3, 4, 5, 6, 7], "seed": [0, 1]}})
    results = results_of(spec, [0.1] * 14)
    for run, (member, _) in zip(results["runs"], spec.members(), strict=True):
        run["label"] = f"depth {member.model.arguments['depth']}"
        run["metrics"] |= {"rel_l2_low": 0.1}
        run["spectra"] = {"power": {kind: [1.0, 0.5, 0.1] for kind in ("truth", "prediction", "error")}}
    write_report(tmp_path, results)
    told = "means over the test set. Curves are of the first 6 of 7 models, one run of each model. Left:"
    assert told in (tmp_path / "report.md").read_text()


def test_bounds_that_runs_set_to_their_own_errors(tmp_path: Path) -> None:
    results = results_of(specs.parse({**BASE, "compare": COMPARE[:1]}), [0.05, 0.5])
    assert "What to expect" not in write_report(tmp_path, results).read_text()
    bound = {"coverage": 0.9, "rel_l2": 0.0712, "kept": 0.86, "validation_samples": 50, "test_samples": 100}
    bound["selected"] = False
    results["runs"][0]["bound"] = bound
    write_report(tmp_path, results)
    text = (tmp_path / "report.md").read_text()
    assert "| model | seed | bound for 90% | test samples within | validation samples |" in text
    assert "| HO-FNO order 3, depth 1 | 0 | 0.0712 | 86% | 50 |" in text
    assert "scatters by about 5%" in text  # sqrt(0.09 (1/50 + 1/100))
    assert "Weights were chosen" not in text
    bound["selected"] = True
    write_report(tmp_path, results)
    assert "Weights were chosen by the same samples" in (tmp_path / "report.md").read_text()


def test_structures_stand_beside_the_published_ones(tmp_path: Path) -> None:
    compare = [{"label": "shared", "set": {"model.factors": "shared"}}]
    spec = specs.parse({**BASE, "label": "dense", "published": "darcy_structure", "compare": compare})
    text = report(tmp_path, spec, [0.00321, 0.00654])
    assert "| dense | 0.0052 | 0.00321 |" in text
    assert "| shared | 0.0067 | 0.00654 |" in text
    assert "| identity | 0.0074 | – |" in text


def test_windows_of_a_rollout_stand_beside_the_published_ones(tmp_path: Path) -> None:
    data = {"problem": "shallow_water", "samples": 10, "frames": 31, "rows": 16, "columns": 32, "degrees": 10}
    model = {"name": "hosfno", "degrees": 10}
    base = {"name": "study", "title": "A study", "label": "HO-SFNO", "published": "shallow_water"}
    spec = specs.parse({**base, "data": data, "model": model, "sweep": {"seed": [0, 1]}})
    results = results_of(spec, [0.05, 0.07])
    curve = [0.01 * (step + 1) for step in range(30)]
    for run, factor in zip(results["runs"], (1, 3), strict=True):
        run["metrics"] |= {"one_step_mse": 7.0, "one_step_rel_l2": 0.02, "rollout": 0.155 * factor}
        values = [factor * value for value in curve]
        record = {"rel_l2_per_step": values, "later_rel_l2": []}
        past = {"steps": 60, "finite": 1.0, "bounded": 1.0, "power": [1.0] * 60, "true_power": [1.0] * 30}
        spectra = {"degrees": {kind: [1.0, 0.5] for kind in ("truth", "prediction", "error")}}
        run["rollout"] = {**record, "past": past, "spectra": spectra}
    write_report(tmp_path, results)
    text = (tmp_path / "report.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| HO-SFNO (ours) | 7.00"))
    means = [2 * sum(curve[:10]) / 10, 2 * sum(curve[10:25]) / 15]
    assert [cell.split(" ")[0] for cell in row.split(" | ")[3:5]] == [f"{mean:.3g}".ljust(5, "0") for mean in means]
    assert row.split(" | ")[5] == "–", "rollouts are shorter than that"
    assert "| SFNO | 8.23 | 0.017 | 0.099 | 0.30 | 0.72 | 0.77 |" in text


def test_runs_of_another_precision_stand_in_the_figure_by_their_cell(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "sweep": {"model.order": [1, 3], "model.depth": [1, 2]}})
    results = results_of(spec, [0.9, 0.8, 0.05, 0.03])
    results["runs"][0] |= {"spec_hash": "of tf32", "settings": {"train.precision": "tf32"}}
    cells = depth_cells(results, spec)
    assert sorted(cells) == [(1, 1), (1, 2), (3, 1), (3, 2)]
    assert cells[1, 1]["rel_l2"] == (0.9, None)
    write_report(tmp_path, results)
    text = (tmp_path / "report.md").read_text()
    for metric in ("MSE on standardised targets", "rel. L2"):
        assert f"**Test {metric}** by layers and order, in brackets the published values." in text


def headline_of(tmp_path: Path, spec: Spec, errors: list[float]) -> str:
    text = report(tmp_path, spec, errors)
    return text[text.index("> **") : text.index("## Test errors")]


def test_the_headline_knows_how_much_seeds_scatter(tmp_path: Path) -> None:
    single = specs.parse({**BASE, "compare": COMPARE[:1]})
    told = headline_of(tmp_path, single, [0.047, 0.05])
    assert "1.06 times lower than FNO, depth 1 (one seed each)" in told
    assert "How much seeds scatter is not known." in told
    seeds = specs.parse({**BASE, "compare": COMPARE[:1], "sweep": {"seed": [0, 1]}})
    told = headline_of(tmp_path, seeds, [0.03, 0.064, 0.04, 0.06])
    assert "no clear difference from FNO, depth 1**" in told
    assert "0.2 standard errors of their difference apart" in told
    told = headline_of(tmp_path, seeds, [0.046, 0.048, 0.0495, 0.0505])
    assert "1.06 times lower than FNO, depth 1**" in told
    assert "one seed" not in told


def test_settings_are_chosen_by_their_validation_errors(tmp_path: Path) -> None:
    spec = specs.parse({**BASE, "sweep": {"model.order": [1, 3], "seed": [0, 1]}})
    results = results_of(spec, [0.031, 0.031, 0.033, 0.035])
    for run, error in zip(results["runs"], [0.05, 0.07, 0.03, 0.04], strict=True):
        run["valid_rel_l2"] = error
    write_report(tmp_path, results)
    text = (tmp_path / "report.md").read_text()
    assert "| model | validation rel. L2 | test rel. L2 |" in text
    assert "| HO-FNO order 3, depth 1, order 3 | 0.0350 ± 0.0071 | 0.0340 ± 0.0014 |" in text
    assert "The best of 2 settings by the validation error; mean over the test set and 2 seeds." in text
    assert "order 3: relative L2 error 0.0340**" in text
    assert "Choose among these by the validation error" in text
    write_report(tmp_path, {**results, "runs": results["runs"][:2]})
    assert "validation rel. L2" not in (tmp_path / "report.md").read_text(), "there is nothing to choose"


def test_the_sample_that_is_shown_has_the_median_error() -> None:
    assert middle([0.3, 0.1, 0.2, 1e9, 0.25]) == 4
    assert middle([0.3, 0.1, 0.2, 0.4]) == 2, "the lower one of an even number"
    assert middle([7.0]) == 0
