"""Studies: members that are done are not done again, and results files that grow without losing their conditions."""

from __future__ import annotations

import multiprocessing
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hofno import spec as specs
from hofno import stages, storage, study, study_results
from hofno.cli import resolutions
from hofno.errors import CheckpointError, DivergedError, SpecError
from hofno.show import Silent
from hofno.spec import Spec


@pytest.fixture
def tiny(folder: Path) -> Spec:
    return specs.override(specs.load("tiny.toml"), {"device": "cpu", "train.epochs": 1})


def results(*runs: tuple[str, int, float], **changes: Any) -> dict[str, Any]:
    made = [{"spec_hash": name, "seed": seed, "metrics": {"rel_l2": error}} for name, seed, error in runs]
    facts = {"schema": 1, "name": "n", "problem": "p", "device": "cpu", "versions": {"hofno": "1"}}
    return {**facts, "created": "2026-01-01", "seconds": 1.0, "runs": made, **changes}


MERGES = 5
WIDTHS = {"first": 5, "second": 6, "third": 7}


def merge_some(file: Path, name: str) -> None:
    for seed in range(MERGES):
        study_results.merge_into(file, results((name, seed, 1.0)))


def test_a_swept_key_can_be_set(tiny: Spec) -> None:
    swept = tiny.model_copy(update={"sweep": {"model.depth": [1, 2], "seed": [0]}})
    key, value = specs.parse_setting("sweep.'model.depth'=[8]")
    assert specs.override(swept, {key: value}).sweep == {"model.depth": [8], "seed": [0]}
    with pytest.raises(SpecError, match="not a dotted key"):
        specs.override(tiny, {"train..epochs": 1})


class TestMerge:
    def test_a_table_measured_in_parts_is_described_as_a_whole(self, tiny: Spec) -> None:
        first, second = (
            tiny.model_copy(update={"sweep": {"model.depth": depths, "seed": [0]}}) for depths in ([1, 2], [2, 4])
        )
        old = results(("a", 0, 1.0), spec=first.plain(), spec_hash=first.study_hash)
        new = results(("b", 0, 2.0), spec=second.plain(), spec_hash=second.study_hash)
        merged = study_results.merge_results(old, new)
        assert merged["spec"]["sweep"] == {"model.depth": [1, 2, 4], "seed": [0]}
        assert merged["spec_hash"] == specs.parse(merged["spec"]).study_hash

    def test_runs_stand_as_in_the_study_whichever_ended_first(self, tiny: Spec) -> None:
        swept = tiny.model_copy(update={"sweep": {"model.depth": [1, 2], "seed": [0, 1]}})
        hashes = [member.run_hash for member, _ in swept.members()]
        facts = {"spec": swept.plain(), "spec_hash": swept.study_hash}
        merged = results((hashes[3], 1, 1.0), ("of another recipe", 0, 1.0), **facts)
        for place in (1, 2, 0):
            merged = study_results.merge_results(merged, results((hashes[place], place % 2, 1.0), **facts))
        assert [run["spec_hash"] for run in merged["runs"]] == ["of another recipe", *hashes]

    def test_a_remark_stays_with_the_runs_it_is_about(self) -> None:
        old, new = results(("a", 0, 1.0), remark="Measured once."), results(("b", 0, 2.0))
        assert study_results.merge_results(old, new)["remark"] == "Measured once."
        both = study_results.merge_results(old, {**new, "remark": "A demonstration."})
        assert both["remark"] == "Measured once.\n\nA demonstration."
        again = study_results.merge_results(both, results(("c", 0, 2.0), remark="A demonstration."))
        assert again["remark"] == both["remark"]
        assert "remark" not in study_results.merge_results(old, results(("a", 0, 1.0))), "none of its runs is left"

    def test_runs_measured_again_are_replaced_and_others_kept(self) -> None:
        old, new = results(("a", 0, 1.0), ("a", 1, 2.0), ("b", 0, 3.0)), results(("a", 1, 9.0), ("c", 0, 4.0))
        before = deepcopy((old, new))
        merged = study_results.merge_results(old, new)
        found = {(run["spec_hash"], run["seed"]): run["metrics"]["rel_l2"] for run in merged["runs"]}
        assert found == {("a", 0): 1.0, ("b", 0): 3.0, ("a", 1): 9.0, ("c", 0): 4.0}
        assert len(merged["runs"]) == 4
        assert merged["seconds"] == 2.0
        assert (old, new) == before

    def test_kept_runs_keep_their_conditions(self) -> None:
        old, new = results(("a", 0, 1.0), device="GPU"), results(("b", 0, 1.0), created="2026-02-02")
        kept, fresh = study_results.merge_results(old, new)["runs"]
        assert (kept["device"], kept["created"]) == ("GPU", "2026-01-01")
        assert "versions" not in kept
        assert "device" not in fresh
        third = study_results.merge_results(study_results.merge_results(old, new), results(("c", 0, 1.0), device="TPU"))
        assert [run.get("device") for run in third["runs"]] == ["GPU", "cpu", None]

    def test_nothing_kept(self) -> None:
        new = results(("a", 0, 5.0))
        assert study_results.merge_results(results(("a", 0, 1.0)), new) == new

    def test_swept_lists_are_joined_too(self, tiny: Spec) -> None:
        first, second = (
            tiny.model_copy(update={"sweep": {"model.modes": modes}}) for modes in ([[2, 2], [4, 4]], [[4, 4], [3, 3]])
        )
        old = results(("a", 0, 1.0), spec=first.plain(), spec_hash=first.study_hash)
        merged = study_results.merge_results(old, results(("b", 0, 2.0), spec=second.plain(), spec_hash="s"))
        assert merged["spec"]["sweep"] == {"model.modes": [[2, 2], [4, 4], [3, 3]]}

    def test_runs_that_diverged_are_told_until_they_are_measured(self) -> None:
        def diverged(name: str) -> dict[str, Any]:
            return {"spec_hash": name, "seed": 0, "label": name, "reason": "too fast"}

        old = results(("a", 0, 1.0), diverged=[diverged("b"), diverged("c")])
        new = results(("b", 0, 2.0), diverged=[diverged("a"), diverged("d")])
        assert study_results.merge_results(old, new)["diverged"] == [diverged("c"), diverged("d")]
        assert "diverged" not in study_results.merge_results(results(diverged=[diverged("b")]), results(("b", 0, 2.0)))

    def test_processes_that_merge_at_once_lose_nothing(self, tmp_path: Path) -> None:
        file = tmp_path / "all.json"
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=merge_some, args=(file, name)) for name in "abcd"]
        for child in children:
            child.start()
        for child in children:
            child.join()
            assert child.exitcode == 0
        found = {(run["spec_hash"], run["seed"]) for run in storage.read_json(file)["runs"]}
        assert found == {(name, seed) for name in "abcd" for seed in range(MERGES)}
        assert [path.name for path in tmp_path.iterdir()] == ["all.json"]

    @pytest.mark.parametrize("key", ["name", "problem"])
    def test_another_study_is_refused(self, key: str) -> None:
        with pytest.raises(SpecError, match=f"has {key} 'other'"):
            study_results.merge_results(results(**{key: "other"}), results())

    @pytest.mark.parametrize(
        "old", [[], {}, {"schema": 2, "runs": []}, {"schema": 1}, {"schema": 1, "runs": 3}, {"schema": 1, "runs": []}]
    )
    def test_what_is_not_a_results_file(self, old: Any) -> None:
        with pytest.raises(CheckpointError, match="not a results file"):
            study_results.merge_results(old, results())


class TestMembers:
    def test_folders_are_told_apart(self, tiny: Spec) -> None:
        other = specs.override(tiny, {"seed": 1, "label": "A / B"})
        assert study.member_folder(Path("out"), tiny).name.startswith("ho-fno-")
        assert study.member_folder(Path("out"), other).name.startswith("a-b-")

    @given(label=st.text(max_size=400) | st.text("aB 1-", min_size=50, max_size=400))
    @example("L" * 300)
    def test_folders_have_names_that_disks_take(self, label: str) -> None:
        values = {"label": label, "data": {"problem": "poisson"}, "model": {"name": "hofno"}}
        name = study.member_folder(Path("out"), specs.parse(values)).name
        assert len(name.encode()) <= study.NAME_AT_MOST + 9
        readable = re.sub("[^a-z0-9]+", "-", (label or "run").lower()).strip("-")
        if len(readable) <= study.NAME_AT_MOST:
            assert name[:-9] == readable
        assert "--" not in name

    def test_done_is_not_done_again(self, tiny: Spec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = study.run_member(tiny, folder, Silent())

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("made twice")

        monkeypatch.setattr(study, "train_run", refuse)
        monkeypatch.setattr(study, "make_data", refuse)
        assert study.run_member(tiny, folder, Silent()) == first

    def test_trained_but_not_evaluated(self, tiny: Spec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = study.run_member(tiny, folder, Silent())
        (study.member_folder(folder, tiny) / "evaluation.json").unlink()
        monkeypatch.setattr(study, "train_run", None)
        assert study.run_member(tiny, folder, Silent())["metrics"] == first["metrics"]

    def test_a_folder_of_another_spec(self, tiny: Spec, folder: Path) -> None:
        path = study.member_folder(folder, tiny)
        stages.start_folder(specs.override(tiny, {"seed": 5}), path)
        with pytest.raises(SpecError, match="belongs to another spec"):
            study.run_member(tiny, folder, Silent())

    def test_cells_tell_variants_apart(self, tiny: Spec, folder: Path) -> None:
        values = {**tiny.plain(), "sweep": {"seed": [0]}}
        values["compare"] = [
            {"label": "FNO", "set": {"model.name": "fno"}},
            {"label": "wide", "set": {"model.width": 12}},
        ]
        found = study.run_study(specs.parse(values), folder / "out", Silent())
        cells = [run["cell"] for run in found["runs"]]
        assert cells == [
            {},
            {"label": "FNO", "model.name": "fno", "model.order": 1},
            {"label": "wide", "model.width": 12},
        ]
        assert [run["label"] for run in found["runs"]] == ["HO-FNO", "FNO", "wide"]

    @pytest.mark.parametrize("workers", [1, 2])
    def test_a_part_of_a_study_and_then_the_rest(self, tiny: Spec, folder: Path, workers: int) -> None:
        values = {**tiny.plain(), "sweep": {"seed": [0, 1]}}
        values["compare"] = [{"label": "FNO", "set": {"model.name": "fno"}}]
        whole = specs.parse(values)

        def ran(*only: str) -> list[tuple[str, int]]:
            found = study.run_study(whole, folder / "out", Silent(), workers, only)
            assert storage.read_json(folder / "out" / "results.json")["runs"] == found["runs"]
            return [(run["label"], run["seed"]) for run in found["runs"]]

        assert ran("FNO, seed 1") == [("FNO", 1)]
        assert ran("HO-FNO, seed 0", "FNO") == [("HO-FNO", 0), ("FNO", 0), ("FNO", 1)]
        assert ran() == [("HO-FNO", 0), ("HO-FNO", 1), ("FNO", 0), ("FNO", 1)]

    @pytest.mark.parametrize("workers", [1, 2])
    def test_data_that_are_made_are_shown_and_those_that_are_there_are_not(
        self, tiny: Spec, folder: Path, workers: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The runs share their data: whoever watches sees them made, once, and nothing of their being read."""
        monkeypatch.setenv("HOFNO_DATA", str(folder / "store"))
        begun: list[str] = []

        class Recorded(Silent):
            def start(self, label: str, total: int, done: int, unit: str = "step") -> None:
                begun.append(label)

        for out in ("first", "second"):
            study.run_study(specs.parse({**tiny.plain(), "sweep": {"seed": [0, 1]}}), folder / out, Recorded(), workers)
        assert [label for label in begun if "samples" in label] == ["generate samples"]

    def test_parts_that_are_run_at_once(self, tiny: Spec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What others have done since a process began, runs, divergence and errors on other grids, is not lost."""
        values = {**tiny.plain(), "compare": [{"label": name, "set": {"model.width": w}} for name, w in WIDTHS.items()]}
        whole, out, try_member = specs.parse(values), folder / "out", study.try_member

        def meanwhile(member: Spec, *rest: Any) -> Any:
            if member.label == "third":
                return "the loss turned nan"
            outcome = try_member(member, *rest)
            if member.label == "first":
                study.run_study(whole, out, Silent(), only=("second",))
                study.run_study(whole, out, Silent(), only=("third",))
                metrics = {"resolutions": {"17": {"metrics": {"rel_l2": 0.5}}}, "trained_at": 9}
                record = {"spec_hash": member.run_hash, **metrics}
                storage.write_json(study.member_folder(out, member) / study.RESOLUTION, record)
            return outcome

        monkeypatch.setattr(study, "try_member", meanwhile)
        found = study.run_study(whole, out, Silent(), only=("first",))
        assert storage.read_json(out / "results.json") == found
        assert [run["label"] for run in found["runs"]] == ["first", "second"]
        assert [run["label"] for run in found["diverged"]] == ["third"]
        assert found["runs"][0]["resolutions"] == {"trained_at": 9, "rel_l2": {"17": 0.5}}

    def test_results_that_another_process_writes_are_waited_for(
        self, tiny: Spec, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(study_results, "PATIENCE", 0.1)
        study.run_study(tiny, folder / "out", Silent())
        file = folder / "out" / "results.json"
        with study_results.owned(file):
            with pytest.raises(storage.InUseError, match="in use"):
                study.run_study(tiny, folder / "out", Silent())
            with pytest.raises(storage.InUseError, match="in use"):
                resolutions._note_in_results(file, [])
        resolutions._note_in_results(file, [])
        assert sorted(path.name for path in (folder / "out").iterdir()) == ["results.json", "runs"]

    def test_a_part_by_swept_values(self, tiny: Spec) -> None:
        swept = specs.parse({**tiny.plain(), "sweep": {"model.depth": [1, 2], "seed": [0, 1]}})
        assert study.chosen_members(swept, ()) == [0, 1, 2, 3]
        assert study.chosen_members(swept, ["HO-FNO"]) == [0, 1, 2, 3]
        assert study.chosen_members(swept, ["HO-FNO, depth 2"]) == [2, 3]
        assert study.chosen_members(swept, ["HO-FNO, seed 1"]) == [1, 3]
        assert study.chosen_members(swept, ["HO-FNO, depth 2, seed 0", "HO-FNO, depth 1, seed 1"]) == [1, 2]
        with pytest.raises(SpecError, match="'U-Net' names no run of the study; it has: HO-FNO, depth 1, seed 0; HO"):
            study.chosen_members(swept, ["HO-FNO", "U-Net"])

    @pytest.mark.parametrize(
        ("study_keys", "named"),
        [
            ({"sweep": {"seed": [0, 0]}}, "'HO-FNO, seed 0' and 'HO-FNO, seed 0'"),
            ({"compare": [{"label": "again"}]}, "'HO-FNO, seed 0' and 'again, seed 0'"),
            (
                {"compare": [{"label": "deep", "set": {"model.depth": 2}}], "sweep": {"model.depth": [1, 2]}},
                "'HO-FNO, depth 1, seed 0' and 'deep, depth 1, seed 0'",
            ),
            ({"compare": [{"label": "default", "set": {"train.lr": 1e-3}}]}, "'HO-FNO, seed 0' and 'default, seed 0'"),
        ],
    )
    @pytest.mark.parametrize("workers", [1, 2])
    def test_a_run_that_is_there_twice(
        self, tiny: Spec, folder: Path, study_keys: dict[str, Any], named: str, workers: int
    ) -> None:
        """It would be counted twice, and two workers would fight for one folder."""
        twice = specs.parse({**tiny.plain(), **study_keys})
        with pytest.raises(SpecError, match=f"two members of the study are one run, {named}"):
            study.run_study(twice, folder / "out", Silent(), workers=workers)
        assert not (folder / "out").exists()

    @pytest.mark.parametrize(
        "compare",
        [
            [{"label": "other", "set": {"model.order": 1}}, {"label": "other", "set": {"train.lr": 0.01}}],
            [{"label": "HO-FNO", "set": {"model.order": 1}}],
            [
                {"label": "x", "set": {"label": "a", "train.lr": 0.02}},
                {"label": "x", "set": {"label": "b", "train.lr": 0.01}},
            ],
        ],
    )
    def test_equal_labels_are_refused_before_training(self, tiny: Spec, folder: Path, compare: list[Any]) -> None:
        for sweep in ({}, {"seed": [0, 1]}, {"train.clip": [0.5, 1.0]}):
            twice = specs.parse({**tiny.plain(), "compare": compare, "sweep": sweep})
            with pytest.raises(SpecError, match=r"give each \[\[compare\]\] a label of its own"):
                study.run_study(twice, folder / "out", Silent())
        assert not (folder / "out").exists()

    @pytest.mark.parametrize("workers", [1, 2])
    def test_a_member_that_diverges_is_noted_and_the_others_go_on(self, tiny: Spec, folder: Path, workers: int) -> None:
        values = {**tiny.plain(), "compare": [{"label": "after", "set": {"model.order": 1, "train.lr": 1e-3}}]}
        values["train"] = {**values["train"], "lr": 1e30}
        found = study.run_study(specs.parse(values), folder / "out", Silent(), workers=workers)
        assert [run["label"] for run in found["runs"]] == ["after"]
        (diverged,) = found["diverged"]
        assert (diverged["label"], diverged["seed"]) == ("HO-FNO", 0)
        assert "no checkpoint was saved before; lower train.lr" in diverged["reason"]
        stored = storage.read_json(folder / "out" / "results.json")
        assert (stored["runs"], stored["diverged"]) == (found["runs"], found["diverged"])
        with pytest.raises(DivergedError, match=r"^1 of 2 runs diverged, the others are done: 'HO-FNO' \(seed 0\); "):
            study.refuse_diverged(found)
        again = specs.override(specs.parse(values), {"train.lr": 2e-3})  # what diverged may be changed, nothing else
        study.check_study_folder(folder / "out", again)
        assert "diverged" not in study.run_study(again, folder / "out", Silent())
        with pytest.raises(SpecError, match="other settings"):
            study.check_study_folder(folder / "out", specs.override(again, {"train.lr": 3e-3}))

    def test_one_worker_that_fails_stops_the_others(self, tiny: Spec, folder: Path) -> None:
        """The second member would train for hours; it is stopped in time and can go on."""
        endless = {"label": "endless", "set": {"train.epochs": 10**6}}
        values = {**tiny.plain(), "compare": [endless]}
        stages.start_folder(specs.override(tiny, {"seed": 5}), study.member_folder(folder / "out", tiny))
        with pytest.raises(SpecError, match="belongs to another spec"):
            study.run_study(specs.parse(values), folder / "out", Silent(), workers=2)
        assert multiprocessing.active_children() == []
