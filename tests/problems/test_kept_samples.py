"""Solved samples that are kept as they are made: interruption, other data made of them, damage, two at a time."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from few_frames import few_frames

import hofno
from hofno import storage
from hofno.data.store import data_folder, generate_again
from hofno.errors import CheckpointError, DataError
from hofno.problems import airfoil_flows, kept_samples, press, problem
from hofno.problems.airfoil import Airfoil
from hofno.problems.kept_samples import KeptSamples
from hofno.problems.plasticity import Plasticity
from hofno.problems.press import Press
from hofno.solvers import parallel
from hofno.solvers.plasticity import Blocks


@dataclass(frozen=True)
class Case:
    """A problem in small, and data that are made of the same solutions in another way."""

    name: str
    small: dict[str, Any]
    others: tuple[dict[str, Any], ...]

    def __call__(self, store: Path | None, progress: Any = False, **changes: Any) -> hofno.Dataset:
        return hofno.generate(self.name, store=store, progress=progress, device="cpu", **{**self.small, **changes})

    def again(self, store: Path, progress: Any = lambda *_: None, **changes: Any) -> None:
        generate_again(self.name, {**self.small, **changes}, store, progress, "cpu")

    def data(self, store: Path, **changes: Any) -> dict[str, bytes]:
        """The files that training reads."""
        folder = data_folder(self.name, {**self.small, **changes}, store)
        return {file.name: file.read_bytes() for file in folder.glob("*.npy")}

    def parts(self, store: Path) -> dict[str, int]:
        """Kept parts and when they were made."""
        return {part.name: part.stat().st_mtime_ns for part in sorted(store.glob(f"{self.name}-samples-*/part-*"))}


COARSE: dict[str, Any] = {"valid": 1, "test": 1, "coarsen": 10}
CASES = (
    Case("airfoil", {**COARSE, "train": 3, "tolerance": 1e-2}, ({"pressure": True},)),
    Case("plasticity", {**COARSE, "train": 4, "refine": 1}, ({"form": "frames"}, {"aligned": True})),
)


class StopError(Exception):
    """The user's Ctrl-C, at a chosen moment."""


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(scope="module", autouse=True)
def _brief() -> Iterator[None]:
    """Groups of two flows; three frames of blocks in one thread, by steps slow enough to be looked at."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(airfoil_flows._GROUP, "cpu", 2)
        few_frames(patch, 3)
        patch.setenv("HOFNO_KERNELS", "off")
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def whole(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which all was made at once; only read."""
    store = tmp_path_factory.mktemp(case.name)
    case(store)
    return store


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(whole, tmp_path / "store")


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What makes solvers fail from then on."""

    def never(*_: object, **options: object) -> None:
        raise AssertionError("nothing should be solved")

    def refuse() -> None:
        monkeypatch.setattr(airfoil_flows, "solve_steady", never)
        monkeypatch.setattr(Blocks, "advance", never)

    return refuse


class TestGoingOn:
    @pytest.mark.parametrize("finished", [0, 1, 2])
    def test_an_interrupted_generation_goes_on(
        self, case: Case, whole: Path, finished: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After so many groups."""
        monkeypatch.setattr(parallel, "PAUSE", 0.01)

        def stop(*_: object) -> None:
            if len(case.parts(tmp_path)) == finished:
                raise StopError

        with pytest.raises(StopError):
            case(tmp_path, stop)
        before = case.parts(tmp_path)
        assert len(before) == finished
        assert not case.data(tmp_path)
        case(tmp_path)
        assert before.items() < case.parts(tmp_path).items()
        assert case.parts(tmp_path).keys() == case.parts(whole).keys()
        assert case.data(tmp_path) == case.data(whole)

    def test_more_samples_extend_what_is_there(self, case: Case, whole: Path, store: Path, tmp_path: Path) -> None:
        fewer, told = {"train": 2}, list[tuple[int, int]]()
        case(tmp_path, **fewer)
        before = case.parts(tmp_path)
        case(tmp_path, lambda _, *done: told.append(done))
        assert before.items() < case.parts(tmp_path).items()
        assert case.data(tmp_path) == case.data(whole)
        assert told == sorted(set(told))
        total = case.small["train"] + 2
        assert told[0][0] >= 4, "what is kept is done at once"
        assert told[-1] == (total, total)

    def test_other_data_of_the_same_samples_are_made_without_solving(
        self, case: Case, store: Path, tmp_path: Path, refuse: Callable[[], None]
    ) -> None:
        changes = case.others[0]
        case(tmp_path, **changes)
        refuse()
        told: list[int] = []
        for other in (*case.others, {"train": 2}):
            case(store, lambda _, done, total: told.append(done), **other)
            assert case.data(store, **other) != case.data(store)
        assert case.data(store, **changes) == case.data(tmp_path, **changes)
        assert told == [case.small["train"] + 2] * len(case.others) + [4]

    def test_other_parameters_are_other_samples(self, case: Case, store: Path) -> None:
        case(store, seed=1, train=1)
        one, other = store.glob("*-samples-*")
        (one / "part-000000").rename(other / "part-000099")
        (other / "part-000000").rename(one / "part-000099")
        for seed in (0, 1):
            with pytest.raises(DataError, match="holds other samples than those asked for"):
                case(store, seed=seed, train=2)

    def test_without_a_store_nothing_is_written(
        self, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(kept_samples, "EVERY", 0.0)
        case(None, train=1)
        assert not list(tmp_path.iterdir())

    def test_a_part_says_where_it_comes_from(self, case: Case, whole: Path) -> None:
        found: list[list[Any]] = []
        for part in whole.glob("*-samples-*/part-*"):
            meta = storage.verify_folder(part)
            assert meta["device"] == "cpu"
            assert meta["versions"]["torch"] == torch.__version__
            found += meta["samples"]
        wanted = [["test", 0], *(["train", sample] for sample in range(case.small["train"])), ["valid", 0]]
        assert sorted(found) == wanted, "each is solved once"

    def test_a_full_disk_is_found_before_work(
        self, case: Case, store: Path, tmp_path: Path, refuse: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []
        refuse()
        monkeypatch.setattr(storage, "disk_has_room", lambda path, count: asked.append(count))
        for place, changes in ((tmp_path / "new", {}), (store, case.others[-1])):
            with pytest.raises(DataError, match=r"and the data made of it need .* free some space"):
                case(place, **changes)
        kept = sum(file.stat().st_size for file in store.glob("*-samples-*/part-*/*.safetensors"))
        data = [problem(case.name, {**case.small, **changes}).memory_bytes() for changes in ({}, case.others[-1])]
        assert asked == [pytest.approx(kept + data[0], rel=0.2), data[1]]


def test_what_makes_a_sample() -> None:
    """The solver, and all parameters but counts, files, and those that arrange."""
    others = {"train", "valid", "test", "files"}
    for made, names in ((Airfoil(), {"pressure"}), (Plasticity(), {"form", "aligned"})):
        assert made.solution().keys() == {"problem", *type(made).model_fields} - others - names
    assert Airfoil(train=1, pressure=True).solution() == Airfoil().solution() != Airfoil(seed=1).solution()


class TestAgain:
    def test_samples_made_again_take_the_place_of_the_old_ones(self, case: Case, store: Path) -> None:
        data, before = case.data(store), case.parts(store)

        def stop(*_: object) -> None:
            if case.parts(store).keys() - before.keys():
                raise StopError

        fewer = {"train": case.small["train"] - 1}  # one of a part that holds more
        with pytest.raises(StopError):
            case.again(store, stop, **fewer)
        assert case.data(store) == data
        shutil.rmtree(data_folder(case.name, case.small, store))
        case(store)
        assert case.data(store) == data
        case.again(store)
        after = case.parts(store)
        assert case.data(store) == data
        assert len(after) == len(before)
        assert min(after.values()) > max(before.values())

    def test_samples_that_were_not_made_again_stay(self, case: Case, store: Path, refuse: Callable[[], None]) -> None:
        data = case.data(store)
        case.again(store, train=1)
        refuse()
        shutil.rmtree(data_folder(case.name, case.small, store))
        case(store)
        assert case.data(store) == data

    @pytest.mark.parametrize("damage", ["byte", "missing", "manifest"])
    def test_a_damaged_part_is_named_with_what_to_do(self, case: Case, damage: str, store: Path) -> None:
        data = case.data(store)
        shutil.rmtree(data_folder(case.name, case.small, store))
        (part,) = store.glob("*-samples-*/part-000001")
        file = part / ("manifest.json" if damage == "manifest" else "samples.safetensors")
        if damage == "missing":
            file.unlink()
        else:
            content = bytearray(file.read_bytes())
            content[-3] ^= 1
            file.write_bytes(content)
        with pytest.raises(DataError, match=f"delete {part} to make them again") as told:
            case(store)
        assert "\n" not in str(told.value)
        if damage == "manifest":
            case.again(store)
        else:
            shutil.rmtree(part)
            case(store)
        assert case.data(store) == data

    def test_a_folder_in_use_is_waited_for(
        self, case: Case, store: Path, tmp_path: Path, refuse: Callable[[], None]
    ) -> None:
        """Whoever comes second reads what the first one has made."""
        (made,) = store.glob("*-samples-*")
        shared = tmp_path / "shared" / made.name
        refuse()
        with ThreadPoolExecutor(1) as second, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with storage.RunLock(shared):
                coming = second.submit(case, tmp_path / "shared")
                with pytest.raises(TimeoutError):
                    coming.result(timeout=0.2)
                for part in made.iterdir():
                    part.rename(shared / part.name)
            coming.result(timeout=60)
        assert [str(one.message)[:13] for one in told] == ["waiting until"]
        assert case.data(tmp_path / "shared") == case.data(store)
        assert not (shared / "lock").exists()


class TestFlowsThatFail:
    def test_they_are_kept_as_such(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Candidate 1 does not converge: neither now nor when it is read."""
        solve, calls = airfoil_flows.solve_steady, list[int]()

        def partly(flow: Any, **options: Any) -> Any:
            calls.append(int(options["wanted"].sum()))
            found = solve(flow, **options)
            if len(calls) == 1:
                found.converged[1] = False
            return found

        monkeypatch.setattr(airfoil_flows, "solve_steady", partly)
        made = Airfoil(**CASES[0].small)
        kept = [KeptSamples(tmp_path, made.solution())]
        first = made.flows("train", 2, "cpu", kept=kept[0])
        assert calls == [2, 1]
        assert first.candidates.tolist() == [0, 2]
        for count in (2, 3):
            found = made.flows("train", count, "cpu", kept=KeptSamples(tmp_path, made.solution()))
            assert np.array_equal(found.fields[:2], first.fields)
            assert found.failed == first.failed == {1: first.failed[1]}
        assert calls == [2, 1, 1]
        told: list[int] = []
        made.generate(lambda _, done, total: told.append(done), "cpu", KeptSamples(tmp_path, made.solution()))
        assert told == sorted(set(told))
        assert told[-1] == 5


class TestBlocksHalfWay:
    """Two frames after the first, interrupted in the last one: what was done up to 100 steps before is put aside."""

    made = Plasticity(**CASES[1].small)
    wanted: ClassVar = [("train", 2), ("train", 4)]

    @pytest.fixture(autouse=True)
    def _interrupted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kept_samples, "EVERY", 0.0)
        monkeypatch.setattr(press, "SHARPNESS", (0.5,))
        monkeypatch.setattr(press, "_AT_ONCE", 100)
        advance = Blocks.advance

        def stop_in_the_last(blocks: Blocks, *steps: Any) -> None:
            advance(blocks, *steps)
            if blocks.steps > self.made.frame_steps(1, 0.5) + 100:
                raise StopError

        with monkeypatch.context() as patch:
            patch.setattr(Blocks, "advance", stop_in_the_last)
            with pytest.raises(StopError):
                self.made.simulate_samples(self.wanted, kept=self.kept(tmp_path))

    def kept(self, folder: Path, again: bool = False) -> KeptSamples:
        return KeptSamples(folder, self.made.solution(), "cpu", again)

    def steps_taken(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        solved, advance = list[int](), Blocks.advance
        monkeypatch.setattr(Blocks, "advance", lambda *given: (solved.append(given[3]), advance(*given))[1])
        return solved

    def test_they_go_on_from_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = self.made.simulate_samples(self.wanted)
        solved = self.steps_taken(monkeypatch)
        assert [place.name for place in tmp_path.iterdir()] == ["begun-train-000002"]
        found, account = self.made.simulate_samples(self.wanted, kept=self.kept(tmp_path))
        assert sum(solved) == self.made.frame_steps(2, 0.5) - 100
        assert np.array_equal(found.frames, expected[0].frames)
        for name in ("imbalance", "kinetic", "hourglass", "penetration", "edges", "halvings"):
            assert np.array_equal(getattr(account, name), getattr(expected[1], name)), name
        assert [place.name for place in tmp_path.iterdir()] == ["part-000000"]

    @pytest.mark.parametrize("other", ["samples", "halved", "again", "versions", "damaged"])
    def test_others_begin_anew(self, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        wanted = [("train", 2), ("train", 5)] if other == "samples" else self.wanted
        expected = self.made.simulate_samples(wanted)
        solved = self.steps_taken(monkeypatch)
        if other == "halved":
            (tmp_path / "begun-train-000002").rename(tmp_path / "aside")
            begun = self.kept(tmp_path).begun(wanted, "steps / 2 on cpu")
            begun.keep(lambda: storage.read_tensors(tmp_path / "aside" / "samples.safetensors"))
            shutil.rmtree(tmp_path / "aside")
        elif other == "versions":
            monkeypatch.setattr(kept_samples, "versions", lambda: {"torch": "0"})
        elif other == "damaged":
            (tmp_path / "begun-train-000002" / "manifest.json").unlink()
        found, _ = self.made.simulate_samples(wanted, kept=self.kept(tmp_path, again=other == "again"))
        assert sum(solved) == sum(self.made.frame_steps(frame, 0.5) for frame in (1, 2))
        assert np.array_equal(found.frames, expected[0].frames)

    def test_where_they_cannot_be_put_aside_they_are_solved_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected, _ = self.made.simulate_samples(self.wanted)
        save = storage.save_folder

        def full(path: Path, *given: Any) -> None:
            if path.name.startswith("begun"):
                raise CheckpointError(f"{path} could not be written: no space")
            save(path, *given)

        monkeypatch.setattr(storage, "save_folder", full)
        with pytest.warns(RuntimeWarning, match="samples are solved on, but not put aside: .*no space"):
            found, _ = self.made.simulate_samples(self.wanted, kept=self.kept(tmp_path))
        assert np.array_equal(found.frames, expected.frames)

    def test_what_was_put_aside_goes_when_its_samples_are_solved(self, tmp_path: Path) -> None:
        (tmp_path / "begun-train-000002").rename(tmp_path / "aside")
        self.made.simulate_samples(self.wanted[:1], kept=self.kept(tmp_path))
        (tmp_path / "aside").rename(tmp_path / "begun-train-000002")
        self.kept(tmp_path)
        assert (tmp_path / "begun-train-000002").exists(), "the other one is not solved"
        self.made.simulate_samples(self.wanted, kept=self.kept(tmp_path))
        self.kept(tmp_path)
        assert not (tmp_path / "begun-train-000002").exists()


class TestProgressOfBlocks:
    @pytest.mark.parametrize("device", ["cpu", "other"])
    def test_it_grows_with_the_steps(self, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """In threads, and where jobs run in the thread that waits for them."""
        few_frames(monkeypatch, 2)
        monkeypatch.setattr(parallel, "PAUSE", 0.0 if device == "other" else 1e-3)
        if device == "cpu":
            two = Press.group
            monkeypatch.setattr(Press, "group", lambda *given: (two(*given)[0], 2))
        else:
            real = press.in_order
            monkeypatch.setattr(press, "in_order", lambda work, jobs, _, n, look: real(work, jobs, "meta", n, look))
        told: list[int] = []
        Plasticity(**{**CASES[1].small, "train": 6}).generate(lambda _, done, total: told.append(done))
        assert told == sorted(set(told))
        assert told[-1] == 8
        assert told == list(range(9)) if device == "other" else len(told) > 3
