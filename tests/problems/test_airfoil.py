"""Airfoil: the mesh number by number, the law of the designs, groups and failures, and the reader."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from hofno.errors import DataError, ShapeError, SolverError, SpecError
from hofno.problems import airfoil_files
from hofno.problems import airfoil_flows as module
from hofno.problems.airfoil import CARD, WORKED_EXAMPLE, Airfoil, Arrays
from hofno.problems.airfoil_files import PUBLISHED_SPLITS, published_splits, read_published
from hofno.problems.airfoil_flows import coefficients_of
from hofno.problems.airfoil_mesh import airfoil, c_grid, thickness
from hofno.problems.base import ignore_progress
from hofno.problems.kept_samples import KeptSamples
from hofno.solvers import euler_native
from hofno.solvers.euler import Euler, free_stream
from hofno.solvers.euler_steady import Steady, solve_steady


def small(**changes: Any) -> Airfoil:
    return Airfoil(**{"train": 2, "valid": 1, "test": 1, "coarsen": 10, "tolerance": 1e-2, **changes})


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of two flows."""
    monkeypatch.setitem(module._GROUP, "cpu", 2)
    monkeypatch.setattr(euler_native, "FLOWS_PER_THREAD", 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


class TestMesh:
    def test_the_published_numbers(self) -> None:
        """Every number of the specification, on the undeformed foil."""
        grid = c_grid(torch.zeros(1, 8))[0]
        assert grid.shape == (2, 221, 51)
        x, y = grid
        assert torch.equal(grid[:, :51, 0], grid[:, 170:, 0].flip(-1))  # the cut
        assert len({tuple(point) for point in grid.flatten(1).T.tolist()}) == 11220
        assert x[110, 0] == 0
        assert x[[50, 170], 0].tolist() == [1, 1]
        assert x[0, 0] == 40
        side = x[110:171, 0]
        assert side[1:4].tolist() == pytest.approx([0.25 / 59, 1 / 59, 2 / 59])
        assert side[2:].diff().tolist() == pytest.approx([1 / 59] * 58)
        assert float(y[80, 0]) > 0 > float(y[140, 0])
        wake = x[170:, 0].diff()
        assert float(wake[0]) == pytest.approx(0.01712, abs=1e-5)
        assert (wake[1:38] / wake[:37]).tolist() == pytest.approx([1.02] * 37)
        assert (wake[38:] / wake[37:-1]).tolist() == pytest.approx([1.656] * 12, abs=1e-3)
        out = torch.linalg.vector_norm(grid[:, 110].diff(dim=-1), dim=0)
        out = out / torch.linalg.vector_norm(grid[:, 110, -1] - grid[:, 110, 0])
        assert float(out[0]) == pytest.approx(1 / 60 / 40)
        assert (out[1:38] / out[:37]).tolist() == pytest.approx([1.02] * 37)
        assert (out[38:] / out[37:-1]).tolist() == pytest.approx([1.664] * 12, abs=1e-3)
        arc = grid[:, 50:171, -1] - torch.tensor([[1.0], [0.0]])
        assert torch.linalg.vector_norm(arc, dim=0).tolist() == pytest.approx([40] * 121)
        assert torch.atan2(arc[1, :60], arc[0, :60]).diff().tolist() == pytest.approx([math.pi / 120] * 59)
        assert y[:51, -1].tolist() == [40] * 51
        assert x[:51, -1].tolist() == pytest.approx(np.linspace(40, 1, 51).tolist())

    def test_naca_0012(self) -> None:
        x = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
        assert thickness(x).tolist() == pytest.approx([0, 0.0600, 0], abs=1e-4)

    def test_design_element_as_it_is_written(self) -> None:
        """Against one point and one basis function at a time."""
        design = torch.rand(3, 8, dtype=torch.float64) - 0.5
        plain, bent = airfoil(torch.zeros(1, 8))[0], airfoil(design)
        stations = [0.5 - 0.75, 0.5 - 0.25, 0.5 + 0.25, 0.5 + 0.75]
        order = [(0, -1), (1, -1), (2, -1), (3, -1), (3, 1), (2, 1), (1, 1), (0, 1)]
        for sample, point in ((0, 0), (1, 37), (2, 60), (0, 99), (1, 120)):
            x, y = plain[:, point].tolist()
            expected = y
            for d, (k, side) in zip(design[sample].tolist(), order, strict=True):
                cubic = math.prod((x - s) / (stations[k] - s) for m, s in enumerate(stations) if m != k)
                expected += d * cubic * (y + side * 0.1) / (side * 0.2)
            assert bent[sample, :, point].tolist() == pytest.approx([x, expected])

    def test_equal_displacements_shift_the_foil(self) -> None:
        moved = airfoil(torch.full((1, 8), 0.03)) - airfoil(torch.zeros(1, 8))
        assert moved[0, 1].tolist() == pytest.approx([0.03] * 121, rel=1e-6)
        assert float(moved[0, 0].abs().max()) == 0

    def test_other_cells_are_the_same_family(self) -> None:
        design = 0.1 * torch.rand(2, 8, dtype=torch.float64) - 0.05
        published = c_grid(design)
        for factor in (2, 5, 10):
            coarse = c_grid(design, 50 // factor, 120 // factor, 50 // factor)
            torch.testing.assert_close(coarse, published[:, :, ::factor, ::factor], rtol=0, atol=1e-12)
        fine = c_grid(design, 100, 240, 100)
        torch.testing.assert_close(fine[:, :, ::2, ::2], published, rtol=0, atol=1e-12)

    def test_no_design_folds_the_mesh(self) -> None:
        """Corners of the cube of designs: all cells keep their orientation (the solver refuses others)."""
        corners = torch.cartesian_prod(*[torch.tensor([-0.05, 0.05], dtype=torch.float64)] * 7)
        designs = torch.cat((torch.zeros(128, 1, dtype=torch.float64), corners), 1)
        Euler(c_grid(designs), free_stream(0.8), wake=50)

    def test_bad_arguments(self) -> None:
        with pytest.raises(ShapeError, match=r"designs of shape \(b, 8\)"):
            c_grid(torch.zeros(8))
        with pytest.raises(SpecError, match="even number on the foil"):
            c_grid(torch.zeros(1, 8), 4, 7, 4)


class TestDesigns:
    def test_law(self) -> None:
        """d_1 = 0, the others uniform on [-0.05, 0.05] and independent: 2000 draws."""
        d = Airfoil().designs("train", 0, 2000).numpy()
        assert (d[:, 0] == 0).all()
        rest = d[:, 1:]
        assert np.abs(rest).max() <= 0.05
        assert np.abs(rest.mean(0)).max() < 5 * 0.05 / math.sqrt(3 * 2000)
        assert rest.var(0) == pytest.approx([0.05**2 / 3] * 7, rel=0.1)
        assert np.abs(np.corrcoef(rest.T) - np.eye(7)).max() < 5 / math.sqrt(2000)

    def test_streams(self) -> None:
        made = Airfoil()
        first = made.designs("train", 0, 4)
        assert torch.equal(first[2:], made.designs("train", 2, 4))
        for other in (made.designs("test", 0, 4), Airfoil(seed=1).designs("train", 0, 4)):
            assert not torch.isclose(first[:, 1:], other[:, 1:]).any()
        torch.testing.assert_close(2 * Airfoil(amplitude=0.025).designs("train", 0, 4), first)

    def test_the_worked_example_is_one(self) -> None:
        assert len(WORKED_EXAMPLE) == 8
        assert WORKED_EXAMPLE[0] == 0
        assert max(map(abs, WORKED_EXAMPLE)) <= 0.05


@pytest.mark.usefixtures("pairs")
class TestFlows:
    def test_splits(self) -> None:
        seen: list[tuple[str, int, int]] = []
        made = small()
        splits = made.generate(lambda *news: seen.append(news))
        told = [done for _, done, _ in seen]
        assert {(stage, total) for stage, _, total in seen} == {("generate", 4)}
        assert told == sorted(told)
        assert {2, 3, 4} <= set(told)
        assert len(told) > 3  # also within groups
        assert {name: len(part.x) for name, part in splits.items()} == {"train": 2, "valid": 1, "test": 1}
        shape = made.grid_geometry.shape
        assert shape == (23, 6)
        for part in splits.values():
            assert part.x.shape[1:] == (2, *shape)
            assert part.y.shape[1:] == (1, *shape)
            assert part.x.dtype == part.y.dtype == np.float32
            assert part.y[:, 0, 11:12, -1] == pytest.approx(0.8, abs=0.02)  # far upstream
            assert np.array_equal(part.y[:, 0, :6, 0], part.y[:, 0, :-7:-1, 0])  # the cut
        assert made.memory_bytes() == sum(part.x.nbytes + part.y.nbytes for part in splits.values())
        assert made.channels == (2, 1)
        nodes = c_grid(made.designs("train", 0, 2), *made.cells).float().numpy()
        assert np.array_equal(splits["train"].x, nodes)

    def test_progress_within_a_group(self) -> None:
        """Flows at places 1 to 3, after 10 flows: parts of the way add up, and nothing is taken back."""
        seen: list[tuple[str, int, int]] = []
        watch = module.part_done(1e-6, 1, 3, 10, 100, lambda *news: seen.append(news))
        for step, relative in enumerate(
            ([9, 1, 1, 1], [0, 1e-3, 1e-3, 1.0], [0, 1e-3, 1, math.nan], [0, 0, 1e-7, 1e-6])
        ):
            watch(step, torch.tensor(relative, dtype=torch.float64))
        assert seen == [("generate", done, 100) for done in (10, 11, 11, 12)]

    def test_pressure_is_a_second_target(self) -> None:
        made = small(pressure=True)
        found = made.generate(lambda *_: None)["valid"]
        flows = made.flows("valid", 1)
        assert made.channels == (2, 2)
        assert np.array_equal(found.y[0], flows.fields[0, [4, 3]])

    def test_more_samples_extend_to_the_same_bytes(self) -> None:
        short, long = small().flows("train", 1), small().flows("train", 2)
        assert np.array_equal(short.fields[0], long.fields[0])
        assert np.array_equal(short.nodes[0], long.nodes[0])

    def test_fields_are_the_solution(self) -> None:
        made = small(tolerance=1e-3)
        flows = made.flows("valid", 1)
        rho, u, v, p, mach = flows.fields[0]
        np.testing.assert_allclose(mach, np.sqrt((u**2 + v**2) * rho / (1.4 * p)), rtol=1e-5)
        flow = Euler(c_grid(torch.from_numpy(flows.design), *made.cells), free_stream(0.8), wake=5)
        found = solve_steady(flow, tolerance=1e-3)
        np.testing.assert_allclose(p, _pressure(found.state), rtol=1e-3)
        drag, lift = flows.coefficients[0]
        expected = flow.force(found.state)[0] / (0.5 * 1.4 * 0.64)
        assert [drag, lift] == pytest.approx(expected.tolist(), abs=1e-3)
        assert flows.residual[0] < 1e-3
        assert flows.steps[0] >= 1
        assert flows.report() == f"1 flows converged in {flows.steps[0]} Newton steps (median), none failed"

    def test_every_parameter_changes_the_numbers(self) -> None:
        base = small().flows("train", 1).fields
        for change in ({"mach": 0.5}, {"amplitude": 0.01}, {"seed": 1}, {"tolerance": 1e-4}):
            assert not np.array_equal(small(**change).flows("train", 1).fields, base), change
        with pytest.raises(SolverError, match=r"of 4 flows did not converge to 0.01 in 1 steps; raise max_steps"):
            small(max_steps=1).flows("train", 4)

    def test_flows_that_fail_say_which_way_to_go(self) -> None:
        for mach, words in ((0.8, "or lower mach, or lower amplitude"), (1e-4, r"or raise mach \(sound is far faster")):
            with pytest.raises(SolverError, match=words):
                small(max_steps=1, mach=mach).flows("train", 4)

    def test_candidates_that_fail_are_left_out_and_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Candidates 1 and 2 never converge: the split is 0, 3, 4, and a longer one starts with it."""

        def partly(flow: Euler, **options: Any) -> Steady:
            tips = c_grid(small().designs("train", 1, 3), *small().cells)[:, 1, 3, 0]
            good = ~torch.isclose(flow.nodes[:, 1, 3, 0, None], tips).any(1)
            state = flow.uniform()
            return Steady(state, torch.where(good, 1e-7, 0.5).double(), good.long() + 4, good)

        monkeypatch.setattr(module, "solve_steady", partly)
        flows = small().flows("train", 3)
        assert flows.candidates.tolist() == [0, 3, 4]
        assert flows.failed == {1: 0.5, 2: 0.5}
        assert flows.report().endswith("left out, with the relative residual reached: 1 (5e-01), 2 (5e-01)")
        assert torch.equal(torch.from_numpy(flows.design[1:]), small().designs("train", 3, 5))
        assert small().flows("train", 5).candidates.tolist() == [0, 3, 4, 5, 6]

    def test_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = small()
        monkeypatch.setattr(module, "free_bytes", lambda device: 100)
        with pytest.raises(SolverError, match=r"one flow needs .* raise coarsen"):
            made.flows("train", 1)
        each = module.bytes_per_flow(23, 6)
        monkeypatch.setattr(module, "free_bytes", lambda device: int(1.5 * each))
        assert made.tunnel.group(torch.device("cpu"), 9) == 1

    def test_a_device_that_runs_out_of_memory_gets_smaller_groups(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes = []

        def greedy(flow: Euler, **options: Any) -> Steady:
            sizes.append(len(flow.nodes))
            if len(flow.nodes) > 1:
                raise torch.OutOfMemoryError
            one = torch.ones(1, dtype=torch.bool)
            return Steady(flow.uniform(), torch.zeros(1), one.long(), one)

        monkeypatch.setattr(module, "solve_steady", greedy)
        assert len(small().flows("train", 2).fields) == 2
        assert sizes == [2, 1, 1]

    def test_what_is_kept_is_not_solved_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two of four flows are there, each alone in a group that has been larger since."""
        made = small()

        def solved(group: int) -> np.ndarray:
            monkeypatch.setitem(module._GROUP, "cpu", group)
            monkeypatch.setattr(euler_native, "FLOWS_PER_THREAD", group)
            return made.flows("train", 4, "cpu", kept=KeptSamples(tmp_path, made.solution())).fields

        whole, solve, waited = solved(1), module.solve_steady, list[int]()
        parts = sorted(tmp_path.glob("part-*"))
        for part in (parts[0], parts[2]):
            shutil.rmtree(part)

        def counted(flow: Euler, *, wanted: torch.Tensor, **options: Any) -> Steady:
            waited.append(int(wanted.sum()))
            return solve(flow, wanted=wanted, **options)

        monkeypatch.setattr(module, "solve_steady", counted)
        np.testing.assert_allclose(solved(4), whole, rtol=0, atol=1e-4)
        assert waited == [1, 1]

    def test_bad_arguments(self) -> None:
        with pytest.raises(DataError, match="splits train, valid, test"):
            small().flows("exam", 1)
        for change in ({"mach": 1.2}, {"coarsen": 3}, {"amplitude": 0.2}, {"width": 1}):
            with pytest.raises(ValidationError):
                small(**change)

    def test_interruption_goes_through(self) -> None:
        def stop(stage: str, done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            small().generate(stop)


def _pressure(state: Tensor) -> np.ndarray:
    rho, mx, my, energy = state[0]
    return (0.4 * (energy - 0.5 * (mx * mx + my * my) / rho)).numpy()


def write(folder: Path, n: int = 3, **changes: np.ndarray) -> dict[str, np.ndarray]:
    """Files as published, with n samples of the true mesh and random fields."""
    grid = c_grid(0.1 * torch.rand(n, 8, dtype=torch.float64) - 0.05).numpy()
    files = {"X": grid[:, 0], "Y": grid[:, 1], "Q": np.random.default_rng(0).normal(size=(n, 5, 221, 51))}
    files |= changes
    for part, values in files.items():
        np.save(folder / f"NACA_Cylinder_{part}.npy", values)
    return files


class TestReader:
    def test_original_files(self, tmp_path: Path) -> None:
        files = write(tmp_path)
        for found in (read_published(tmp_path), read_published(str(tmp_path))):
            assert found.x.shape == (3, 2, 221, 51)
            assert found.y.shape == (3, 1, 221, 51)
            assert found.x.dtype == found.y.dtype == np.float32
            assert np.array_equal(found.x[:, 0], files["X"].astype(np.float32))
            assert np.array_equal(found.x[:, 1], files["Y"].astype(np.float32))
            assert np.array_equal(found.y[:, 0], files["Q"][:, 4].astype(np.float32))

    def test_published_protocol(self) -> None:
        whole = Arrays(np.arange(1300.0)[:, None], np.arange(1300.0)[:, None])
        parts = dict(published_splits(whole))
        assert set(parts) == set(PUBLISHED_SPLITS) == {"train", "test"}
        assert parts["train"].x[[0, -1], 0].tolist() == [0, 999]
        assert parts["test"].y[[0, -1], 0].tolist() == [1000, 1199]
        with pytest.raises(DataError, match="need 1200 samples; got 3"):
            dict(published_splits(Arrays(whole.x[:3], whole.y[:3])))

    def test_other_contents(self, tmp_path: Path) -> None:
        good = write(tmp_path)
        nan = good["Q"].copy()
        nan[1, 4, 3, 3] = np.nan
        apart = good["Y"].copy()
        apart[2, 10, 0] += 0.01
        cases: list[tuple[dict[str, np.ndarray], str]] = [
            ({"Q": good["Q"][:, :4]}, r"expected X and Y of shape \(n, 221, 51\)"),
            ({"Y": good["Y"][:2]}, r"got \(3, 221, 51\), \(2, 221, 51\)"),
            ({"X": good["X"][0]}, "real numbers on 3 axes"),
            ({"X": good["X"].astype(np.int32)}, "real numbers on 3 axes"),
            ({"Q": nan}, "sample 1 holds values that are not finite"),
            ({"Y": apart}, "do not meet"),
            ({"X": good["Y"], "Y": good["X"]}, r"as if NACA_Cylinder_X\.npy and NACA_Cylinder_Y\.npy had changed"),
        ]
        for change, message in cases:
            write(tmp_path, **{**good, **change})
            with pytest.raises(DataError, match=message):
                read_published(tmp_path)

    def test_cut_and_foreign_files(self, tmp_path: Path) -> None:
        write(tmp_path)
        path = tmp_path / "NACA_Cylinder_Y.npy"
        whole = path.read_bytes()
        pickled = tmp_path / "NACA_Cylinder_Q.npy"
        for content in (b"", b"PK\x03\x04" * 30, whole[:50], whole[:1000], whole[:-8]):
            path.write_bytes(content)
            with pytest.raises(DataError, match="get the file again") as caught:
                read_published(tmp_path)
            assert "\n" not in str(caught.value)
        path.write_bytes(whole)
        np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
        with pytest.raises(DataError, match="get the file again"):
            read_published(tmp_path)
        pickled.unlink()
        with pytest.raises(DataError, match="is missing"):
            read_published(tmp_path)
        pickled.mkdir()
        with pytest.raises(DataError, match="not a file"):
            read_published(tmp_path)

    def test_memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path)
        monkeypatch.setattr(airfoil_files, "free_bytes", lambda device: 100)
        with pytest.raises(DataError, match="of memory"):
            read_published(tmp_path)


class TestStreams:
    """Samples at Mach numbers and angles of attack of their own."""

    def test_they_are_inputs_where_they_differ_and_leave_designs_alone(self) -> None:
        as_published = small(train=3)
        both = small(train=3, mach=0.7, mach_range=0.1, incidence_range=4)
        assert torch.equal(both.designs("train", 0, 3), as_published.designs("train", 0, 3))
        assert as_published.streams("train", 0, 3).tolist() == [[0.8, 0.0]] * 3
        streams = both.streams("train", 0, 200)
        for which, (low, high) in enumerate(((0.6, 0.8), (-4, 4))):
            drawn = streams[:, which]
            assert low <= float(drawn.min()) < low + 0.02 * (high - low)
            assert high - 0.02 * (high - low) < float(drawn.max()) <= high
        assert abs(float(torch.corrcoef(streams.T)[0, 1])) < 0.2
        x = both.generate(ignore_progress, "cpu")["train"].x
        assert x.shape == (3, 4, 23, 6)
        assert np.allclose(x[:, :2], streams[:3, :, None, None], rtol=1e-6)
        assert np.array_equal(x[:, 2:], as_published.generate(ignore_progress, "cpu")["train"].x)
        for single, which in ((small(mach_range=0.1), 0), (small(incidence_range=4), 1)):
            assert single.conditions == (which,)
            assert single.channels == (3, 1)
            assert single.symmetry.motions[1].inputs.signs == ((1, -1)[which], 1, -1)

    def test_far_away_the_mach_number_is_that_of_the_stream(self) -> None:
        made = small(mach_range=0.15, incidence_range=4, tolerance=1e-6)
        flows = made.flows("train", 2, "cpu")
        rim = flows.fields[:, 4, :, -1]  # the free stream comes in over most of it
        assert np.median(rim, axis=1) == pytest.approx(flows.streams[:, 0], rel=2e-3)

    def test_lift_follows_the_angle_of_attack(self) -> None:
        """NACA-0012 at Mach 0.3, with compressibility: 2 pi / sqrt(1 - M^2) a radian, a little less on this mesh."""
        made = small(mach=0.3, amplitude=0, incidence_range=4, train=4, tolerance=1e-6, coarsen=5)
        flows = made.flows("train", 4, "cpu")
        slopes = flows.coefficients[:, 1] / np.radians(flows.streams[:, 1])
        assert (np.abs(flows.streams[:, 1]) > 0.2).all()
        assert slopes == pytest.approx(np.full(4, 2 * np.pi / np.sqrt(1 - 0.3**2)), rel=0.12)

    def test_drag_and_lift_are_along_and_across_the_stream(self) -> None:
        force = torch.tensor([[1.0, 2.0], [1.0, 2.0]], dtype=torch.float64)
        mach, angle = torch.tensor([0.5, 0.8]).double(), torch.tensor([0.0, 90.0]).double()
        found = coefficients_of(force, mach, angle)
        sizes = 0.7 * mach**2
        expected = torch.tensor([[1.0, 2.0], [2.0, -1.0]]).double() / sizes[:, None]
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(coefficients_of(force, mach), force / sizes[:, None])
        torch.testing.assert_close(coefficients_of(force, 0.5), force / (0.7 * 0.25))

    def test_outcomes_are_the_coefficients_of_each_stream(self) -> None:
        for more in ({}, {"mach_range": 0.1}, {"incidence_range": 3}, {"mach_range": 0.1, "incidence_range": 3}):
            made = small(pressure=True, train=2, **more)
            flows = made.flows("train", 2, "cpu")
            arrays = made.generate(ignore_progress, "cpu")["train"]
            x, y = torch.from_numpy(arrays.x), torch.from_numpy(arrays.y)
            found = torch.stack([made.outcomes[f"{name} coefficient"].of(x, y) for name in ("drag", "lift")], 1)
            torch.testing.assert_close(found, torch.from_numpy(flows.coefficients), rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("given", [{"mach_range": 0.2}, {"mach": 0.1, "mach_range": 0.1}])
    def test_streams_without_motion_or_faster_than_sound_are_refused(self, given: dict[str, float]) -> None:
        with pytest.raises(ValidationError, match=r"Mach numbers must be in \(0, 1\).*lower mach_range"):
            small(**given)

    def test_files_have_the_published_stream_alone(self) -> None:
        made = Airfoil(files="there", mach_range=0.1, incidence_range=3)
        assert made.conditions == ()
        assert made.channels == (2, 1)


def test_card() -> None:
    for word in ("Equation", "Solver", "Cost", "Known flaws", "literature", "Worked example"):
        assert word in CARD
    assert Airfoil.card == CARD
    assert Airfoil().grid_geometry.shape == (221, 51)
