"""Trajectories in groups that are kept as parts: interruption, damage, memory. Every flow is tested alike."""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from hofno import storage
from hofno.errors import DataError, SolverError
from hofno.problems import flows, groups
from hofno.problems.flows import Flow
from hofno.problems.navier_stokes import NavierStokesFlow, VorticitySimulator
from hofno.problems.shallow_water import ShallowWaterFlow, WaterSimulator
from hofno.storage import files
from hofno.storage.files import temporary_beside


@dataclass(frozen=True)
class Case:
    """A flow of five samples and three frames, and how far other groups may round it."""

    flow: type[Flow]
    simulator: type[VorticitySimulator | WaterSimulator]
    small: dict[str, Any]
    rtol: float
    atol: float

    def __call__(self, **changes: Any) -> Flow:
        return self.flow(**{"samples": 5, "frames": 3, **self.small, **changes})

    @property
    def each(self) -> int:
        """Frames that progress counts for a sample."""
        return 3 + self().hidden

    def assert_rounded(self, found: np.ndarray, expected: np.ndarray) -> None:
        np.testing.assert_allclose(found, expected, rtol=self.rtol, atol=self.atol)

    def at_most(self, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self.flow, "most_together", lambda self, device: most)

    def never_solves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def run(*_: object) -> Iterator[None]:
            raise AssertionError("nothing should be solved")

        monkeypatch.setattr(self.simulator, "run", run)

    def has_room_for(self, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Memory runs out at the second frame of a larger group."""
        real: Any = self.simulator.run

        def run(self: object, start: int, stop: int, size: int) -> Iterator[np.ndarray | None]:
            for index, frame in enumerate(real(self, start, stop, size)):
                if size > group and index == 1:
                    raise torch.OutOfMemoryError
                yield frame

        monkeypatch.setattr(self.simulator, "run", run)


TORUS = {"viscosity": 1e-3, "resolution": 8, "solver_resolution": 16, "step": 0.1}
PLANET = {"rows": 10, "columns": 20, "degrees": 8, "spin_up": 2, "hyperviscosity": 1e17, "step": 3600.0}
CASES = (
    Case(NavierStokesFlow, VorticitySimulator, TORUS, rtol=0, atol=1e-7),
    Case(ShallowWaterFlow, WaterSimulator, PLANET, rtol=1e-5, atol=1e-4),
)


class StopError(Exception):
    """The user's Ctrl-C, at a chosen frame."""


@pytest.fixture(params=CASES, ids=lambda case: case.flow.name)
def flow(request: pytest.FixtureRequest) -> Case:
    return request.param


class TestGroups:
    @pytest.mark.parametrize("group", [1, 2, 4])
    def test_any_group_gives_the_same_numbers(
        self, flow: Case, group: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        whole = flow().trajectories()
        flow.at_most(group, monkeypatch)
        flow.assert_rounded(flow().trajectories(folder=tmp_path), whole)
        assert len(list(tmp_path.glob("part-*"))) == math.ceil(5 / group)

    def test_progress_counts_frames(self, flow: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those that are hidden too: two samples at a time, then the last one."""
        flow.at_most(2, monkeypatch)
        seen: list[tuple[str, int, int]] = []
        flow().trajectories(progress=lambda *args: seen.append(args))
        each = flow.each
        assert [done for _, done, _ in seen] == [*range(2, 4 * each + 1, 2), *range(4 * each + 1, 5 * each + 1)]
        assert {(stage, total) for stage, _, total in seen} == {("generate", 5 * each)}

    @pytest.mark.parametrize(("most", "group"), [(0, 1), (1, 1), (3, 2), (8, 8)])
    def test_groups_are_powers_of_two(self, flow: Case, most: int, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
        flow.at_most(most, monkeypatch)
        assert flow()._group(flow().simulator()) == group

    def test_little_memory_means_smaller_groups(self, flow: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        solver = flow().simulator()
        for samples, group in ((10, 8), (9, 4), (5, 4), (2, 1), (1, 1)):
            monkeypatch.setattr(groups, "free_bytes", lambda device, n=samples: n * solver.bytes_each())
            assert flow()._group(solver) == group
        monkeypatch.setattr(groups, "free_bytes", lambda device: solver.bytes_each() - 1)
        with pytest.raises(SolverError, match=r"one sample at \w+=\d+ needs .* GiB on cpu .*, lower \w+ or"):
            flow().trajectories()

    def test_running_out_of_memory_halves_the_group(self, flow: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = flow().trajectories()
        flow.has_room_for(1, monkeypatch)
        flow.assert_rounded(flow().trajectories(), whole)

    def test_running_out_of_memory_with_one_sample(self, flow: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        flow.has_room_for(0, monkeypatch)
        with pytest.raises(SolverError, match=r"one sample at \w+=\d+ needs .* GiB"):
            flow().trajectories()

    def test_too_many_samples_are_refused_before_work(self, flow: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        flow.never_solves(monkeypatch)
        with pytest.raises(DataError, match=r"need \d+\.\d GiB of memory"):
            flow(samples=10**12).trajectories()

    def test_seeds_that_would_repeat_samples(self, flow: Case) -> None:
        """2^32 + s is drawn as (s, 1): with it, sample 0 would be sample 1 of seed 0."""
        assert flow(seed=2**32 - 1).seed == 2**32 - 1
        with pytest.raises(ValidationError, match="less than 4294967296"):
            flow(seed=2**32)


class TestFolder:
    @pytest.fixture(autouse=True)
    def _two_at_a_time(self, flow: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        flow.at_most(2, monkeypatch)

    @pytest.mark.parametrize(("group", "frame"), [(0, 1), (0, -1), (1, 1), (2, -2)])
    def test_an_interrupted_generation_goes_on(self, flow: Case, group: int, frame: int, tmp_path: Path) -> None:
        """At a frame of a group, the last one is -1; a group is kept after it."""
        told = group * flow.each + (frame if frame > 0 else flow.each + 1 + frame)
        calls: list[int] = []

        def interrupt(stage: str, done: int, total: int) -> None:
            calls.append(done)
            if len(calls) == told:
                raise StopError

        with pytest.raises(StopError):
            flow().trajectories(progress=interrupt, folder=tmp_path)
        finished = {place.name: place.stat().st_mtime_ns for place in tmp_path.iterdir()}
        assert len(finished) == group
        assert np.array_equal(flow().trajectories(folder=tmp_path), flow().trajectories())
        assert {name: (tmp_path / name).stat().st_mtime_ns for name in finished} == finished

    def test_a_finished_folder_is_read_not_solved(
        self, flow: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = flow().trajectories(folder=tmp_path)
        flow.never_solves(monkeypatch)
        seen: list[int] = []
        found = flow().trajectories(folder=tmp_path, progress=lambda stage, done, total: seen.append(done))
        assert np.array_equal(found, whole)
        assert seen == [2 * flow.each, 4 * flow.each, 5 * flow.each]
        assert np.array_equal(flow(samples=3).trajectories(folder=tmp_path), whole[:3])

    def test_more_samples_are_added(self, flow: Case, tmp_path: Path) -> None:
        flow(samples=3).trajectories(folder=tmp_path)
        assert np.array_equal(flow(samples=6).trajectories(folder=tmp_path), flow(samples=6).trajectories())
        assert sorted(place.name for place in tmp_path.iterdir()) == [
            "part-000000-000002",
            "part-000002-000003",
            "part-000003-000004",
            "part-000004-000006",
        ]

    def test_what_is_read_is_done_before_the_rest_is_solved(self, flow: Case, tmp_path: Path) -> None:
        """Also parts beyond a gap: the time left is that of what is solved."""
        whole = flow().trajectories(folder=tmp_path)
        shutil.rmtree(tmp_path / "part-000002-000004")
        seen: list[int] = []
        found = flow().trajectories(folder=tmp_path, progress=lambda stage, done, total: seen.append(done))
        assert np.array_equal(found, whole)
        assert seen == list(range(3 * flow.each + 2, 5 * flow.each + 1, 2))

    def test_a_part_that_was_deleted_is_made_again(
        self, flow: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The gap is filled up to the next part, also where more samples would fit into memory."""
        whole = flow().trajectories(folder=tmp_path)
        flow.at_most(8, monkeypatch)
        part = tmp_path / "part-000002-000004"
        for place in part.iterdir():
            place.unlink()
        part.rmdir()
        assert np.array_equal(flow().trajectories(folder=tmp_path), whole)
        assert part.is_dir()

    def test_another_flow_is_refused(self, flow: Case, tmp_path: Path) -> None:
        flow().trajectories(folder=tmp_path)
        with pytest.raises(DataError, match="another flow"):
            flow(seed=3).trajectories(folder=tmp_path)

    @pytest.mark.parametrize("damage", ["byte", "missing"])
    def test_a_damaged_part_is_refused(self, flow: Case, damage: str, tmp_path: Path) -> None:
        flow().trajectories(folder=tmp_path)
        file = tmp_path / "part-000002-000004" / "frames.safetensors"
        if damage == "missing":
            file.unlink()
        else:
            data = bytearray(file.read_bytes())
            data[-1] ^= 1
            file.write_bytes(data)
        with pytest.raises(DataError, match=r"delete .*part-000002-000004 to make it again"):
            flow().trajectories(folder=tmp_path)

    def test_frames_of_another_shape_are_refused(self, flow: Case, tmp_path: Path) -> None:
        meta = {"flow": flow().identity(), "samples": [0, 5]}
        files = {"frames.safetensors": storage.tensor_bytes({"frames": torch.zeros(5, 3, 2)})}
        storage.save_folder(tmp_path / "part-000000-000005", files, meta)
        with pytest.raises(DataError, match=r"holds frames of shape \(5, 3, 2\); delete .* to make it again"):
            flow().trajectories(folder=tmp_path)

    def test_a_folder_in_use_is_waited_for(self, flow: Case, tmp_path: Path) -> None:
        """Whoever comes second reads what the first one has made."""
        expected = flow().trajectories(folder=tmp_path / "made")
        with ThreadPoolExecutor(1) as second, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with storage.RunLock(tmp_path / "shared"):
                coming = second.submit(flow().trajectories, folder=tmp_path / "shared")
                with pytest.raises(TimeoutError):
                    coming.result(timeout=0.2)
                for part in (tmp_path / "made").iterdir():
                    part.rename(tmp_path / "shared" / part.name)
            assert np.array_equal(coming.result(timeout=20), expected)
        assert [str(one.message)[:13] for one in told] == ["waiting until"]
        assert sorted(place.name[:4] for place in (tmp_path / "shared").iterdir()) == ["part"] * len(expected[::2])

    @pytest.mark.parametrize("group", [1, 2, 8])
    def test_only_the_parts_of_these_samples_are_made_again(
        self, flow: Case, group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = flow(samples=7).trajectories(folder=tmp_path)  # parts of two
        before = {place.name: place.stat().st_mtime_ns for place in tmp_path.iterdir()}
        flow.at_most(group, monkeypatch)
        told: list[int] = []

        def watch(stage: str, done: int, total: int) -> None:
            told.append(total)
            if done == 4 * flow.each:
                raise StopError

        with pytest.raises(StopError):
            flow(samples=3).trajectories(folder=tmp_path, progress=watch, again=True)
        assert told[0] == 4 * flow.each, "sample 3 shares a part with sample 2 and is made with it"
        with monkeypatch.context() as patch:
            flow.never_solves(patch)
            kept = flow(samples=7).trajectories(folder=tmp_path)
        flow.assert_rounded(kept, whole)
        again = flow(samples=3).trajectories(folder=tmp_path, again=True)
        flow.assert_rounded(again, whole[:3])
        names = {"part-000004-000006", "part-000006-000007"}
        after = {place.name: place.stat().st_mtime_ns for place in tmp_path.iterdir()}
        assert {name: after[name] for name in names} == {name: before[name] for name in names}
        made = {name: time for name, time in after.items() if name not in names}
        ends = {1: [1, 2, 3, 4], 2: [2, 4], 8: [4]}[group]
        assert sorted(made) == [f"part-{a:06d}-{b:06d}" for a, b in zip([0, *ends], ends, strict=False)]
        assert min(made.values()) > max(before.values())
        flow.never_solves(monkeypatch)
        flow.assert_rounded(flow(samples=7).trajectories(folder=tmp_path), whole)

    def test_a_damaged_part_can_be_made_again(self, flow: Case, tmp_path: Path) -> None:
        whole = flow().trajectories(folder=tmp_path)
        (tmp_path / "part-000000-000002" / "manifest.json").unlink()
        assert np.array_equal(flow().trajectories(folder=tmp_path, again=True), whole)
        assert np.array_equal(flow().trajectories(folder=tmp_path), whole)

    def test_what_a_killed_process_left_half_written_goes(
        self, flow: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        temporary_beside(tmp_path / "part-000000-000002").mkdir()
        monkeypatch.setattr(files, "_PROCESS_TOKEN", "0" * 8)
        flow().trajectories(folder=tmp_path)
        assert all(place.name.startswith("part") for place in tmp_path.iterdir())

    def test_a_full_disk_is_found_before_work(
        self, flow: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flow().trajectories(folder=tmp_path / "finished")
        monkeypatch.setattr(storage, "disk_has_room", lambda path, count: count == 0)
        flow.never_solves(monkeypatch)
        with pytest.raises(DataError, match="GiB more on its disk"):
            flow().trajectories(folder=tmp_path / "new")
        flow().trajectories(folder=tmp_path / "finished")

    def test_more_than_the_memory_is_made_on_disk(
        self, flow: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = flow().trajectories()
        monkeypatch.setattr(flows, "free_bytes", lambda device: 100)
        for _ in ("made", "read"):
            found = flow().trajectories(folder=tmp_path / "parts")
            assert isinstance(found, np.memmap)
            assert np.array_equal(found, whole)
        with pytest.raises(DataError, match="these trajectories need"):
            flow().trajectories()
