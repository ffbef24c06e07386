"""Films and figures of models in time: every frame is where the style sheet looks for it, and limits mean one thing."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.image import imread

from hofno.errors import HofnoError, ShapeError
from hofno.report import Page, drawing, rollouts
from hofno.report.drawing import ENDS, LEAVES
from hofno.report.film import film_html, make_film

TRUTH = np.random.default_rng(0).normal(size=(5, 6, 4))
LABELS = [f"t = {index}" for index in range(5)]


def record(scale: float = 1.0, horizon: int = 4, later: int = 2, **changes: Any) -> dict[str, Any]:
    spectrum = {"truth": [1.0, 0.1, 0.01], "prediction": [0.9, 0.1, 0.02], "error": [0.1 * scale, 0.01, 0.01]}
    return {
        "rel_l2_per_step": [0.01 * scale * (1 + t) for t in range(horizon)],
        "later_rel_l2": [0.1 * scale] * later,
        "past": {
            "steps": 2 * horizon,
            "finite": 1.0,
            "bounded": 1.0,
            "power": [0.1 * scale] * (2 * horizon),
            "true_power": [0.1] * (horizon + later),
        },
        "spectra": {"power": spectrum, "energy": spectrum},
        **changes,
    }


class TestFilm:
    def test_the_strip_holds_every_frame_in_order(self) -> None:
        film = make_film(TRUTH, {"A": TRUTH + 0.5}, LABELS)
        assert [strip.title for strip in film.strips] == ["Truth", "A", "Error of A"]
        picture = imread(io.BytesIO(film.strips[0].picture))
        assert picture.shape[:2] == (4, 5 * 6), "y upwards, frames of x side by side"
        low, high = TRUTH.min(), TRUTH.max()
        assert (film.fields.low, film.fields.high) == (low, high)
        for index in range(5):
            shown = picture[::-1, index * 6 : (index + 1) * 6, :3].swapaxes(0, 1)
            expected = colormaps["viridis"]((TRUTH[index] - low) / (high - low))[..., :3]
            np.testing.assert_allclose(shown, expected, atol=1 / 254)

    def test_errors_of_all_models_have_one_scale_and_a_runaway_does_not_set_it(self) -> None:
        far = TRUTH.copy()
        far[-1] = np.nan
        scales = [strip.scale for strip in make_film(TRUTH, {"A": TRUTH + 0.1, "B": far + 1e9}, LABELS).strips]
        assert scales[2] == scales[4]
        assert scales[2].high == -scales[2].low == pytest.approx(TRUTH.max() - TRUTH.min())
        film = make_film(TRUTH, {"A": TRUTH + 0.1, "B": TRUTH - 0.2}, LABELS)
        assert "Errors of all models from -0.200 to 0.200." in film.limits
        alone = make_film(TRUTH, {"A": TRUTH}, LABELS).errors
        assert alone is not None
        assert alone.high > 0
        assert make_film(TRUTH, {}, LABELS).errors is None
        flat = make_film(np.zeros_like(TRUTH), {"A": TRUTH * 0}, LABELS).fields
        assert (flat.low, flat.high) == (0.0, 1.0)

    def test_the_page_needs_no_script_and_moves_in_steps(self, tmp_path: Path) -> None:
        page = Page("t", "l")
        page.film(make_film(TRUTH, {"<A>": TRUTH + 0.5}, LABELS), "A **film**.")
        page.film(make_film(TRUTH, {"B": TRUTH}, LABELS), "Another.")
        text = page.write(tmp_path).read_text()
        assert "<script" not in text
        assert "--frames: 5" in text
        assert "prefers-reduced-motion" in text
        assert "&lt;A&gt;" in text
        assert "<A>" not in text
        assert {"film-1", "film-2"} <= set(re.findall(r'id="([^"]+)"', text))
        strips = re.findall(r"url\('data:image/png;base64,([^']+)'\)", text)
        assert len(strips) == 6
        assert all(base64.b64decode(strip).startswith(b"\x89PNG") for strip in strips)
        assert "**Film 1** (in `index.html`). A **film**. Colours:" in (tmp_path / "report.md").read_text()

    def test_every_frame_has_its_label(self) -> None:
        text = film_html(make_film(TRUTH, {"A": TRUTH}, LABELS), 1, "c")
        assert all(f"<span>{label}</span>" in text for label in LABELS)

    def test_colours_have_bars_and_panels_their_proportions(self) -> None:
        text = film_html(make_film(TRUTH, {"A": 2 * TRUTH}, LABELS, "vorticity"), 1, "c")
        assert "<b>vorticity</b>" in text
        first, second = re.findall(r"linear-gradient\(to right, ([^)]+)\)", text)
        assert first.split(", ")[0] == to_hex(colormaps["viridis"](0.0))
        assert second.split(", ")[-1] == to_hex(colormaps["RdBu_r"](1.0))
        assert '<div class="film" style="--frames: 5; --length: 2s; --shape: 1.5"' in text
        assert 'class="film wide"' in film_html(make_film(TRUTH[:, :, :2], {"A": TRUTH[:, :, :2]}, LABELS), 1, "c")

    def test_the_control_does_what_it_says(self) -> None:
        """A film that moves is paused by a tick; one that stands still, for readers who ask for that, is played."""
        text = film_html(make_film(TRUTH, {"A": TRUTH}, LABELS), 1, "c")
        assert '<span class="moving">pause</span><span class="still">play</span>' in text
        style = Page("t", "l").html()
        moving, still = style.split("@media (prefers-reduced-motion: reduce)")
        assert ".film .still { display: none; }" in moving
        assert "animation-play-state: paused" in moving.split(".film input:checked")[-1]
        still = still.split("@media")[0]
        assert ".film .moving { display: none; }" in still
        assert ".film .still { display: inline; }" in still
        assert "animation-play-state: running" in still.split(".film input:checked")[-1]

    @pytest.mark.parametrize(
        ("truth", "predicted", "labels", "words"),
        [
            (TRUTH[0], TRUTH[0], LABELS, "two or more frames"),
            (TRUTH, TRUTH, LABELS[1:], "with a label each"),
            (TRUTH, TRUTH[1:], LABELS, "expected a prediction of shape"),
        ],
    )
    def test_what_is_no_film(self, truth: Any, predicted: Any, labels: list[str], words: str) -> None:
        with pytest.raises(ShapeError, match=words):
            make_film(truth, {"A": predicted}, labels)


class TestFigures:
    def test_errors_are_drawn_beyond_the_horizon(self) -> None:
        figure = rollouts.error_by_step({"HO-FNO order 2": record(), "FNO": record(3.0)}, start=11)
        lines = figure.axes[0].lines
        assert lines[0].get_xdata()[0] == 11
        assert len(lines[0].get_ydata()) == 6
        assert [line.get_label() for line in lines[:2]] == ["HO-FNO order 2", "FNO"]
        marked = [line for line in lines if line.get_xdata()[0] == pytest.approx(14.5)]
        assert marked, "the end of the horizon"

    def test_a_runaway_leaves_the_picture(self) -> None:
        far = record()
        far["past"] |= {"power": [0.1, 1e30, None, None, None, None, None, None]}
        figure = rollouts.error_by_step({"A": far}, start=1)
        assert figure.axes[1].get_ylim()[1] < 10
        assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == LEAVES

    def test_a_flow_that_fades_away_is_seen_down_to_a_floor_and_then_marked(self) -> None:
        fading = record()
        fading["past"] |= {"power": [0.1 * 0.1**t for t in range(8)]}
        _, squares = rollouts.error_by_step({"A": record(), "B": fading}, start=1).axes
        low = squares.get_ylim()[0]
        assert 0.9e-4 < low < 1.1e-4
        (arrow,) = [line for line in squares.lines if len(line.get_xdata()) == 1]
        assert arrow.get_ydata()[0] == low
        assert arrow.get_xdata()[0] == pytest.approx(4.0, abs=0.2), "where the curve crosses the edge"
        assert not arrow.get_clip_on()
        less = record()
        less["past"] |= {"power": [0.1, *[0.01] * 7]}
        figure = rollouts.error_by_step({"A": record(), "B": less}, start=1)
        assert figure.axes[1].get_ylim()[0] < 0.01
        assert LEAVES not in [text.get_text() for text in figure.legends[0].get_texts()]

    def test_a_curve_that_ends_is_marked_too(self) -> None:
        ending = record()
        ending["past"] |= {"power": [0.1, 0.2, None, None, None, None, None, None]}
        figure = rollouts.error_by_step({"A": ending}, start=1)
        (cross,) = [line for line in figure.axes[1].lines if line.get_marker() == "x"]
        assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (2, 0.2)
        assert ENDS in [text.get_text() for text in figure.legends[0].get_texts()]

    def test_errors_that_run_away_do_not_flatten_the_others(self) -> None:
        far = record(rel_l2_per_step=[0.01, 1e3, 1e9, 1e9])
        errors, _ = rollouts.error_by_step({"A": record(), "B": far}, start=1).axes
        assert errors.get_ylim()[1] == 10
        assert len([line for line in errors.lines if len(line.get_xdata()) == 1]) == 1

    def test_truth_and_horizon_have_styles_of_their_own(self) -> None:
        figure = rollouts.error_by_step({"A": record(), "B": record(2.0)}, start=1)
        squares, legend = figure.axes[1], figure.legends[0]
        names = [text.get_text() for text in legend.get_texts()]
        assert names == ["A", "B", "truth", "end of the horizon"]
        truth, horizon = (legend.get_lines()[names.index(name)] for name in ("truth", "end of the horizon"))
        assert truth.get_linewidth() > 2 * horizon.get_linewidth()
        assert (truth.is_dashed(), horizon.is_dashed()) == (False, True)
        drawn = next(line for line in squares.lines if line.get_linewidth() == truth.get_linewidth())
        others = [line for line in squares.lines if line is not drawn and len(line.get_xdata()) > 2]
        assert all(drawn.get_zorder() < line.get_zorder() for line in others)
        assert all(drawn.get_linewidth() > 2 * line.get_linewidth() for line in others), "seen under any curve"

    @pytest.mark.parametrize(("vorticity", "name"), [(True, "Enstrophy mean(w²)/2"), (False, "Mean square mean(u²)/2")])
    def test_squares_are_called_what_they_are(self, vorticity: bool, name: str) -> None:
        found = record()
        if not vorticity:
            del found["spectra"]["energy"]
        assert rollouts.error_by_step({"A": found}, start=1).axes[1].get_title().startswith(name)

    def test_runs_on_other_data_have_truths_and_horizons_of_their_own(self) -> None:
        other = record(horizon=3)
        other["past"]["true_power"] = [0.2] * 5
        errors, squares = rollouts.error_by_step({"A": record(), "B": other, "C": record()}, 1).axes
        truths = [line.get_ydata() for line in squares.lines if line.get_linewidth() == drawing.TRUTH["linewidth"]]
        assert [list(truth) for truth in truths] == [[0.1] * 6, [0.2] * 5]
        ends = sorted(line.get_xdata()[0] for line in errors.lines if line.get_xdata()[0] == line.get_xdata()[-1])
        assert ends == [3.5, 4.5]

    def test_spectra_show_what_is_there_and_how_wrong(self) -> None:
        figure = rollouts.spectra({"FNO": record()})
        assert figure.axes[0].get_title().startswith("Energy")
        assert figure.axes[1].lines[0].get_ydata()[0] == pytest.approx(np.sqrt(0.1))
        assert figure.axes[0].get_xlabel() == "wavenumber |k|, waves per side"
        assert figure.axes[0].get_ylabel() == "energy in a shell"
        assert all(tick == round(tick) for axis in figure.axes for tick in axis.get_xticks()), "whole shells"
        only = record(spectra={"power": record()["spectra"]["power"]})
        assert rollouts.spectra({"FNO": only}).axes[0].get_title().startswith("Spectrum")

    def test_errors_of_shells_that_leave_the_picture_are_marked(self) -> None:
        far = record(1e4)
        figure = rollouts.spectra({"FNO": record(), "U-Net": far})
        errors = figure.axes[1]
        assert errors.get_ylim()[1] == 5.0
        (arrow,) = [line for line in errors.lines if len(line.get_xdata()) == 1]
        assert (arrow.get_xdata()[0], arrow.get_ydata()[0]) == (0, 5.0)
        assert LEAVES in [text.get_text() for text in figure.legends[0].get_texts()]
        near = rollouts.spectra({"FNO": record()}).legends[0]
        assert [text.get_text() for text in near.get_texts()] == ["FNO", "truth", "as wrong as predicting 0"]

    def test_a_shell_in_which_there_is_nothing_is_left_out(self) -> None:
        """The mean of vorticity has no velocity."""
        empty = record()
        for part in empty["spectra"]["energy"].values():
            part[0] = 0.0
        figure = rollouts.spectra({"FNO": empty})
        assert list(figure.axes[1].lines[0].get_xdata()) == [1, 2]
        assert not [line for line in figure.axes[0].lines if len(line.get_xdata()) == 1]

    def test_spectra_of_runs_on_other_data_have_a_truth_of_their_own(self) -> None:
        """Of fewer shells, a hundred times as much in each: as wrong relative to it."""
        other = record()
        for part in other["spectra"]["energy"].values():
            part[:] = [100 * value for value in part[:2]]
        sizes, errors = rollouts.spectra({"A": record(), "B": other, "C": record()}).axes
        truths = [line.get_ydata() for line in sizes.lines if line.get_linewidth() == drawing.TRUTH["linewidth"]]
        assert [len(truth) for truth in truths] == [3, 2]
        one, two = (line.get_ydata() for line in errors.lines[:2])
        np.testing.assert_allclose(two, one[:2])

    def test_frames(self) -> None:
        figure = rollouts.frames(TRUTH, {"A": 1.01 * TRUTH, "B": 2 * TRUTH}, 3, "vorticity")
        bars = [axis for axis in figure.axes if axis.get_label() == "<colorbar>"]
        axes = [axis for axis in figure.axes if axis not in bars]
        assert len(axes) == 5 * 5
        assert axes[0].get_title() == "t = 3"
        assert axes[-1].get_title() == "rel. L2 1.00"
        assert [bar.get_ylabel() for bar in bars] == ["vorticity", *(2 * ["vorticity", "prediction − truth"])]
        assert bars[0].get_ylim() == bars[3].get_ylim() == pytest.approx((TRUTH.min(), TRUTH.max()))
        assert bars[2].get_ylim() == bars[4].get_ylim(), "one scale for all models"
        assert bars[2].get_ylim()[1] == pytest.approx(np.percentile(np.abs(TRUTH), 99.5)), "as wide as the largest"
        assert axes[10].images[0].get_clim() == pytest.approx(bars[2].get_ylim())
        with pytest.raises(ShapeError, match=r"\(t, h, w\)"):
            rollouts.frames(TRUTH[0], {"A": TRUTH[0]}, start=3)

    def test_nothing_to_draw(self) -> None:
        for draw in (rollouts.spectra, lambda none: rollouts.error_by_step(none, 1)):
            with pytest.raises(HofnoError, match="at least one"):
                draw({})
