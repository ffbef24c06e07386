"""Foils and dies of one's own: inputs as the problems make them, from designs, coordinates and heights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from few_frames import few_frames

from hofno import storage
from hofno.errors import DataError, SpecError
from hofno.problems import airfoil_flows
from hofno.problems.airfoil import Airfoil
from hofno.problems.airfoil_flows import WindTunnel
from hofno.problems.airfoil_mesh import airfoil, c_grid
from hofno.problems.dies import KNOTS
from hofno.problems.plasticity import Plasticity
from hofno.problems.registry import problem
from hofno.problems.shapes import die_inputs, die_targets, foil_inputs, foil_targets
from hofno.solvers import euler_native
from hofno.solvers.euler import Euler
from hofno.solvers.euler_steady import Steady
from hofno.solvers.plasticity import Blocks

STREAMS = Airfoil(coarsen=5, mach=0.75, mach_range=0.1, incidence_range=3.0)
FOIL = airfoil(torch.zeros(1, 8), 40)[0].numpy().T


def designs(count: int) -> np.ndarray:
    found = np.random.default_rng(0).uniform(-0.05, 0.05, (count, 8))
    found[:, 0] = 0
    return found


def never(*_: Any) -> None:
    raise AssertionError("solved")


class TestFoils:
    def test_designs_are_the_inputs_that_the_problem_generates(self) -> None:
        made = Airfoil(coarsen=10, mach=0.5, mach_range=0.1, incidence_range=2.0, pressure=True)
        flows = made.flows("train", 2, "cpu")
        x = foil_inputs(made, flows.design, *flows.streams.T)
        assert (x.shape, x.dtype) == ((2, *made.channels[:1], *made.grid_geometry.shape), np.float32)
        np.testing.assert_array_equal(x[:, 2:], flows.nodes)
        np.testing.assert_array_equal(x[:, :2, 3, 4], flows.streams.astype(np.float32))
        assert not np.ptp(x[:, :2], (2, 3)).any()

    def test_coordinates_give_the_mesh_of_their_design(self) -> None:
        """At other places than those of the mesh, more of them nearer: 34 points to 1e-4 of the chord, 118 to 1e-5."""
        wanted = foil_inputs(STREAMS, designs(3), mach=0.8)
        for cells, tolerance in ((34, 1e-4), (118, 1e-5), (120, 1e-7)):
            outlines = [outline.T for outline in airfoil(torch.from_numpy(designs(3)), cells).numpy()]
            for given in (outlines, np.stack(outlines)):
                np.testing.assert_allclose(foil_inputs(STREAMS, given, mach=0.8), wanted, rtol=0, atol=tolerance)

    def test_outlines_of_different_lengths(self) -> None:
        finer = airfoil(torch.zeros(1, 8), 60)[0].numpy().T
        both = foil_inputs(STREAMS, [FOIL, finer], mach=[0.7, 0.8])
        np.testing.assert_array_equal(both[:1], foil_inputs(STREAMS, FOIL, mach=0.7))
        np.testing.assert_array_equal(both[1:], foil_inputs(STREAMS, (finer,), mach=0.8))

    def test_an_open_trailing_edge_is_closed(self) -> None:
        shut = foil_inputs(STREAMS, FOIL)
        opened = FOIL + np.stack((0 * FOIL[:, 0], np.sign(np.arange(41)[::-1] - 20) * 0.005 * FOIL[:, 0]), 1)
        np.testing.assert_allclose(foil_inputs(STREAMS, opened), shut, rtol=0, atol=1e-6)

    def test_the_other_way_round(self) -> None:
        np.testing.assert_allclose(foil_inputs(STREAMS, FOIL[::-1]), foil_inputs(STREAMS, FOIL), rtol=0, atol=1e-7)

    def test_a_chord_that_is_nearly_1_is_scaled_as_a_whole(self) -> None:
        found = foil_inputs(STREAMS, FOIL * 1.008 + [0.001, 0])
        np.testing.assert_allclose(found, foil_inputs(STREAMS, FOIL), rtol=0, atol=1e-6)

    @pytest.mark.parametrize("points", [FOIL, airfoil(torch.zeros(1, 8), 400)[0].numpy().T])
    def test_points_as_files_have_them(self, points: np.ndarray) -> None:
        """Repeated, rounded so that neighbours have the same x, the nose twice, corners of a blunt trailing edge."""
        shut, nose = foil_inputs(STREAMS, points), len(points) // 2
        repeated = np.repeat(points, 2, 0)
        np.testing.assert_allclose(foil_inputs(STREAMS, repeated), shut, rtol=0, atol=1e-7)
        rounded = np.round(points, 4)
        np.testing.assert_allclose(foil_inputs(STREAMS, rounded), shut, rtol=0, atol=5e-4)
        two = np.concatenate((points[:nose], [[0, 2e-4], [0, -2e-4]], points[nose + 1 :]))
        np.testing.assert_allclose(foil_inputs(STREAMS, two), shut, rtol=0, atol=1e-6)
        corners = points + np.stack((0 * points[:, 0], np.sign(nose - np.arange(len(points))) * 1e-3 * points[:, 0]), 1)
        closed = np.concatenate(([[1, 0.0]], corners, [[1, 0.0]]))
        np.testing.assert_allclose(foil_inputs(STREAMS, closed), foil_inputs(STREAMS, corners), rtol=0, atol=1e-7)

    def test_names_in_messages(self) -> None:
        with pytest.raises(DataError, match=r"^mine\.dat: expected designs"):
            foil_inputs(STREAMS, FOIL[:5], names=["mine.dat"])
        with pytest.warns(UserWarning, match="degrees of second is 9"):
            foil_inputs(STREAMS, [FOIL] * 2, degrees=[0, 9], names=["first", "second"])
        wavy = FOIL.copy()
        wavy[1:20, 1] += 0.3 * np.abs(np.sin(40 * wavy[1:20, 0]))
        with pytest.raises(DataError, match="the mesh around wavy folds"):
            foil_inputs(STREAMS, wavy, names=["wavy"])
        with pytest.raises(DataError, match=r"must be above 0; got -0\.7"):
            foil_inputs(STREAMS, FOIL, mach=-0.7)

    def test_streams_are_the_usual_ones_where_they_are_left_out(self) -> None:
        x = foil_inputs(STREAMS, FOIL, degrees=[-2.0])
        np.testing.assert_allclose(x[:, :2, 0, 0], [[0.75, -2.0]])
        still = foil_inputs(Airfoil(coarsen=5), np.zeros(8), mach=0.8)
        np.testing.assert_array_equal(still, c_grid(torch.zeros(1, 8), 10, 24, 10).float())

    @pytest.mark.parametrize(
        ("foils", "says"),
        [
            (2 * FOIL, "from x = 0 to x = 1, in chords; got 0 to 2"),
            (np.roll(FOIL, 20, 0), "x falling"),
            (FOIL[20:], "x falling"),
            (FOIL[2:], "x falling.* got x = 0.8983 at first, 0 at the nose, 1 in the end"),
            (FOIL[[*range(10), 8, *range(10, 41)]], "x = 0.5424 and then 0.5932, on the first side"),
            (FOIL[:5], r"at least 12; got \(5, 2\)"),
            (np.zeros((3, 7)), r"got \(3, 7\)"),
            ([], r"got \(0,\)"),
            (np.where(FOIL[3] == FOIL, np.nan, FOIL), "NaN or infinite"),
            (FOIL + np.linspace(0.02, -0.02, 41)[:, None] * (0, 1), "open by 0.02 chords.* got 0.04"),
        ],
    )
    def test_what_is_no_foil_is_refused(self, foils: Any, says: str) -> None:
        with pytest.raises(DataError, match=says):
            foil_inputs(STREAMS, foils)

    def test_which_foil_is_wrong_is_said(self) -> None:
        broken, crossed = FOIL.copy(), FOIL.copy()
        broken[3, 1] = np.nan
        crossed[12:17, 1] -= 0.2
        with pytest.raises(DataError, match=r"foil 1: points: 1 values are NaN"):
            foil_inputs(STREAMS, [FOIL, broken])
        with pytest.raises(DataError, match=r"foil 2: the sides of a foil cross or touch, at x = 0\."):
            foil_inputs(STREAMS, [FOIL, FOIL, crossed])
        with pytest.raises(DataError, match="foils must be numbers"):
            foil_inputs(STREAMS, [[["a", 1]] * 20])

    def test_meshes_that_fold_are_refused(self) -> None:
        wavy = FOIL.copy()
        wavy[1:20, 1] += 0.3 * np.abs(np.sin(40 * wavy[1:20, 0]))
        with pytest.raises(DataError, match="the mesh around foil 1 folds"):
            foil_inputs(STREAMS, [FOIL, wavy])

    @pytest.mark.parametrize(
        ("stream", "says"),
        [((0.9, 0), r"mach of foil 0 is 0.9, .* 0.75 \+- 0.1"), ((0.7, 9), "degrees of foil")],
    )
    def test_streams_that_no_operator_has_seen(self, stream: tuple[float, float], says: str) -> None:
        with pytest.warns(UserWarning, match=says):
            foil_inputs(STREAMS, FOIL, *stream)

    def test_devices_that_are_none(self) -> None:
        for device in ("gpu", "meta"):
            with pytest.raises(SpecError, match=f"device '{device}'"):
                foil_targets(STREAMS, FOIL, device=device)

    def test_conditions_that_are_no_inputs_are_refused(self) -> None:
        with pytest.raises(SpecError, match=r"mach is no input .* all have 0\.8; got 0\.7"):
            foil_inputs(Airfoil(coarsen=5), FOIL, mach=0.7)
        with pytest.raises(SpecError, match=r"degrees is no input.* incidence_range is above 0"):
            foil_inputs(Airfoil(coarsen=5, mach=0.7, mach_range=0.1), FOIL, degrees=1)
        with pytest.raises(DataError, match="one for each of 1 foils"):
            foil_inputs(STREAMS, FOIL, mach=[0.7, 0.8])

    def test_the_nose_is_round(self) -> None:
        """y goes with the root of x there, and is met between the points of a foil too."""
        x = np.linspace(1, 0, 15) ** 2
        y = 0.1 * np.sqrt(x) * (1 - x)
        found = foil_inputs(Airfoil(), np.stack((np.r_[x, x[-2::-1]], np.r_[y, -y[-2::-1]]), 1))[0]
        nodes = found[:, 50:171, 0]
        near = nodes[0] < 0.02
        exact = 0.1 * np.sqrt(nodes[0, near]) * (1 - nodes[0, near])
        np.testing.assert_allclose(np.abs(nodes[1, near]), exact, rtol=0, atol=4e-5)


class TestFlowsAroundThem:
    made = Airfoil(coarsen=10, mach=0.5, mach_range=0.1, incidence_range=2.0, pressure=True)

    def test_they_are_those_that_the_problem_generates(self) -> None:
        """Mach number and pressure; with compiled code the same bits, else to the tolerance of a flow."""
        flows = self.made.flows("train", 3, "cpu")
        found = foil_targets(self.made, flows.design, *flows.streams.T, device="cpu")
        exact = 0 if euler_native.STEPS.library() else 1e-4
        np.testing.assert_allclose(found, flows.fields[:, [4, 3]], rtol=0, atol=exact)
        assert found.dtype == np.float32

    def test_a_symmetric_foil_of_coordinates(self) -> None:
        x = 0.5 + 0.5 * np.cos(np.linspace(0, 2 * np.pi, 121))
        y = 0.6 * (0.2969 * x**0.5 - 0.126 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4)
        y[61:] *= -1
        level, raised = foil_targets(self.made, [np.stack((x, y), 1)] * 2, degrees=[0, 2])[:, 1]
        np.testing.assert_allclose(level, level[::-1], atol=1e-4)
        assert (raised[7:11, 0] < raised[15:11:-1, 0]).all()  # the pressure is lower above than below

    def test_what_does_not_converge_is_named_and_not_a_number(self, monkeypatch: pytest.MonkeyPatch) -> None:
        solve, told = airfoil_flows.solve_steady, list[int]()

        def second_fails(*given: Any, **options: Any) -> Steady:
            found = solve(*given, **options)
            converged, residual = found.converged.clone(), found.residual.clone()
            converged[-1], residual[-1] = False, 0.3
            return replace(found, converged=converged, residual=residual)

        monkeypatch.setattr(airfoil_flows, "solve_steady", second_fails)
        with pytest.warns(RuntimeWarning, match=r"1 of 2 flows did not .* in 150 steps and are NaN; .*: 1 \(3e-01\)"):
            found = foil_targets(self.made, designs(2), progress=lambda stage, done, total: told.append(done))
        assert np.isnan(found).all((1, 2, 3)).tolist() == [False, True]
        with pytest.warns(RuntimeWarning, match=r"residual reached: second \(3e-01\)"):
            foil_targets(self.made, designs(2), names=["first", "second"])
        assert np.isfinite(found[0]).all()
        assert told == sorted(told)
        assert told[-1] == 2

    def test_memory_that_runs_out_makes_smaller_groups(self, monkeypatch: pytest.MonkeyPatch) -> None:
        solve, sizes = airfoil_flows.solve_steady, list[int]()

        def greedy(flow: Euler, **options: Any) -> Steady:
            sizes.append(len(flow.nodes))
            if len(flow.nodes) > 1:
                raise torch.OutOfMemoryError
            return solve(flow, **options)

        monkeypatch.setattr(airfoil_flows, "solve_steady", greedy)
        wanted = foil_targets(self.made, designs(1), device="cpu")
        found = foil_targets(self.made, designs(3), device="cpu")
        np.testing.assert_allclose(found[:1], wanted, atol=1e-4)
        assert sizes == [1, 3, 1, 1, 1]

    def test_what_is_solved_is_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """By shape and stream, in any order, also after an interruption; another solver keeps its own."""
        wanted, solve, sizes = (
            foil_targets(self.made, designs(4), device="cpu"),
            airfoil_flows.solve_steady,
            list[int](),
        )

        def two_at_a_time(flow: Euler, **options: Any) -> Steady:
            sizes.append(len(flow.nodes))
            return solve(flow, **options)

        def stop(stage: str, done: int, total: int) -> None:
            if done >= 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(airfoil_flows, "solve_steady", two_at_a_time)
        monkeypatch.setattr(WindTunnel, "group", lambda *_: 2)
        with pytest.raises(KeyboardInterrupt):
            foil_targets(self.made, designs(4), device="cpu", store=tmp_path, progress=stop)
        found = foil_targets(self.made, designs(4)[::-1], device="cpu", store=tmp_path)
        np.testing.assert_allclose(found[::-1], wanted, rtol=0, atol=1e-4)
        assert sizes == [2, 2]
        foil_targets(self.made, designs(4), mach=0.55, store=tmp_path)
        foil_targets(Airfoil(**{**dict(self.made), "tolerance": 1e-3}), designs(1), store=tmp_path)
        assert sizes == [2, 2, 2, 2, 1]
        assert len(list(tmp_path.iterdir())) == 2


class TestDies:
    @pytest.mark.parametrize("aligned", [False, True])
    def test_dies_of_the_law_are_the_inputs_that_the_problem_generates(
        self, aligned: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wherever heights are given, dies touch the block; generated ones do so at one of more points."""
        few_frames(monkeypatch, 2)
        volume, frames = (Plasticity(coarsen=10, refine=1, form=form, aligned=aligned) for form in ("volume", "frames"))
        wanted = volume.simulate_samples([("train", 2), ("test", 0)])[0].die
        heights = [volume.die_heights("train", 2) + 3, volume.die_heights("test", 0) - 2]
        whole, by_time = (die_inputs(made, heights, KNOTS) for made in (volume, frames))
        np.testing.assert_allclose(whole[:, 0, :, 2, 7], wanted, rtol=0, atol=2e-3)
        assert (whole.shape, whole.dtype) == ((2, 1, 11, 4, 20), np.float32)
        np.testing.assert_array_equal(by_time[::20, 0], whole[:, 0, ..., 0])
        np.testing.assert_allclose(by_time[20:, 1, 3, 2], np.linspace(0, 1, 20), rtol=1e-6)

    @pytest.mark.parametrize("aligned", [False, True])
    def test_blocks_are_those_that_the_problem_generates(self, aligned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """To what the die is moved by: generated ones touch at a point given, others at one of 2001."""
        few_frames(monkeypatch, 4)
        made = Plasticity(coarsen=10, refine=1, aligned=aligned)
        wanted = made.simulate_samples([("train", 2), ("test", 0)])[0]
        heights, told = np.stack([made.die_heights("train", 2), made.die_heights("test", 0)]), list[int]()
        found = die_targets(made, heights + 2, KNOTS, progress=lambda stage, done, total: told.append(done))
        np.testing.assert_allclose(found, wanted.grid().y, rtol=0, atol=2e-3)
        assert np.abs(found[:, 2:, ..., -1]).max() > 0.3
        assert told[-1] == 2 * 4  # frames
        by_time = die_targets(Plasticity(coarsen=10, refine=1, form="frames"), heights, KNOTS)
        assert by_time.shape == (8, 4, 11, 4)
        np.testing.assert_array_equal(by_time[3], found[0, ..., 3])

    def test_a_die_at_other_places(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A parabola in the middle, which is its own spline: no node of the top is inside, and left and right alike."""
        few_frames(monkeypatch, 6)
        made, places = Plasticity(coarsen=5, refine=1), np.linspace(0, 50, 5)
        y = die_targets(made, 0.012 * (places - 25) ** 2)[0]
        top_x, top_y = y[0, :, 0, -1] + 49.65, y[1, :, 0, -1] + 0.1
        inside = top_y - (15 - 3 * 0.5 + 0.012 * (top_x - 25) ** 2)
        assert inside.max() == pytest.approx(0, abs=1e-4)
        np.testing.assert_allclose(y[3], y[3, ::-1], rtol=0, atol=1e-4)

    def test_a_full_disk_is_found_before_work(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(storage, "disk_has_room", lambda path, count: count == 0)
        for solve in (lambda: foil_targets(STREAMS, FOIL, store=tmp_path), lambda: self.solved(store=tmp_path)):
            with pytest.raises(DataError, match=r"own-\w+ needs .* free some space"):
                solve()
        assert not list(tmp_path.glob("*/part-*"))

    @staticmethod
    def solved(**options: Any) -> np.ndarray:
        return die_targets(Plasticity(coarsen=10, refine=1), [5, 4, 2, 4, 5.0], **options)

    def test_blocks_are_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        few_frames(monkeypatch, 3)
        made, heights = Plasticity(coarsen=10, refine=1), [[5, 4, 2, 4, 5.0], [5, 2, 4, 5, 6.0]]
        first = die_targets(made, heights, store=tmp_path)
        monkeypatch.setattr(Blocks, "advance", never)
        np.testing.assert_array_equal(die_targets(made, heights[::-1], store=tmp_path)[::-1], first)
        with pytest.raises(AssertionError, match="solved"):
            die_targets(made, heights, [0, 10, 20, 30, 50], store=tmp_path)

    def test_dies_that_are_too_sharp(self) -> None:
        """Between nodes 2.5 mm apart: no network sees them, and their blocks are not numbers."""
        made, places = Plasticity(coarsen=5, refine=1), np.linspace(0, 50, 101)
        pin, blunt = (7.6 - 7.6 * np.exp(-(((places - 23.75) / width) ** 2)) for width in (0.5, 6))
        with pytest.raises(DataError, match=r"lowest 6\.\d mm of die 1 lie between nodes, which are 2\.5 mm apart"):
            die_inputs(made, [blunt, pin])
        with pytest.warns(RuntimeWarning, match=r"1 of 2 blocks are NaN.* elements of 2\.5 mm; the first is 1,"):
            found = die_targets(made, [blunt, pin])
        assert np.isnan(found).all((1, 2, 3, 4)).tolist() == [False, True]
        assert np.isfinite(found[0]).all()

    def test_names_in_messages(self) -> None:
        made, places, names = Plasticity(coarsen=10, refine=1), np.linspace(0, 50, 101), ["blunt.txt", "pin.txt"]
        pin, blunt = (7.6 - 7.6 * np.exp(-(((places - 22.5) / width) ** 2)) for width in (0.5, 8))
        with pytest.raises(DataError, match=r"mm of pin\.txt lie between nodes"):
            die_inputs(made, [blunt, pin], names=names)
        with pytest.warns(RuntimeWarning, match=r"the first is pin\.txt, whose die went"):
            die_targets(made, [blunt, pin], device="cpu", names=names)
        with pytest.warns(UserWarning, match=r"the spline through the heights of wild\.txt, 0 to 7\.6 mm"):
            die_inputs(Plasticity(coarsen=10), [7.6, 7.6, 0, 7.6, 7.6], [0, 20, 25, 30, 50], names=["wild.txt"])

    def test_splines_far_beyond_their_heights(self) -> None:
        with pytest.warns(UserWarning, match=r"die 0, 0 to 7\.6 mm, reaches from .* to 37\.3 mm; give more heights"):
            die_inputs(Plasticity(coarsen=10), [7.6, 7.6, 0, 7.6, 7.6], [0, 20, 25, 30, 50])

    def test_heights_at_equal_distances(self) -> None:
        """A parabola is its own spline; it touches the block where it is lowest, and one die needs no axis."""
        made = Plasticity(coarsen=5)
        places = np.linspace(0, 50, 7)
        x = die_inputs(made, 0.01 * (places - 20) ** 2)
        np.testing.assert_allclose(x[0, 0, :, 2, 3], 14.9 + 0.01 * (np.linspace(0, 50, 21) - 20) ** 2, atol=1e-5)

    @pytest.mark.parametrize(
        ("heights", "places", "says"),
        [
            ([1, 2, 3], None, "4 or more places"),
            ([1, 2, np.nan, 3], None, "NaN or infinite"),
            ([1, 2, 3, 4], [0, 10, 20, 30], "increase from 0 to 50 mm; .*: 0, 10, 20, 30;"),
            ([1, 2, 3, 4], [0, 30, 20, 50], "increase"),
            ([1, 2, 3, 4], [0, 20, 50], "one for each height"),
        ],
    )
    def test_what_is_no_die_is_refused(self, heights: Any, places: Any, says: str) -> None:
        with pytest.raises(DataError, match=says):
            die_inputs(Plasticity(coarsen=5), heights, places)


@pytest.mark.parametrize(
    ("make", "name"),
    [(foil_inputs, "airfoil"), (foil_targets, "airfoil"), (die_inputs, "plasticity"), (die_targets, "plasticity")],
)
def test_another_problem_is_refused(make: Callable[..., np.ndarray], name: str) -> None:
    with pytest.raises(SpecError, match=f"inputs of the problem {name}; got Darcy"):
        make(problem("darcy", {}), np.zeros((1, 8)))
