"""Fields are painted where their values lie: colours at the nodes, nothing in a foil or a void, outlines around it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure

from hofno.errors import HofnoError
from hofno.problems.airfoil_mesh import c_grid
from hofno.problems.registry import PROBLEMS, problem
from hofno.report import figures
from hofno.report.planes import Cloud, Raster, Sheet
from hofno.report.scenes import Coefficient, Scene, scene_of
from hofno.report.walls import along_wall

MESH = Scene(targets=("speed",), nodes=(0, 1), lengths="mm")


def bent(columns: int = 21, rows: int = 9) -> np.ndarray:
    """A quarter of a ring, (2, I, J)."""
    angle, radius = np.meshgrid(np.linspace(0, np.pi / 2, columns), np.linspace(1, 2, rows), indexing="ij")
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)))


def sheet_with_void(count: int = 1500) -> np.ndarray:
    """Even points of the unit square but for a disc of radius 0.3 about its centre."""
    side = np.linspace(0.0, 1.0, round(count**0.5))
    places = np.stack(np.meshgrid(side, side)).reshape(2, -1)
    places = places + np.random.default_rng(0).uniform(-0.004, 0.004, places.shape)
    return places[:, np.hypot(*(places - 0.5)) > 0.3]


def colours_at(axis: Any, places: np.ndarray) -> np.ndarray:
    """Colours (n, 3) of the rendered picture at places (n, 2) of an axis."""
    canvas = FigureCanvasAgg(axis.figure)
    canvas.draw()
    picture = np.asarray(canvas.buffer_rgba())
    columns, rows = np.round(axis.transData.transform(places)).astype(int).T
    return picture[len(picture) - 1 - rows, columns, :3] / 255


def panels_of(figure: Figure) -> list[Any]:
    return [axis for axis in figure.axes if axis.get_visible() and axis.get_title()]


def bars_of(figure: Figure) -> list[Any]:
    return [axis for axis in figure.axes if axis.get_label() == "<colorbar>"]


class TestMesh:
    def test_values_are_where_their_nodes_are(self) -> None:
        figure = Figure(figsize=(5, 5), dpi=120)
        nodes = bent()
        field = np.add.outer(np.arange(21.0), np.arange(9.0))
        axis = figure.add_axes((0, 0, 1, 1))
        Sheet(nodes).paint(axis, field, "viridis", (0.0, 28.0))
        inside = nodes[:, 2:-2, 2:-2].reshape(2, -1).T
        found = colours_at(axis, inside)
        expected = colormaps["viridis"](field[2:-2, 2:-2].ravel() / 28)[:, :3]
        np.testing.assert_allclose(found, expected, atol=0.04)
        np.testing.assert_allclose(colours_at(axis, np.array([[0.3, 0.3], [1.9, 1.9]])), 1.0)

    def test_the_figure_has_the_mesh_and_no_images_of_coordinates(self) -> None:
        nodes = bent()[None]
        y = 1 + nodes[:, :1]
        figure = figures.fields(nodes, y, {"FNO": 1.1 * y, "HO-FNO order 2": y}, scene=MESH)
        shown = panels_of(figure)
        titles = [axis.get_title() for axis in shown]
        assert titles[:4] == ["mesh of 21 x 9 nodes", "truth", "FNO", "HO-FNO order 2"]
        assert titles[4] == "error, rel. L2 0.100"
        assert not any(axis.images for axis in shown)
        assert all(axis.get_aspect() == 1.0 for axis in shown)
        assert shown[1].get_xlabel() == "x (mm)"
        names = [bar.get_ylabel() or bar.get_xlabel() for bar in bars_of(figure)]
        assert names == ["speed", "speed", "speed", "prediction − truth", "prediction − truth"]
        truth, prediction, *_ = (bar.get_ylim() for bar in bars_of(figure))
        assert truth == prediction == pytest.approx((y.min(), y.max()))
        assert "truth (speed), colours from" in figure.get_label()

    def test_a_window_sets_what_is_seen_and_the_limits_of_colours(self) -> None:
        nodes = bent()[None]
        y = np.where(nodes[:, :1] > 1.2, 50.0, nodes[:, :1])
        scene = Scene(nodes=(0, 1), window=(0.0, 1.0, 0.0, 2.0))
        figure = figures.fields(nodes, y, {"FNO": y}, scene=scene)
        assert panels_of(figure)[1].get_xlim() == (0.0, 1.0)
        assert bars_of(figure)[0].get_ylim()[1] < 1.0 + 1e-9

    def test_other_inputs_are_drawn_on_the_mesh_too(self) -> None:
        nodes = bent()[None]
        x = np.concatenate((nodes, 3 * nodes[:, :1]), 1)
        figure = figures.fields(x, nodes[:, :1], {"a": nodes[:, :1]}, scene=MESH)
        assert [axis.get_title() for axis in panels_of(figure)][:3] == ["mesh of 21 x 9 nodes", "input", "truth"]

    @pytest.mark.parametrize(("value", "lines"), [(1.5, 1), (99.0, 0)])
    def test_a_level_is_a_line_where_it_is_crossed(self, value: float, lines: int) -> None:
        nodes = bent()[None]
        scene = Scene(nodes=(0, 1), level=(value, "sonic"))
        figure = figures.fields(nodes, nodes[:, :1] + 1, {"a": nodes[:, :1] * np.nan}, scene=scene)
        truth, broken = (
            [part for part in axis.collections if isinstance(part, QuadContourSet) and not part.filled]
            for axis in panels_of(figure)[1:3]
        )
        assert (len(truth), len(broken)) == (lines, 0)
        for part in truth:
            np.testing.assert_allclose(part.get_paths()[0].vertices[:, 0], value - 1)
        figure.savefig(io.BytesIO(), format="png", dpi=40)

    def test_a_level_is_one_of_the_first_target_alone(self) -> None:
        nodes = bent()[None]
        y = nodes[:, [0, 0]] + 1
        scene = Scene(targets=("Mach", "pressure"), nodes=(0, 1), level=(1.5, "sonic"))
        panels = panels_of(figures.fields(nodes, y, {"a": y}, scene=scene))
        drawn = [
            axis.get_title()
            for axis in panels
            if any(isinstance(part, QuadContourSet) and not part.filled for part in axis.collections)
        ]
        assert drawn == ["truth: Mach", "a: Mach"]

    def test_the_outline_of_a_c_grid_is_the_foil_without_its_wake(self) -> None:
        nodes = c_grid(torch.zeros(1, 8), 10, 24, 10)[0].numpy()
        sheet = Sheet(nodes)
        near = sheet.rim()[np.hypot(*sheet.rim().mean(1).T) < 3]
        assert len(near) == 24
        assert near[..., 0].max() == pytest.approx(1.0)
        assert sheet.wall().sum() == 25
        np.testing.assert_allclose(nodes[0, sheet.wall(), 0][[0, 12, 24]], [1.0, 0.0, 1.0], atol=1e-12)

    @pytest.mark.parametrize("broken", [False, True])
    def test_a_mesh_that_lies_on_itself_is_painted(self, broken: bool) -> None:
        angle, height = np.meshgrid(np.linspace(0, 2 * np.pi, 41), np.linspace(-1, 1, 21), indexing="ij")
        nodes, field = np.stack((np.cos(angle), height)), height**2  # a tube, its far side behind its near one
        sheet, axis = Sheet(nodes), Figure().add_subplot()
        assert sheet.folded
        assert not Sheet(bent()).folded
        assert not Sheet(c_grid(torch.zeros(1, 8, dtype=torch.float64))[0].numpy()).folded
        field = np.where(np.abs(angle - np.pi) > 3, np.nan, field) if broken else field
        sheet.paint(axis, field, "viridis", (0.0, 1.0))
        places = np.array([[0.3, 0.5], [-0.4, -0.75], [0.0, 0.1]])
        expected = colormaps["viridis"](places[:, 1] ** 2)[:, :3]
        np.testing.assert_allclose(colours_at(axis, places), expected, atol=0.08)

    def test_few_lines_of_a_fine_mesh_are_drawn(self) -> None:
        fine = Sheet(bent(401, 5))
        assert fine.steps[0] > 4
        assert fine.steps[1] == 1
        axis = Figure().add_subplot()
        fine.sketch(axis)
        lines = axis.collections[0]
        assert isinstance(lines, LineCollection)
        assert len(lines.get_segments()) < 120
        assert fine.title.endswith("(some of its lines)")


class TestCloud:
    def test_a_void_stays_empty_and_is_outlined(self) -> None:
        places = sheet_with_void()
        figure = Figure(figsize=(5, 5), dpi=120)
        axis = figure.add_axes((0, 0, 1, 1))
        cloud = Cloud(places)
        cloud.paint(axis, places[0], "viridis", (0.0, 1.0))
        angle = np.linspace(0, 2 * np.pi, 12)
        disc = 0.5 + 0.25 * np.stack((np.cos(angle), np.sin(angle)), 1)
        np.testing.assert_allclose(colours_at(axis, disc), 1.0)
        around = 0.5 + 0.36 * np.stack((np.cos(angle), np.sin(angle)), 1)
        np.testing.assert_allclose(colours_at(axis, around), colormaps["viridis"](around[:, 0])[:, :3], atol=0.03)
        distance = np.hypot(*(cloud.rim().mean(1) - 0.5).T)
        assert ((distance < 0.35) | (distance > 0.45)).all(), "edges of the void and of the square, none between"

    def test_points_without_a_void_are_covered(self) -> None:
        places = np.random.default_rng(1).random((2, 600))
        cloud = Cloud(places)
        assert cloud.triangles is not None
        middles = places[:, cloud.triangles.triangles].mean(2)
        inside = (np.abs(middles - 0.5) < 0.42).all(0)
        assert cloud.triangles.mask is not None
        assert not cloud.triangles.mask[inside].any()

    def test_the_figure_shows_points_truth_prediction_and_error(self) -> None:
        places = sheet_with_void(400)[None]
        y = 1 + places[:, :1]
        figure = figures.fields(y[:, :0], y, {"Geo-FNO": 1.1 * y}, places=places, scene=Scene(targets=("stress",)))
        assert [axis.get_title() for axis in panels_of(figure)] == [
            *(f"{places.shape[2]} points", "truth", "Geo-FNO", "error, rel. L2 0.100"),
        ]
        truth, prediction, error = (bar.get_ylim() for bar in bars_of(figure))
        assert truth == prediction == pytest.approx((y.min(), y.max()))
        assert error == pytest.approx((-0.1 * y.max(), 0.1 * y.max()))

    def test_the_panel_of_the_points_is_in_line_with_those_below(self) -> None:
        places = sheet_with_void(400)[None]
        y = 1 + places[:, :1]
        figure = figures.fields(y, y, {"Geo-FNO": 1.1 * y}, places=places)
        figure.draw_without_rendering()
        points, _, _, prediction, _ = (axis.get_position().x0 for axis in panels_of(figure))
        assert points == pytest.approx(prediction, abs=0.002)

    @pytest.mark.parametrize("places", [np.linspace(0, 1, 20) * np.ones((2, 1)), np.ones((2, 1))])
    def test_points_on_a_line_are_dots(self, places: np.ndarray) -> None:
        axis = Figure().add_subplot()
        Cloud(places).paint(axis, places[0], "viridis", (0.0, 1.0))
        np.testing.assert_allclose(np.asarray(axis.collections[0].get_offsets()), places.T)

    def test_a_long_cloud_has_scales_of_its_own(self) -> None:
        places = sheet_with_void() * np.array([[1e6], [1e-3]])
        cloud, axis = Cloud(places), Figure().add_subplot()
        cloud.sketch(axis)
        assert (cloud.aspect, axis.get_aspect(), axis.get_box_aspect()) == (1.0, "auto", 1.0)
        np.testing.assert_allclose(axis.get_ylim(), [-2e-5, 1.02e-3], atol=1e-5)
        assert len(cloud.rim()) == len(Cloud(sheet_with_void()).rim()), "the void is seen"
        short = Cloud(sheet_with_void() * np.array([[10.0], [1.0]]))
        short.sketch(axis)
        assert axis.get_aspect() == 1.0
        assert short.aspect > 7

    def test_numbers_of_points_in_titles(self) -> None:
        assert [Cloud(np.ones((2, count))).title for count in (1, 2)] == ["1 point", "2 points"]

    def test_dots_at_the_ends_are_whole(self) -> None:
        y = np.random.default_rng(0).random((1, 1, 30))
        figure = figures.fields(y, y, {"a": y}, places=np.random.default_rng(1).random((1, 3, 30)))
        left, right = panels_of(figure)[0].get_xlim()
        assert left < -0.2
        assert right > 29.2

    def test_a_broken_prediction_still_draws(self) -> None:
        places = sheet_with_void(200)[None]
        y = places[:, :1]
        figure = figures.fields(y[:, :0], y, {"a": y * np.nan}, places=places)
        figure.savefig(io.BytesIO(), format="png", dpi=40)


class TestScenes:
    @pytest.mark.parametrize("name", sorted(set(PROBLEMS) - {"arrays", "trajectories"}))
    def test_every_problem_has_a_scene_that_fits_its_channels(self, name: str) -> None:
        made = problem(name, {})
        scene = scene_of(made)
        inputs, targets = made.channels
        assert len(scene.targets) <= targets
        assert len(scene.inputs) <= inputs
        if scene.nodes is not None:
            assert max(scene.nodes) < inputs
            assert len(made.grid_geometry.shape) == 2
        if scene.motion is not None:
            assert max(*scene.motion.positions, *scene.motion.displacements) < targets
            assert scene.motion.tool < inputs

    def test_a_mesh_without_an_entry_has_its_coordinates_last(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hofno.report.scenes.SCENES", {})
        assert scene_of(problem("pipe", {})).nodes == (0, 1)
        assert scene_of(problem("darcy", {})).nodes is None

    @pytest.mark.parametrize(("coordinates", "nodes"), [(1, None), (2, (1, 2)), (3, None)])
    def test_own_meshes_are_drawn_where_they_lie_if_that_is_in_the_plane(
        self, tmp_path: Path, coordinates: int, nodes: tuple[int, int] | None
    ) -> None:
        shapes = {"x": (5, 1, 6, 7), "y": (5, 1, 6, 7), "coords": (5, coordinates, 6, 7)}
        for name, shape in shapes.items():
            np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).random(shape))
        files = {name: str(tmp_path / f"{name}.npy") for name in shapes}
        assert scene_of(problem("arrays", files)).nodes == nodes

    def test_the_tool_runs_with_x_unless_the_samples_are_aligned(self) -> None:
        for aligned in (False, True):
            motion = scene_of(problem("plasticity", {"aligned": aligned})).motion
            assert motion is not None
            assert motion.tool_from_left is not aligned


def test_inputs_that_are_the_same_everywhere_are_numbers_above_the_figure() -> None:
    """On a mesh and on a grid; the others are drawn, and keep their numbers."""
    nodes = bent()[None]
    flat = np.ones((1, 1, *nodes.shape[2:]))
    x, y = np.concatenate((0.7 * flat, -1.5 * flat, nodes), 1), nodes[:, :1]
    scene = Scene(inputs=("Mach number", "angle (°)", "x", "y"), nodes=(2, 3))
    figure = figures.fields(x, y, {"FNO": y}, scene=scene)
    assert [axis.get_title() for axis in panels_of(figure)][:2] == ["mesh of 21 x 9 nodes", "truth"]
    assert figure.get_suptitle() == "Mach number: 0.700, angle (°): -1.50"
    assert "One sample. Mach number: 0.700, angle (°): -1.50. Panels" in str(figure.get_label())
    unnamed = figures.fields(np.concatenate((flat, nodes[:, :1]), 1), y, {"FNO": y})
    assert [axis.get_title() for axis in panels_of(unnamed)][:2] == ["input 2", "truth"]
    assert unnamed.get_suptitle() == "input 1: 1.00"


class TestWall:
    def test_values_along_the_foil(self) -> None:
        nodes = c_grid(torch.zeros(1, 8), 10, 24, 10)[0].numpy()
        y = nodes[:1] + 3
        scene = Scene(targets=("Mach",), nodes=(0, 1), level=(1.0, "sonic"), wall="foil", lengths="chords")
        figure = along_wall(nodes, y, {"FNO": 2 * y}, scene)
        truth, prediction, sonic = figure.axes[0].lines
        drawn = np.asarray(truth.get_xydata())
        assert len(drawn) == 25
        np.testing.assert_allclose(drawn[:, 1], drawn[:, 0] + 3)
        np.testing.assert_allclose(prediction.get_ydata(), 2 * drawn[:, 1])
        assert sonic.get_ydata()[0] == 1.0
        assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("x (chords)", "Mach")

    def test_sides_are_named_and_coefficients_grow_downwards(self) -> None:
        nodes = c_grid(torch.zeros(1, 8), 10, 24, 10)[0].numpy()
        pressure = 1 - np.sign(nodes[1:]) * np.sin(np.pi * nodes[:1].clip(0, 1))  # low above the foil, high below
        scene = Scene(
            targets=("Mach", "p"),
            nodes=(0, 1),
            wall="foil",
            coefficients={1: Coefficient("cp", 1.0, 0.5, downwards=True)},
        )
        y = np.concatenate((2 - pressure, pressure))
        mach, coefficient = along_wall(nodes, y, {"FNO": 1.1 * y}, scene).axes
        np.testing.assert_allclose(coefficient.lines[0].get_ydata(), (1 - np.asarray(mach.lines[0].get_ydata())) / 0.5)
        assert (coefficient.get_ylabel(), coefficient.get_title()) == ("cp", "Cp along the foil")
        assert (mach.yaxis_inverted(), coefficient.yaxis_inverted()) == (False, True)
        for axis in (mach, coefficient):
            upper, lower = axis.texts
            assert (upper.get_text(), lower.get_text()) == ("upper side", "lower side")
            assert (upper.get_va(), lower.get_va()) == ("bottom", "top"), "the upper side is drawn above the other"
        assert mach.texts[0].xy[1] > 1.5 > mach.texts[1].xy[1]  # pyright: ignore[reportAttributeAccessIssue]

    def test_sides_that_are_one_to_the_eye_have_no_names(self) -> None:
        nodes = c_grid(torch.zeros(1, 8), 10, 24, 10)[0].numpy()
        scene = Scene(targets=("Mach",), nodes=(0, 1), wall="foil")
        for gap, named in ((0.01, 0), (0.1, 2)):
            y = nodes[:1] + gap * np.sign(nodes[1:]) * np.sin(np.pi * nodes[:1].clip(0, 1))
            assert len(along_wall(nodes, y, {"FNO": y}, scene).axes[0].texts) == named

    def test_a_coefficient_in_a_stream_whose_speed_is_an_input(self) -> None:
        """(p - 1) / (0.7 M^2), by the Mach number of the sample."""
        made = problem("airfoil", {"coarsen": 10, "mach_range": 0.1, "incidence_range": 2.0, "pressure": True})
        nodes = c_grid(torch.zeros(1, 8), 5, 12, 5)[0].numpy()
        x = np.concatenate((np.full((1, 23, 6), 0.7), np.full((1, 23, 6), 1.5), nodes))
        y = np.stack((nodes[0], 1 + nodes[0]))
        coefficient = along_wall(x, y, {"FNO": y}, scene_of(made)).axes[1]
        drawn = np.asarray(coefficient.lines[0].get_xydata())
        np.testing.assert_allclose(drawn[:, 1], drawn[:, 0] / (0.7 * 0.7**2))
        assert coefficient.get_ylabel() == "pressure coefficient"

    def test_it_needs_a_mesh(self) -> None:
        with pytest.raises(HofnoError, match="nodes among the inputs"):
            along_wall(np.zeros((2, 4, 4)), np.zeros((1, 4, 4)), {"a": np.zeros((1, 4, 4))}, Scene())


def test_long_grids_are_squeezed_and_others_are_not() -> None:
    assert Raster((64, 64)).aspect == 1.0
    assert Raster((90, 60)).aspect == 1.5
    assert Raster((200, 20)).aspect == 1.0
