"""The chapter on quantities of interest: a row for each and model, and every sample drawn."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_hex

from hofno.report.drawing import ORDER_COLOURS
from hofno.report.outcomes import outcomes_chapter, predicted_against_true
from hofno.report.page import Page


def run(label: str, seed: int, error: float, **more: float) -> dict[str, object]:
    lift = {"unit": "", "mean_error": error, "deviation_of_truth": 0.3, "largest_error": 1.0, "bias": 0.0, **more}
    return {"label": label, "cell": {"label": label}, "seed": seed, "outcomes": {"lift": lift}}


def test_rows_are_means_over_seeds_and_bounds_may_be_missing() -> None:
    page = Page("t", "l")
    of_order_2 = [run("HO-FNO order 2", seed, e, bound=e, kept=1 - e) for seed, e in ((0, 0.1), (1, 0.3))]
    outcomes_chapter(page, [*of_order_2, run("FNO", 0, 0.4), {"label": "other", "cell": {}, "seed": 0}], {}, least=9)
    rows = [line for line in page.markdown().splitlines() if line.startswith("| lift")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells == [
        ["lift", "HO-FNO order 2", "0.200", "0.300", "0.200", "80%"],
        ["lift", "FNO", "0.400", "0.300", "–", "–"],
    ]
    assert "<img" not in page.html()
    assert "The bound is what the error of 90% of samples should stay below" in page.markdown()


def test_without_bounds_there_are_no_columns_for_them_and_the_reason_is_told() -> None:
    page = Page("t", "l")
    outcomes_chapter(page, [run("FNO", 0, 0.4)], {}, least=9)
    assert "| lift | FNO | 0.400 | 0.300 |\n" in page.markdown()
    assert "take 9 validation samples" in page.markdown()
    assert "bound for" not in page.markdown()


def test_numbers_of_frames_are_called_so() -> None:
    page = Page("t", "l")
    outcomes_chapter(page, [run("FNO", 0, 0.4, bound=0.2, kept=0.9)], {}, least=9, together=20)
    assert "One number for each of the 20 frames of each sample" in page.markdown()
    assert "the largest error of the frames, in 90% of samples," in page.markdown()


def test_units_stand_with_names_and_samples_are_drawn() -> None:
    page = Page("t", "l")
    known = {"unit": "mm", "mean_error": 0.1, "deviation_of_truth": 0.3, "largest_error": 1.0, "bias": 0.0}
    record = {"outcomes": {"width": known}, "per_sample": {"outcomes": {"width": {"truth": [1], "prediction": [2]}}}}
    outcomes_chapter(page, [{"label": "FNO", "cell": {}, "seed": 0, **record}], {"FNO": record}, least=9)
    assert "| width (mm) | FNO |" in page.markdown()
    assert page.html().count("<img") == 1


def test_samples_lie_where_their_numbers_are_and_far_ones_at_the_edge() -> None:
    values = {
        "HO-FNO order 2": {"lift": {"truth": [0.0, 1.0], "prediction": [0.5, 1e78]}},
        "FNO": {"lift": {"truth": [0.0, 1.0], "prediction": [0.25, 0.75]}},
    }
    figure = predicted_against_true(values, {"lift": "N"})
    axis, *rest = figure.axes
    assert rest == []
    line, second, first = axis.lines
    low, high = axis.get_xlim()
    assert axis.get_ylim() == (low, high)
    assert low < 0 < 1 < high < 1.5
    np.testing.assert_array_equal(line.get_xdata(), line.get_ydata())
    np.testing.assert_allclose(np.asarray(second.get_xydata()), [[0.0, 0.5], [1.0, high]])
    np.testing.assert_allclose(np.asarray(first.get_xydata()), [[0.0, 0.25], [1.0, 0.75]])
    assert [to_hex(dots.get_color()) for dots in (second, first)] == [ORDER_COLOURS[2], ORDER_COLOURS[1]]
    assert axis.get_title() == "lift (N)"


def test_predictions_that_are_somewhat_off_are_seen_whole() -> None:
    """A model whose numbers are all too large by 0.4 of the range of the truths, and one that is far off."""
    values = {
        "FNO": {"lift": {"truth": [0.0, 1.0], "prediction": [0.4, 1.4]}},
        "U-Net": {"lift": {"truth": [0.0, 1.0], "prediction": [-2.0, 0.5]}},
    }
    axis = predicted_against_true(values, {}).axes[0]
    low, high = axis.get_xlim()
    assert -0.2 < low < 0 < 1.4 < high < 1.6
    _, near, far = axis.lines
    np.testing.assert_allclose(near.get_ydata(), [0.4, 1.4])
    np.testing.assert_allclose(far.get_ydata(), [low, 0.5])
    assert not near.get_clip_on(), "dots at the edge are whole"


def test_models_whose_data_have_other_outcomes_are_drawn_where_they_have_some() -> None:
    """As in a sweep over `data.pressure`."""
    one = {"truth": [0.0, 1.0], "prediction": [0.5, 0.5]}
    figure = predicted_against_true({"A": {"peak": one}, "B": {"lift": one}, "C": {"peak": one, "lift": one}}, {})
    assert [axis.get_title() for axis in figure.axes] == ["peak", "lift"]
    named = [[str(line.get_label()) for line in axis.lines[1:]] for axis in figure.axes]
    assert named == [["A", "C"], ["B", "C"]]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["A", "C", "B"]
