"""Figures: the right data on the right axes, in the colours of the paper, without touching global state."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from hofno.errors import HofnoError
from hofno.report import figures, published, tables
from hofno.report.drawing import log_ticks, panels, series_styles
from hofno.report.scenes import Scene


def visible(figure: Figure) -> list[Any]:
    """Panels with a title, in reading order; colour bars have none."""
    return [axis for axis in figure.axes if axis.get_visible() and axis.get_title()]


def draws(figure: Figure) -> bool:
    """Does it render? Warnings are errors in this suite."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=40)
    return buffer.getvalue().startswith(b"\x89PNG")


def test_importing_report_loads_no_matplotlib() -> None:
    code = "import sys, hofno.report; assert 'matplotlib' not in sys.modules, 'matplotlib was imported'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_fields_in_two_dimensions() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(2, 2, 8, 6)), generator.normal(size=(2, 1, 8, 6))
    figure = figures.fields(x, y, {"FNO": 1.5 * y, "HO-FNO order 2": y + 0.01}, sample=1)
    panels = visible(figure)
    error = np.linalg.norm(np.full_like(y[1], 0.01)) / np.linalg.norm(y[1])
    assert [axis.get_title() for axis in panels] == [
        *("input 1", "input 2", "truth", "FNO", "HO-FNO order 2"),
        *("error, rel. L2 0.500", f"error, rel. L2 {error:.3g}"),
    ]
    truth, prediction, wrong, less_wrong = (panels[index].images[0] for index in (2, 3, 5, 6))
    assert truth.get_clim() == prediction.get_clim() == pytest.approx((y[1].min(), y[1].max()))
    assert wrong.get_clim() == pytest.approx((-0.5 * abs(y[1]).max(), 0.5 * abs(y[1]).max()))
    assert less_wrong.get_clim() == wrong.get_clim(), "one scale for all models"
    turned = figures.fields(x, y, {"HO-FNO order 2": y + 0.01, "FNO": 1.5 * y}, sample=1)
    assert visible(turned)[5].images[0].get_clim() == wrong.get_clim(), "whichever comes first"
    bars = [axis for axis in figure.axes if axis.get_label() == "<colorbar>"]
    assert len(bars) == len(panels), "and every scale is printed"
    np.testing.assert_allclose(np.asarray(prediction.get_array()), 1.5 * y[1, 0].T)
    assert draws(figure)


@pytest.mark.parametrize("shape", [(32,), (8, 8)])
@pytest.mark.parametrize("models", [1, 3, 4])
def test_titles_lie_within_the_figure_and_beside_each_other(shape: tuple[int, ...], models: int) -> None:
    y = 0.003 * np.random.default_rng(0).normal(size=(1, 1, *shape))
    labels = [f"HO-FNO order {order}, depth 16, 7 waves" for order in range(2, 2 + models)]
    scene = Scene(inputs=("source f",), targets=("solution v",))
    figure = figures.fields(y, y, dict.fromkeys(labels, 1.1 * y), scene=scene)
    figure.draw_without_rendering()
    width = figure.get_size_inches()[0] * figure.dpi
    boxes = [axis.title.get_window_extent() for axis in visible(figure)]
    for index, box in enumerate(boxes):
        assert 0 <= box.x0 < box.x1 <= width, visible(figure)[index].get_title()
        assert not any(box.overlaps(other) for other in boxes[:index]), visible(figure)[index].get_title()


def test_fields_in_one_dimension_are_lines() -> None:
    y = np.sin(np.linspace(0, 6, 32))[None, None]
    figure = figures.fields(y, y, {"HO-FNO order 3": 1.1 * y})
    titles = [axis.get_title() for axis in visible(figure)]
    assert titles == ["input", "truth", "HO-FNO order 3 (dashed: truth)", "error, rel. L2 0.100"]
    prediction = visible(figure)[2]
    np.testing.assert_allclose(prediction.lines[0].get_ydata(), y[0, 0])
    np.testing.assert_allclose(prediction.lines[1].get_ydata(), 1.1 * y[0, 0])
    assert to_hex(prediction.lines[1].get_color()) == "#1e88e5"
    assert draws(figure)


def test_a_curve_that_is_far_off_is_seen_beside_the_truth() -> None:
    y = np.sin(np.linspace(0, 6, 32))[None, None]
    figure = figures.fields(y, y, {"FNO": y + 30})
    low, high = visible(figure)[2].get_ylim()
    assert low < y.min()
    assert high > y.max() + 30
    assert "truth, values from -0.998 to 1.00" in figure.get_label()
    assert "colours" not in figure.get_label()


def test_words_name_each_quantity_once() -> None:
    """A title that names it is enough; of one channel the title does not."""
    y = np.sin(np.linspace(0, 6, 32))[None, None]
    named = figures.fields(y, y, {"FNO": y}, scene=Scene(targets=("head (m)",))).get_label()
    assert "truth (head (m)), values" in named
    two = np.concatenate((y, y), 1)
    told = figures.fields(two, two, {"FNO": two}, scene=Scene(targets=("head (m)", "flux"))).get_label()
    assert "truth: head (m), values" in told
    assert "truth: flux, values" in told


def test_points_in_space_are_dots_by_their_number() -> None:
    y = np.random.default_rng(0).normal(size=(1, 1, 30))
    figure = figures.fields(y, y, {"PointHO": 2 * y}, places=np.zeros((1, 3, 30)))
    assert visible(figure)[2].get_title().replace("\n", " ") == "PointHO (grey: truth)"
    for line in (line for axis in visible(figure) for line in axis.lines):
        assert (line.get_linestyle(), line.get_marker()) == ("None", "."), "neighbours by number are none in space"
    assert draws(figure)


def test_fields_in_three_dimensions_show_the_middle_slice() -> None:
    y = np.random.default_rng(0).normal(size=(1, 2, 5, 4, 3))
    figure = figures.fields(y[:, :1], y, {"a": y, "b": y + 1, "c": y})
    assert figure.get_suptitle() == "Middle slice of 3-D fields: index 2 of 5 along the first axis"
    truth = next(axis for axis in visible(figure) if axis.get_title() == "truth 2")
    np.testing.assert_allclose(np.asarray(truth.images[0].get_array()), y[0, 1, 2].T)
    assert {"b, channel 1", "b, channel 2"} <= {axis.get_title() for axis in visible(figure)}
    assert draws(figure)


def test_fields_survive_a_broken_prediction_and_a_zero_truth() -> None:
    zero = np.zeros((1, 1, 4, 4))
    figure = figures.fields(zero, zero, {"a": np.full_like(zero, np.nan)})
    assert visible(figure)[-1].get_title().replace("\n", " ") == "error, rel. L2 undefined (truth is 0)"
    assert draws(figure)


def test_fields_refuse_what_does_not_fit() -> None:
    y = np.zeros((1, 1, 4, 4))
    with pytest.raises(HofnoError, match=r"shape \(1, 4, 4\), got \(1, 4, 3\) from 'a'"):
        figures.fields(y, y, {"a": y[..., :3]})
    with pytest.raises(HofnoError, match="expected sample 1"):
        figures.fields(y, y, {"a": y}, sample=1)
    with pytest.raises(HofnoError, match="at least one prediction"):
        figures.fields(y, y, {})


def test_learning_curves() -> None:
    history = [
        {
            "epoch": epoch,
            "train_loss": 1 / epoch,
            "valid_rel_l2": 2 / epoch if epoch % 2 else None,
            "seconds": 1,
        }
        for epoch in range(1, 6)
    ]
    figure = figures.learning_curves({"FNO": history, "HO-FNO order 2": history[:1], "diverged": []})
    train, valid = visible(figure)
    assert train.get_yscale() == valid.get_yscale() == "log"
    np.testing.assert_allclose(train.lines[0].get_xydata(), [(e, 1 / e) for e in range(1, 6)])
    np.testing.assert_allclose(valid.lines[0].get_xydata(), [(e, 2 / e) for e in (1, 3, 5)])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "FNO",
        "HO-FNO order 2",
        "diverged",
    ]
    assert draws(figure)


def test_both_curves_have_the_same_epochs() -> None:
    """Also where the last one alone was validated."""
    history: list[dict[str, Any]] = [{"epoch": epoch, "train_loss": 1 / epoch} for epoch in range(1, 20)]
    train, valid = visible(
        figures.learning_curves({"FNO": [*history, {**history[-1], "epoch": 20, "valid_rel_l2": 1}]})
    )
    assert valid.get_xlim() == train.get_xlim()
    assert train.get_xlim()[0] < 1


@pytest.mark.parametrize(
    ("ends", "marks"),
    [
        ((1e-7, 1), {"$10^{-5}$", "$10^{-1}$", "$10^{0}$"}),
        ((1e-4, 10), {"0.0001", "0.1", "10"}),
        ((0.1, 1), {"0.2", "1"}),
    ],
)
def test_marks_of_a_logarithmic_axis_are_written_alike(ends: tuple[float, float], marks: set[str]) -> None:
    _, (axis,) = panels(1, 1, height=3)
    axis.set(yscale="log", ylim=ends)
    log_ticks(axis.yaxis)
    texts = {label.get_text() for label in axis.get_yticklabels()}
    assert marks <= texts
    assert len({"$" in text for text in texts}) == 1


@pytest.mark.parametrize("epochs", [1, 2, 3])
@pytest.mark.parametrize("level", [1.0, 0.37, 123.0])
def test_short_and_level_curves_have_whole_epochs_and_two_marks(epochs: int, level: float) -> None:
    rows = [{"epoch": e, "train_loss": level * 0.99**e, "valid_rel_l2": level / 3**e} for e in range(1, epochs + 1)]
    figure = figures.learning_curves({"FNO": rows})
    for axis in visible(figure):
        for line, least in ((axis.xaxis, 1), (axis.yaxis, 2)):
            low, high = sorted(line.get_view_interval())
            marks = [mark for mark in line.get_majorticklocs() if low <= mark <= high]
            assert len(marks) >= least
        assert all(float(mark).is_integer() for mark in axis.xaxis.get_majorticklocs())


def test_curves_without_a_positive_value_still_draw() -> None:
    rows = [{"epoch": 1, "train_loss": float("nan"), "valid_rel_l2": 0.0, "seconds": 1}]
    assert draws(figures.learning_curves({"_hidden": rows}))


def test_error_against_depth(results: dict[str, Any]) -> None:
    measured = {2: tables.poisson_cells(results)}
    figure = figures.error_against_depth(measured, {p: published.poisson(p) for p in (1, 2, 5)}, "rel_l2")
    panels = visible(figure)
    assert [axis.get_title() for axis in panels] == ["p = 1", "p = 2", "p = 5"]
    middle = panels[1]
    assert (middle.get_xscale(), middle.get_yscale()) == ("log", "log")
    assert [tick.get_text() for tick in middle.get_xticklabels()] == ["1", "2", "4", "8", "16"]
    hollow, solid = middle.lines[:2]
    expected = [published.poisson(2)[1, depth]["rel_l2"][0] for depth in (1, 2, 4, 8, 16)]
    np.testing.assert_allclose(hollow.get_ydata(), expected)
    np.testing.assert_allclose(solid.get_xydata(), [(1, 0.3)])
    assert (hollow.get_markerfacecolor(), hollow.is_dashed(), solid.is_dashed()) == ("white", True, False)
    assert to_hex(hollow.get_color()) == to_hex(solid.get_color()) == "#dc4b3c"
    assert draws(figure)
    with pytest.raises(HofnoError, match="got 'mae'"):
        figures.error_against_depth(measured, {}, "mae")


def test_errors_are_dots_with_their_seeds(results: dict[str, Any]) -> None:
    rows = tables.summarise(results["runs"])
    figure = figures.error_dots(rows)
    (axis,) = figure.axes
    assert axis.get_xscale() == "log"
    assert not axis.patches, "a bar on a logarithmic axis has no beginning"
    lines, seeds, means = axis.lines[::3], axis.lines[1::3], axis.lines[2::3]
    np.testing.assert_allclose([line.get_xdata()[0] for line in means], [0.3, 0.031, 0.03])
    np.testing.assert_allclose(lines[0].get_xdata(), [0.299, 0.301])
    np.testing.assert_allclose(sorted(seeds[1].get_xdata()), [0.03, 0.031, 0.032])
    assert [to_hex(line.get_color()) for line in means] == ["#dc4b3c", "#2ea043", "#8e44ad"]
    assert [text.get_text() for text in axis.texts] == ["0.300", "0.0310", "0.0300"]
    assert [tick.get_text() for tick in axis.get_yticklabels()] == [row.label for row in rows]
    assert axis.get_xlim()[0] < 0.03
    assert axis.get_xlim()[1] > 0.301
    assert draws(figure)


def test_one_seed_has_no_spread_and_equal_errors_look_equal(results: dict[str, Any]) -> None:
    runs = [{**run, "metrics": {"rel_l2": 0.3 + 0.001 * index}} for index, run in enumerate(results["runs"][::3])]
    (axis,) = figures.error_dots(tables.summarise(runs)).axes
    assert len(axis.lines) == 3
    low, high = axis.get_xlim()
    assert high / low > 2
    assert len([mark for mark in axis.get_xticks() if low <= mark <= high]) <= 6


def test_error_dots_refuse_rows_they_cannot_show(results: dict[str, Any]) -> None:
    for run in results["runs"]:
        run["metrics"] = {"rel_l2": 0.0}
    with pytest.raises(HofnoError, match="positive"):
        figures.error_dots(tables.summarise(results["runs"]))
    for run in results["runs"]:
        run["metrics"] = {"mse": 1.0}
    with pytest.raises(HofnoError, match="expected rel_l2 in every run"):
        figures.error_dots(tables.summarise(results["runs"]))


def test_per_sample_counts_failures_as_large() -> None:
    figure = figures.per_sample({"FNO": [0.4, 0.1, np.nan, 0.2], "U-Net": np.full((2, 2), 0.3)})
    curve, median = figure.axes[0].lines[:2]
    drawn = np.asarray(curve.get_xydata())
    np.testing.assert_allclose(drawn[:4], [(0.1, 0.0), (0.1, 0.25), (0.2, 0.5), (0.4, 0.75)])
    assert np.isnan(drawn[4, 0])
    np.testing.assert_allclose(np.asarray(median.get_xydata()), [(0.3, 0.5)])
    assert draws(figure)
    with pytest.raises(HofnoError, match="error of empty"):
        figures.per_sample({"empty": []})


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_mark_of_a_sample_is_the_median(count: int) -> None:
    errors = np.random.default_rng(count).uniform(0.1, 0.9, count)
    _, median = figures.per_sample({"FNO": errors}).axes[0].lines
    np.testing.assert_allclose(np.asarray(median.get_xydata()), [(np.median(errors), 0.5)])


def test_one_test_sample_has_a_curve_too() -> None:
    curve, _ = figures.per_sample({"FNO": [0.3]}).axes[0].lines
    np.testing.assert_allclose(np.asarray(curve.get_xydata()), [(0.3, 0.0), (0.3, 1.0)])


def test_legends_have_every_label_and_take_no_room_from_the_panels() -> None:
    labels = [
        "_private",
        "_x $5",
        *(f"a label of more than fifty letters, so that each has a row {n}" for n in range(6)),
    ]
    histories = {label: [{"epoch": 1, "loss": 1.0}, {"epoch": 2, "loss": 0.5}] for label in labels}
    many, few = figures.learning_curves(histories), figures.learning_curves({"FNO": histories["_private"]})
    assert [text.get_text() for text in many.legends[0].get_texts()] == labels
    heights = []
    for figure in (many, few):
        assert draws(figure)
        heights.append(figure.get_figheight() * figure.axes[0].get_position().height)
    assert heights[0] == pytest.approx(heights[1], rel=0.12)


def test_styles_follow_the_paper_and_tell_series_apart() -> None:
    labels = [
        "FNO",
        "HO-FNO order 2",
        "order 2, depth 4",
        "HO-FNO order 3",
        "order 5",
        "F-FNO",
        "U-Net",
        "order 7",
    ]
    styles = series_styles(labels)
    colours = [styles[label][0] for label in labels]
    assert [colours[index] for index in (0, 1, 3, 4)] == ["#dc4b3c", "#2ea043", "#1e88e5", "#8e44ad"]
    assert len(set(colours)) == len(labels)
    red, green, blue = (int(colours[2][at : at + 2], 16) for at in (1, 3, 5))
    assert green > max(red, blue), "another shade of the colour of its order"
    assert len({styles[label][:2] for label in labels}) == len(labels)


def test_labels_are_never_mathematics_and_settings_are_left_alone() -> None:
    before = dict(matplotlib.rcParams)
    assert draws(figures.per_sample({r"costs $\broken{ and $": [0.1, 0.2]}))
    assert dict(matplotlib.rcParams) == before
