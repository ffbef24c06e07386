"""Tables: the statistics are right, the digits are right, and no text can break a cell."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hofno.errors import HofnoError
from hofno.report import published, tables
from hofno.report.digits import number, plus_minus

positive_numbers = st.floats(1e-12, 1e12)


def split_row(line: str) -> list[str]:
    """Cells of a Markdown table row, as a renderer finds them: at pipes without a backslash before."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.004571, "0.00457"),
        (12.34, "12.3"),
        (0.00009996, "0.000100"),
        (9.999, "10.0"),
        (12345.6, "12346"),
        (1.2e-7, "1.20e-07"),
        (-0.5, "-0.500"),
        (0.0, "0"),
        (math.nan, "nan"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


@given(positive_numbers, st.integers(2, 5))
def test_number_keeps_its_significant_digits(value: float, digits: int) -> None:
    assert math.isclose(float(number(value, digits)), value, rel_tol=0.5000001 * 10.0 ** (1 - digits))


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (0.32724, 0.00524, "0.327 ± 0.0052"),
        (0.00043, 0.000077, "0.000430 ± 0.000077"),
        (3.68e-7, 2.1e-8, "3.68e-07 ± 0.21e-07"),
        (5.28e-5, 1.2e-8, "5.28e-05 ± 0.0012e-05"),
        (5.28e-5, 0.0, "5.28e-05 ± 0.00e-05"),
        (0.3, 0.0, "0.300 ± 0.000"),
        (0.3, 1e-12, "0.300 ± 0.00000"),
        (0.3, None, "0.300"),
    ],
)
def test_plus_minus(mean: float, std: float | None, text: str) -> None:
    assert plus_minus(mean, std) == text


@given(positive_numbers, positive_numbers)
def test_plus_minus_uses_one_notation(mean: float, share: float) -> None:
    left, right = plus_minus(mean, mean * min(share, 1.0)).split(" ± ")
    assert left.partition("e")[2] == right.partition("e")[2]
    assert math.isclose(float(right), mean * min(share, 1.0), rel_tol=0.06, abs_tol=0.01 * mean)


def test_published_numbers_gain_no_digits() -> None:
    assert plus_minus(0.00073, 0.0002, published.POISSON_DECIMALS) == "0.00073 ± 0.00020"


def test_summary_is_mean_and_sample_deviation(results: dict[str, Any]) -> None:
    summaries = tables.summarise(results["runs"])
    assert [summary.label for summary in summaries] == [
        "FNO, depth 1",
        "HO-FNO order 2, depth 1",
        "HO-FNO order 5, depth 16",
    ]
    values = [run["metrics"]["rel_l2"] for run in results["runs"][:3]]
    found = summaries[0].metrics["rel_l2"]
    assert found.n == 3
    assert found.mean == pytest.approx(np.mean(values), rel=1e-12)
    assert found.std == pytest.approx(np.std(values, ddof=1), rel=1e-9)
    assert found.values == tuple(values)
    assert summaries[0].seconds[""].mean == 11.0
    assert summaries[0].seeds == (0, 1, 2)


def test_one_seed_has_no_deviation(results: dict[str, Any]) -> None:
    (summary,) = tables.summarise(results["runs"][:1])
    assert summary.metrics["rel_l2"] == tables.Statistic(results["runs"][0]["metrics"]["rel_l2"], None, 1)


def test_metrics_that_only_some_runs_have_are_left_out(results: dict[str, Any]) -> None:
    before = tables.summarise(results["runs"])[0].metrics
    results["runs"][1]["metrics"]["rel_l2_low"] = 0.1
    del results["runs"][2]["metrics"]["mse"]
    after = tables.summarise(results["runs"])[0].metrics
    assert after == {name: value for name, value in before.items() if name != "mse"}


@given(st.permutations(range(9)))
def test_order_of_runs_does_not_change_the_numbers(order: list[int]) -> None:
    runs = [
        {
            "label": f"m{index // 3}",
            "cell": {"a": index // 3, "b": 1},
            "seed": index % 3,
            "metrics": {"rel_l2": 0.1 * (index + 1)},
            "parameters": {},
            "seconds": 1.0,
        }
        for index in range(9)
    ]
    expected = {summary.label: summary.metrics["rel_l2"].mean for summary in tables.summarise(runs)}
    shuffled = tables.summarise([runs[index] for index in order])
    assert {summary.label: summary.metrics["rel_l2"].mean for summary in shuffled} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "another"}, "one label per cell"),
        ({"parameters": {"real": 1, "complex_once": 1}}, "one parameters per cell"),
        ({"seed": 1}, "one run per seed"),
        ({"metrics": {"mse": 0.1}}, "rel_l2 in every run"),
        ({"metrics": {"rel_l2": math.inf, "mse": 1.0, "mse_standardised": 1.0}}, "finite numbers"),
    ],
)
def test_runs_that_do_not_belong_together_are_refused(
    results: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    results["runs"][0] |= change
    with pytest.raises(HofnoError, match=message) as caught:
        tables.summarise(results["runs"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema 1, got schema 2"),
        ({"runs": []}, "at least one run"),
        ({"runs": [{"label": "a"}]}, r"\['cell', 'metrics', 'parameters', 'seconds', 'seed'\] in run 0"),
    ],
)
def test_a_file_that_is_not_a_results_file_is_refused(
    results: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(HofnoError, match=message):
        tables.comparison_table(results | change)


cells = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=20)


@given(st.lists(st.tuples(cells, cells, cells), max_size=5))
def test_markdown_cells_stay_in_their_columns(rows: list[tuple[str, str, str]]) -> None:
    lines = tables.markdown(["a", "b|c", "d"], rows).split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(rows) + 2
    assert all(len(split_row(line)) == 3 for line in lines)
    assert all("<" not in re.sub(r"`[^`]+`", "", line) for line in lines)


def test_markdown_aligns_numbers_right() -> None:
    lines = tables.markdown(["name", "value"], [["a\nb", "1.5 ± 0.1"], ["`x|y<z`", tables.MISSING]]).split("\n")
    assert lines[1] == "| --- | ---: |"
    assert lines[2] == "| a b | 1.5 ± 0.1 |"
    assert lines[3] == f"| `x\\|y<z` | {tables.MISSING} |"


def test_ragged_rows_are_refused() -> None:
    with pytest.raises(HofnoError, match="expected 2 cells per row, got 1"):
        tables.markdown(["a", "b"], [["1"]])


def test_comparison_table_shows_both_counts_and_the_conditions(results: dict[str, Any]) -> None:
    text = tables.comparison_table(results)
    lines = text.splitlines()
    rows = [dict(zip(split_row(lines[0]), split_row(line), strict=True)) for line in lines[2:5]]
    assert rows[1] == {
        "model": "HO-FNO order 2, depth 1",
        "rel. L2": "0.0310 ± 0.0010",
        "MSE": "7.00e-10 ± 1.00e-10",
        "parameters (real)": "4,000",
        "parameters (complex once)": "2,200",
        "seconds": "11.0",
        "seeds": "3",
    }
    assert "Data: generated. Device: NVIDIA H200. Date: 2026-11-15." in text


def test_seconds_of_unlike_conditions_are_not_averaged(results: dict[str, Any]) -> None:
    for run in results["runs"]:
        run["beside"] = "alone on the GPU" if run["seed"] < 2 else "two runs sharing the GPU"
    (first, *_) = tables.summarise(results["runs"])
    assert {how: (found.mean, found.n) for how, found in first.seconds.items()} == {
        "alone on the GPU": (10.5, 2),
        "two runs sharing the GPU": (12.0, 1),
    }
    header, rows = tables.comparison_rows(results)
    assert "seconds" in header
    assert " ".join(rows[0][5].split()) == "10.5 (alone on the GPU), 12.0 (two runs sharing the GPU)"
    assert max(map(len, rows[0][5].splitlines())) < 20
    for run in results["runs"]:
        run["beside"] = "alone on the GPU"
    header, rows = tables.comparison_rows(results)
    assert "seconds (alone on the GPU)" in header
    assert rows[0][5] == "11.0"


def test_seconds_of_other_devices_are_not_averaged(results: dict[str, Any]) -> None:
    results["runs"][0]["device"] = "a CPU"
    (first, second, _) = tables.summarise(results["runs"])
    assert {how: found.n for how, found in first.seconds.items()} == {"a CPU": 1, "": 2}
    assert {how: found.n for how, found in second.seconds.items()} == {"": 3}


def test_measured_cells_have_the_shape_of_the_published_ones(results: dict[str, Any]) -> None:
    ours = tables.poisson_cells(results)
    assert set(ours) == {(1, 1), (2, 1), (5, 16)}
    assert ours[2, 1]["mse"] == pytest.approx((0.0007, 0.0001))
    assert set(ours[2, 1]) == set(published.poisson(2)[2, 1])


def test_order_and_depth_fall_back_to_the_spec(results: dict[str, Any]) -> None:
    results["runs"] = results["runs"][:1]
    results["runs"][0]["cell"] = {"model.order": 3}
    assert set(tables.poisson_cells(results)) == {(3, 4)}
    results["spec"] = {}
    with pytest.raises(HofnoError, match=r"whole number for model\.depth"):
        tables.poisson_cells(results)


def test_two_cells_at_one_place_are_refused(results: dict[str, Any]) -> None:
    results["runs"][0]["cell"] = {"model.order": 2, "model.depth": 1, "model.width": 64}
    with pytest.raises(HofnoError, match=r"got two for \(2, 1\)"):
        tables.poisson_cells(results)


def test_another_problem_is_refused(results: dict[str, Any]) -> None:
    with pytest.raises(HofnoError, match="got 'darcy'"):
        tables.poisson_cells(results | {"problem": "darcy"})


def test_depth_table_marks_only_what_is_above(results: dict[str, Any]) -> None:
    table = tables.poisson_depth_rows(results, 2, "mse")
    assert table.header == ["layers", "FNO (order 1)", "order 2", "order 3", "order 5"]
    assert [row[0] for row in table.rows] == ["1", "2", "4", "8", "16"]
    assert table.rows[0][1] == "0.0900 ± 0.00010\n(0.0951 ± 0.0033)"
    assert table.rows[0][2] == "0.000700 ± 0.00010\n(0.00073 ± 0.00020)"
    assert table.rows[0][3] == f"{tables.MISSING}\n(0.00036 ± 0.00005)"
    assert table.rows[4][4] == "0.00300 ± 0.00010\n(0.00139 ± 0.00068)\n**above**"
    assert (table.measured, table.above) == (3, 1)
    # within one published deviation above the mean (0.02740 + 0.00375): not marked
    assert "above" not in tables.poisson_depth_rows(results, 2, "rel_l2").rows[0][2]


def test_depth_table_as_markdown(results: dict[str, Any]) -> None:
    text = tables.poisson_depth_table(results, 2)
    assert text.count("| layers |") == 2
    assert "**Test MSE on standardised targets**, p = 2: measured on generated data (published)" in text
    assert "| 0.00300 ± 0.00010 (0.00139 ± 0.00068) **above** |" in text
    assert "3 of 20 cells measured; 1 above the published mean plus one published standard deviation." in text
    with pytest.raises(HofnoError, match="got 'mae'"):
        tables.poisson_depth_rows(results, 2, "mae")
