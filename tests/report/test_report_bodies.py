"""Bodies that move: each on its own nodes, the tool where it is at that time, colours that mean one thing."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from hofno.errors import HofnoError, ShapeError
from hofno.report.bodies import FRAME_PIXELS, Pressing, body_film, body_frames, pressing
from hofno.report.scenes import Motion

MOTION = Motion(
    positions=(0, 1),
    displacements=(2, 3),
    tool=0,
    tool_from_left=True,
    speed=3.0,
    interval=0.1,
    units=("mm", "ms"),
)


def block(frames: int = 4, columns: int = 9, rows: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """A block of 8 x 4, nodes from the right and from the top, that sinks by 0.3 in each frame; a slanted tool."""
    x, y = np.meshgrid(np.linspace(8, 0, columns), np.linspace(4, 0, rows), indexing="ij")
    moved = np.zeros((2, columns, rows, frames))
    moved[1] = -0.3 * (y / 4)[..., None] * np.arange(frames)
    targets = np.concatenate((np.stack((x, y))[..., None] + moved, moved))
    tool = np.broadcast_to(np.linspace(4, 6, columns)[None, :, None, None], (1, columns, rows, frames))
    return tool[None], targets[None]


def seen(scale: float = 1.1, **changes: Any) -> Pressing:
    x, y = block()
    return pressing(x, y, {"FNO": scale * y}, Motion(**{**vars(MOTION), **changes}))


def panels_of(figure: Figure) -> list[Any]:
    return [axis for axis in figure.axes if axis.get_label() != "<colorbar>"]


class TestPressing:
    def test_both_forms_of_a_sample_are_the_same_body(self) -> None:
        x, y = block()
        volume = pressing(x, y, {"a": y}, MOTION)
        frames = [np.moveaxis(part[0], -1, 0) for part in (x, y)]  # (t, c, I, J)
        by_time = pressing(*frames, {"a": frames[1]}, MOTION)
        np.testing.assert_array_equal(volume.truth.nodes, by_time.truth.nodes)
        np.testing.assert_array_equal(volume.truth.moved, by_time.truth.moved)
        np.testing.assert_array_equal(volume.tool, by_time.tool)

    def test_the_tool_runs_with_x_or_with_the_nodes(self) -> None:
        assert seen().tool[:, 1] == pytest.approx((0.0, 4.0))
        assert seen(tool_from_left=False).tool[:, 1] == pytest.approx((0.0, 6.0))
        assert (np.diff(seen().tool[0]) > 0).all()

    def test_limits_are_those_of_the_truth_and_of_most_errors(self) -> None:
        assert seen().limits == pytest.approx((0.0, 0.9))
        assert seen().error_limits == pytest.approx((0.0, 0.09))
        assert seen(1e6).error_limits == pytest.approx((0.0, 0.9)), "a prediction that runs away"
        assert seen(float("nan")).error_limits == (0.0, 1.0)
        both = pressing(*block(), {"U-Net": 1.001 * block()[1], "FNO": 1.1 * block()[1]}, MOTION)
        assert both.error_limits == pytest.approx((0.0, 0.09)), "one scale for all models"

    @pytest.mark.parametrize(
        ("cut", "words"),
        [
            (lambda x, y: (x[0, 0], y, y), "two or more frames"),
            (lambda x, y: (x[:, :, :5], y, y), "on the same nodes"),
            (lambda x, y: (x, y, y[:, :3]), "from 'a'"),
            (lambda x, y: (x[..., :1], y[..., :1], y), "two or more frames"),
        ],
    )
    def test_what_is_no_body(self, cut: Any, words: str) -> None:
        x, y, guess = cut(*block())
        with pytest.raises(ShapeError, match=words):
            pressing(x, y, {"a": guess}, MOTION)

    def test_nothing_to_draw(self) -> None:
        with pytest.raises(HofnoError, match="at least one prediction"):
            pressing(*block(), {}, MOTION)


class TestFrames:
    def test_rows_columns_and_what_they_say(self) -> None:
        x, y = block()
        figure = body_frames(pressing(x, y, {"FNO": y, "HO-FNO order 2": 1.1 * y}, MOTION))
        axes = panels_of(figure)
        assert len(axes) == 5 * 3
        assert [axis.get_title() for axis in axes[:3]] == ["t = 0.1 ms", "t = 0.2 ms", "t = 0.3 ms"]
        assert axes[6].get_title() == "rms 0 mm"
        off = 0.1 * np.sqrt(np.mean(y[0, 3, ..., 3] ** 2))
        assert axes[14].get_title() == f"rms {off:.3g} mm"
        assert [axis.get_ylabel() for axis in axes[::3][:3]] == ["truth", "FNO", "error"]
        bars = [axis for axis in figure.axes if axis.get_label() == "<colorbar>"]
        assert [bar.get_ylabel() for bar in bars] == ["|u| (mm)", *(2 * ["|u| (mm)", "|û − u| (mm)"])]
        assert [bar.get_ylim()[1] for bar in bars] == pytest.approx([0.9, 0.9, 0.09, 0.9, 0.09])
        assert "displacement |u| up to 0.900 mm" in figure.get_label()
        assert "errors |û − u| up to 0.0900 mm. Axes: x and y in mm." in figure.get_label()
        assert [axis.get_xlabel() for axis in axes[::3]] == [*(4 * [""]), "x (mm)"]
        outlines = [[line for line in axis.lines if line.get_linestyle() == "--"] for axis in axes[::3]]
        assert [len(lines) for lines in outlines] == [0, 1, 0, 1, 0], "the true body round each that was predicted"
        for (line,) in outlines[1::2]:
            around = np.asarray(line.get_xydata())
            assert around[:, 0].max() == pytest.approx(8.0)
            assert around[:, 1].max() == pytest.approx(4 - 0.3)
        figure.savefig(io.BytesIO(), format="png", dpi=40)

    def test_the_tool_comes_down(self) -> None:
        axes = panels_of(body_frames(seen()))
        heights = [axis.lines[0].get_ydata()[1] for axis in axes[:3]]
        assert heights == pytest.approx([4 - 0.3 * frame for frame in (1, 2, 3)])

    def test_all_panels_share_one_window(self) -> None:
        axes = panels_of(body_frames(seen(1.5)))[:9]
        assert len({(axis.get_xlim(), axis.get_ylim()) for axis in axes}) == 1

    def test_a_prediction_that_is_not_finite_still_draws(self) -> None:
        body_frames(seen(float("nan"))).savefig(io.BytesIO(), format="png", dpi=40)


class TestFilm:
    def test_every_frame_has_its_place_in_the_strip(self) -> None:
        film = body_film(seen())
        assert [strip.title for strip in film.strips] == ["Truth", "FNO", "Error of FNO"]
        assert film.labels == ("t = 0 ms", "t = 0.1 ms", "t = 0.2 ms", "t = 0.3 ms")
        picture = imread(io.BytesIO(film.strips[0].picture))[..., :3]
        assert picture.shape[1] == 4 * FRAME_PIXELS
        assert picture.shape[1] / 4 / picture.shape[0] == pytest.approx(film.aspect, rel=0.01)
        middle = picture[picture.shape[0] // 2]
        colours = [middle[FRAME_PIXELS // 2 + frame * FRAME_PIXELS] for frame in range(4)]
        assert all(np.abs(a - b).max() > 0.02 for a, b in pairwise(colours)), "it moves"

    def test_what_its_colours_mean(self) -> None:
        film = body_film(seen())
        assert film.limits == (
            "Colours: displacement |u| in mm from 0 to 0.900 in truth and predictions. Errors from 0 to 0.0900. "
            "What lies beyond has the last colour."
        )
