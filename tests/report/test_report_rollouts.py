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
from hofno.report import Page, rollouts
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

    def test_errors_share_their_limits_and_a_runaway_does_not_set_them(self) -> None:
        far = TRUTH.copy()
        far[-1] = np.nan
        film = make_film(TRUTH, {"A": TRUTH + 0.1, "B": far + 1e9}, LABELS)
        assert film.errors.high == -film.errors.low == pytest.approx(TRUTH.max() - TRUTH.min())
        near = make_film(TRUTH, {"A": TRUTH + 0.1, "B": TRUTH - 0.2}, LABELS)
        assert near.errors.high == pytest.approx(0.2)
        assert make_film(TRUTH, {"A": TRUTH}, LABELS).errors.high > 0
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

    def test_spectra_show_what_is_there_and_how_wrong(self) -> None:
        figure = rollouts.spectra({"FNO": record()})
        assert figure.axes[0].get_title().startswith("Energy")
        assert figure.axes[1].lines[0].get_ydata()[0] == pytest.approx(np.sqrt(0.1))
        only = record(spectra={"power": record()["spectra"]["power"]})
        assert rollouts.spectra({"FNO": only}).axes[0].get_title().startswith("Power")

    def test_frames(self) -> None:
        figure = rollouts.frames(TRUTH, {"A": TRUTH, "B": 2 * TRUTH}, start=3)
        assert len(figure.axes) == 5 * 5
        assert figure.axes[0].get_title() == "t = 3"
        assert figure.axes[-1].get_title() == "rel. L2 1.00"
        with pytest.raises(ShapeError, match=r"\(t, h, w\)"):
            rollouts.frames(TRUTH[0], {"A": TRUTH[0]}, start=3)

    def test_nothing_to_draw(self) -> None:
        for draw in (rollouts.spectra, lambda none: rollouts.error_by_step(none, 1)):
            with pytest.raises(HofnoError, match="at least one"):
                draw({})
