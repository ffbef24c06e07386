"""Every command that makes or uses a run: what it writes, says and refuses."""

from __future__ import annotations

import json
import statistics
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

import hofno as package
from hofno import spec as specs
from hofno import stages, storage
from hofno.data.npy import npy_bytes

Hofno = Callable[..., Result]
Refused = Callable[..., str]

SQUARE = """
[data]
problem = "darcy"
resolution = 21
solver_resolution = 21
train = 4
valid = 2
test = 3

[model]
name = "hofno"
modes = [3, 3]
width = 4
depth = 1

[train]
epochs = 1
batch_size = 2
augment = true
"""


@pytest.fixture
def run(hofno: Hofno, folder: Path) -> Path:
    """A finished run."""
    result = hofno("train", "tiny", "--out", "run")
    assert result.exit_code == 0, result.output
    return folder / "run"


def test_generate(hofno: Hofno, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOFNO_DATA", str(folder / "store"))
    first = hofno("generate", "tiny")
    assert first.exit_code == 0, first.output
    (made,) = (folder / "store").iterdir()
    assert f"written to {made}" in first.stdout
    assert "20 x 16 x 16" in first.stdout
    assert "target 1" in first.stdout
    content = {path.name: path.read_bytes() for path in made.iterdir()}
    again = hofno("generate", "tiny")
    assert f"read from {made}" in again.stdout
    (made / "test.x.npy").write_bytes(b"damaged")
    broken = hofno("generate", "tiny")
    assert broken.exit_code == 2
    assert f"delete {made}" in broken.stderr
    assert f"written to {made}" in hofno("generate", "tiny", "--force").stdout
    arrays = [name for name in content if name.endswith(".npy")]
    assert len(arrays) == 6
    assert all((made / name).read_bytes() == content[name] for name in arrays)


def test_data_are_made_whatever_the_model_is(hofno: Hofno, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that does not take them is told, and refused where it is trained."""
    monkeypatch.setenv("HOFNO_DATA", str(folder / "store"))
    told = hofno("generate", "tiny", "--set", "model.modes=[40, 40]", "--threads", "1")
    assert told.exit_code == 0, told.output
    assert "the model of tiny cannot be trained on them as it is: modes[0]=40 is more than" in told.stdout
    assert "cannot be trained" not in hofno("generate", "tiny").stdout
    assert hofno("train", "tiny", "--out", "run", "--set", "model.modes=[40, 40]").exit_code == 2
    wrong = hofno("generate", "tiny", "--set", 'targets=["a", "b"]')
    assert wrong.exit_code == 2
    assert "names 2 channels" in wrong.stderr
    assert "--threads is a number" in hofno("generate", "tiny", "--threads", "none").stderr


def test_train_writes_a_run(run: Path, hofno: Hofno) -> None:
    names = {path.name for path in run.iterdir()}
    model = {"model.safetensors", "normalisers.safetensors", "experience.safetensors", "model.json", "manifest.json"}
    assert names == model | {"spec.toml", "metrics.jsonl", "evaluation.json", "checkpoints"}
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert all({"train_loss", "valid_rel_l2", "rate", "seconds", "step"} <= set(row) for row in rows)
    record = json.loads((run / "evaluation.json").read_text())
    assert len(record["per_sample"]["rel_l2"]) == 6
    assert record["metrics"]["rel_l2"] == pytest.approx(np.mean(record["per_sample"]["rel_l2"]))
    assert record["parameters"] == {"real": 937, "complex_once": 713}


def test_the_validation_error_is_that_of_the_weights_that_are_kept(hofno: Hofno, folder: Path) -> None:
    wild = ("--set", "train.lr=0.1", "--set", "train.schedule=constant")
    for select in ("last", "best"):
        hofno("train", "tiny", "--out", select, *wild, "--set", f"train.select={select}")
        record = json.loads((folder / select / "evaluation.json").read_text())
        operator, data = package.load(folder / select), stages.make_data(stages.read_spec(folder / select))
        assert record["valid_rel_l2"] == pytest.approx(package.evaluate(operator, data.valid)["rel_l2"], rel=1e-5)
    rows = [json.loads(line) for line in (folder / "best" / "metrics.jsonl").read_text().splitlines()]
    assert min(row["valid_rel_l2"] for row in rows) < 0.99 * rows[-1]["valid_rel_l2"], "or this test tells nothing"


def test_train_prints_the_test_errors(hofno: Hofno, folder: Path) -> None:
    result = hofno("train", "tiny", "--out", "printed")
    record = json.loads((folder / "printed" / "evaluation.json").read_text())
    assert f"test rel_l2: {record['metrics']['rel_l2']:.6g}" in result.stdout
    assert "saved in printed" in result.stdout


def test_train_keeps_to_the_spec_of_a_study(hofno: Hofno, folder: Path) -> None:
    with (folder / "tiny.toml").open("a") as file:
        file.write('[[compare]]\nlabel = "other"\nset = {"model.order" = 1}\n')
    result = hofno("train", "tiny", "--out", "own")
    assert "a study of 2 runs; only its own" in result.stdout
    assert "order = 2" in (folder / "own" / "spec.toml").read_text()
    assert "compare" not in (folder / "own" / "spec.toml").read_text().replace("compare = []", "")


def test_train_into_a_used_folder(run: Path, refused: Refused, folder: Path) -> None:
    assert "run holds a finished run" in refused("train", "tiny", "--out", "run")
    (run / "model.safetensors").unlink()
    assert "hofno train --resume run" in refused("train", "tiny", "--out", "run")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "thesis.txt").write_text("mine")
    assert "is not a run folder" in refused("train", "tiny", "--out", "foreign")
    assert "is a file" in refused("train", "tiny", "--out", "tiny.toml")
    assert [path.name for path in (folder / "foreign").iterdir()] == ["thesis.txt"]


def test_train_needs_a_spec_and_a_folder(refused: Refused) -> None:
    assert "--out RUN" in refused("train", "tiny")
    assert "--resume RUN" in refused("train")
    assert "leave out SPEC" in refused("train", "tiny", "--resume", "run")
    assert "is not a run folder" in refused("train", "--resume", "nowhere")


def test_resume_of_a_finished_run(run: Path, hofno: Hofno) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    result = hofno("train", "--resume", run)
    assert result.exit_code == 0
    assert "is finished" in result.stdout
    assert before == {path.name: path.stat().st_mtime_ns for path in run.iterdir()}


def test_resume_evaluates_a_run_that_was_only_trained(run: Path, hofno: Hofno) -> None:
    before = json.loads((run / "evaluation.json").read_text())
    weights = (run / "model.safetensors").stat().st_mtime_ns
    (run / "evaluation.json").unlink()
    assert hofno("train", "--resume", run).exit_code == 0
    assert json.loads((run / "evaluation.json").read_text())["metrics"] == before["metrics"]
    assert (run / "model.safetensors").stat().st_mtime_ns == weights


def test_evaluate(run: Path, hofno: Hofno) -> None:
    record = json.loads((run / "evaluation.json").read_text())
    (run / "evaluation.json").unlink()
    result = hofno("evaluate", run)
    assert result.exit_code == 0, result.output
    assert f"{record['metrics']['rel_l2']:.6g}" in result.stdout
    errors = record["per_sample"]["rel_l2"]
    assert f"worst samples by rel_l2: {int(np.argmax(errors))} ({max(errors):.4g})" in result.stdout
    assert len(errors) % 2 == 0
    assert f"{statistics.median(errors):.6g}" in result.stdout
    assert json.loads((run / "evaluation.json").read_text()) == record


def test_evaluate_on_other_data_writes_nothing(run: Path, hofno: Hofno) -> None:
    before = (run / "evaluation.json").read_bytes()
    result = hofno("evaluate", run, "--set", "data.resolution=20", "--set", "data.test=3")
    assert result.exit_code == 0, result.output
    assert "3 test samples" in result.stdout
    assert "nothing is written" in result.stdout
    assert (run / "evaluation.json").read_bytes() == before


def test_evaluate_as_a_mean_over_symmetries(hofno: Hofno, refused: Refused, folder: Path, run: Path) -> None:
    (folder / "square.toml").write_text(SQUARE)
    assert hofno("train", "square.toml", "--out", "one").exit_code == 0
    own = json.loads((folder / "one" / "evaluation.json").read_text())["metrics"]
    result = hofno("evaluate", "one", "--set", "train.symmetric=true")
    assert result.exit_code == 0, result.output
    assert "other predictions than the run's own: nothing is written" in result.stdout
    settings = ("--out", "mean", "--set", "train.symmetric=true")
    assert hofno("train", "square.toml", *settings).exit_code == 0
    mean = json.loads((folder / "mean" / "evaluation.json").read_text())["metrics"]
    assert mean["rel_l2_one_view"] == pytest.approx(own["rel_l2"])
    assert mean["rel_l2"] != own["rel_l2"]
    assert f"{mean['rel_l2']:.6g}" in result.stdout
    assert f"{own['rel_l2']:.6g}" in hofno("evaluate", "mean", "--set", "train.symmetric=false").stdout
    assert f"{mean['rel_l2_one_view']:.6g}" in hofno("evaluate", "mean").stdout
    for more in ((), ("--resolution", "16")):
        told = refused("evaluate", run, *more, "--set", "train.symmetric=true")
        assert "was trained without them; leave it out, or train another run with train.augment=true" in told


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("data.degree=3", "takes 2 input channels"),
        ("train.epochs=3", "evaluate can change the data"),
        ("data.problem=other", "evaluate can change the data"),
        ("data.resolution=4", "need more than 8 points"),
    ],
)
def test_evaluate_refuses(run: Path, refused: Refused, setting: str, text: str) -> None:
    assert text in refused("evaluate", run, "--set", setting)


def test_evaluate_an_unfinished_or_foreign_folder(hofno: Hofno, refused: Refused, run: Path, folder: Path) -> None:
    (run / "model.safetensors").unlink()
    assert "has not finished" in refused("evaluate", run)
    (folder / "foreign").mkdir()
    assert "is not a run folder" in refused("evaluate", "foreign")


def test_predict(run: Path, hofno: Hofno, folder: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, 2, 16, 16))
    np.save(folder / "x.npy", x)
    assert hofno("predict", run, "x.npy", "y.npy").exit_code == 0
    y = np.load(folder / "y.npy")
    np.testing.assert_array_equal(y, package.load(run).predict(x))
    np.save(folder / "one.npy", np.asfortranarray(x[1].astype(">f8")))
    assert hofno("predict", run, "one.npy", "sub/one-out.npy").exit_code == 0
    np.testing.assert_allclose(np.load(folder / "sub" / "one-out.npy"), y[1], rtol=1e-4, atol=1e-6)


def test_predict_says_what_error_to_expect(hofno: Hofno, folder: Path) -> None:
    trained = hofno("train", "tiny", "--out", "sure", "--set", "data.valid=12", "--set", "data.test=8")
    assert trained.exit_code == 0, trained.output
    operator = package.load(folder / "sure")
    record = json.loads((folder / "sure" / "evaluation.json").read_text())
    within = float(np.mean(np.array(record["per_sample"]["rel_l2"]) <= operator.error_bound(0.9)))
    bound = {"coverage": 0.9, "rel_l2": operator.error_bound(0.9), "kept": within}
    assert record["bound"] == bound | {"validation_samples": 12, "test_samples": 8, "selected": False}
    told = hofno("evaluate", "sure").stdout
    assert f"{bound['rel_l2']:.4g}; {within:.0%} of these test samples stay below it" in " ".join(told.split())
    assert "it is one on" not in told
    told = " ".join(hofno("evaluate", "sure", "--set", "data.resolution=20").stdout.split())
    assert "of these test samples stay below it; it is one on 16 x 16 points, and these are 20 x 20" in told

    x = stages.make_data(specs.load(folder / "sure" / "spec.toml")).valid.x.numpy()
    np.save(folder / "x.npy", np.concatenate((x[:2], 1000 * x[2:4])))
    told = " ".join(hofno("predict", "sure", "x.npy", "y.npy").stdout.split())
    assert f"at most {operator.error_bound(0.9):.3g} for 90% of inputs like those of validation (12 samples)" in told
    assert "unlike the inputs of training: 2 of 4, by number" in told
    np.save(folder / "fine.npy", np.repeat(x[:1], 2, 3))
    assert "not on those given" in hofno("predict", "sure", "fine.npy", "z.npy").stdout
    np.save(folder / "other.npy", 1000 * x[:1])
    assert "error expected" not in hofno("predict", "sure", "other.npy", "other-out.npy").stdout


def test_predict_names_strange_inputs_whatever_the_number_of_validation_samples(
    run: Path, hofno: Hofno, folder: Path
) -> None:
    x = stages.make_data(specs.load(run / "spec.toml")).valid.x.numpy()
    np.save(folder / "x.npy", np.concatenate((x[:2], 1000 * x[2:4])))
    told = " ".join(hofno("predict", run, "x.npy", "y.npy").stdout.split())
    assert "a bound for 90% of inputs takes 9 validation samples, and the training had 4" in told
    assert "unlike the inputs of training: 2 of 4, by number" in told


def test_predict_does_not_overwrite(run: Path, hofno: Hofno, refused: Refused, folder: Path) -> None:
    np.save(folder / "x.npy", np.ones((1, 2, 16, 16)))
    (folder / "y.npy").write_text("precious")
    assert "--force" in refused("predict", run, "x.npy", "y.npy")
    assert (folder / "y.npy").read_text() == "precious"
    assert hofno("predict", run, "x.npy", "y.npy", "--force").exit_code == 0
    assert np.load(folder / "y.npy").shape == (1, 1, 16, 16)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.ones((1, 3, 16, 16)), "expected (n, 2, *grid)"),
        (np.ones((16, 16)), "got shape (16, 16)"),
        (np.ones((1, 2, 16)), "expected (n, 2, *grid)"),
        (np.full((2, 2, 16, 16), np.nan), "NaN or infinite, in 2 of 2 samples"),
        (np.full((1, 2, 16, 16), 1e300), "too large for float32"),
        (np.ones((1, 2, 16, 16), complex), "real numbers; got dtype complex128"),
        (np.array(["text"]), "real numbers; got dtype <U4"),
        (np.ones((0, 2, 16, 16)), "at least one"),
        (np.ones((1, 2, 4, 4)), "modes"),
    ],
)
def test_predict_refuses_arrays_that_do_not_fit(
    run: Path, refused: Refused, folder: Path, values: np.ndarray, text: str
) -> None:
    np.save(folder / "x.npy", values)
    assert text in refused("predict", run, "x.npy", "y.npy")
    assert not (folder / "y.npy").exists()


def test_predict_never_unpickles(run: Path, refused: Refused, folder: Path) -> None:
    trap = folder / "sprung"
    payload = f"cpathlib\nPath\n(S'{trap}'\ntRp0\n.".encode()
    np.save(folder / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (folder / "pickle.npy").write_bytes(b"\x80\x04" + payload)
    np.savez(folder / "archive.npz", np.ones(3))
    (folder / "text.npy").write_text("1 2 3")
    (folder / "empty.npy").write_bytes(b"")
    for name in ("objects.npy", "pickle.npy", "archive.npz", "text.npy", "empty.npy"):
        message = refused("predict", run, name, "y.npy")
        assert "real numbers" in message or "not a NumPy .npy file" in message
    assert "is missing" in refused("predict", run, "nothing.npy", "y.npy")
    assert "not a file" in refused("predict", run, ".", "y.npy")
    assert not trap.exists()


def test_predict_refuses_a_lying_header_before_memory_is_asked_for(run: Path, refused: Refused, folder: Path) -> None:
    honest = npy_bytes(np.ones((1, 2, 16, 16), np.float32))
    for shape, text in (
        (b"(8192, 262144) ", "claims shape (8192, 262144) of float32, 8589934592 bytes, and holds 0"),
        (b"(-2, 1, -256)  ", "claims shape (-2, 1, -256)"),
        (b"((((((((((((((", "not a NumPy .npy file"),
    ):
        lie = honest.replace(b"(1, 2, 16, 16)", shape[:14], 1)
        assert len(lie) == len(honest)
        (folder / "lie.npy").write_bytes(lie if b"-" in shape else lie[:128])
        assert text in refused("predict", run, "lie.npy", "y.npy")
    (folder / "short.npy").write_bytes(honest[:-1])
    assert "truncated or forged" in refused("predict", run, "short.npy", "y.npy")
    (folder / "long.npy").write_bytes(honest + b"x")
    assert "truncated or forged" in refused("predict", run, "long.npy", "y.npy")


def test_check(run: Path, hofno: Hofno) -> None:
    result = hofno("check", run)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert all(line.endswith(": sound") for line in lines)
    names = [line.removeprefix(f"{run}/").removesuffix(": sound") for line in lines]
    written = [path.relative_to(run).as_posix() for path in run.iterdir() if path.is_file()]
    assert sorted(names) == sorted([*written, *(f"checkpoints/step-00000000{step}" for step in (3, 6))])


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "model.json",
        "manifest.json",
        "normalisers.safetensors",
        "metrics.jsonl",
        "spec.toml",
        "evaluation.json",
        "checkpoints/step-000000006/state.safetensors",
        "checkpoints/step-000000003/position.json",
    ],
)
def test_check_finds_damage(run: Path, hofno: Hofno, name: str) -> None:
    content = (run / name).read_bytes()
    (run / name).write_bytes(content[: len(content) // 2])
    result = hofno("check", run)
    assert result.exit_code == 1
    assert "NOT SOUND" in result.stderr
    assert "Traceback" not in result.output
    assert ": sound" in result.stdout
    part = "/".join(name.split("/")[:2])
    assert any(line.startswith(f"{run / part}: NOT SOUND") for line in result.stderr.splitlines())


def test_check_a_saved_model_and_a_foreign_folder(run: Path, hofno: Hofno, folder: Path) -> None:
    package.load(run).save(folder / "saved")
    result = hofno("check", "saved")
    assert result.exit_code == 0
    assert {line.split(":")[0] for line in result.stdout.splitlines()} == {
        str(path.relative_to(folder)) for path in (folder / "saved").iterdir()
    }
    description = json.loads((folder / "saved" / "model.json").read_text())
    files = {path.name: path.read_bytes() for path in (folder / "saved").glob("*.safetensors")}
    files["model.json"] = json.dumps({**description, "grid": None}).encode()
    storage.save_folder(folder / "saved", files, {"kind": "model"})
    result = hofno("check", "saved")
    assert result.exit_code == 1
    assert "saved: NOT SOUND" in result.stderr, "whole files that make no model"
    (run / "model.safetensors").unlink()
    assert "model.safetensors: NOT SOUND" in hofno("check", run).stderr
    (folder / "foreign").mkdir()
    for name in ("foreign", "nowhere"):
        result = hofno("check", name)
        assert result.exit_code == 1
        assert "check the path" in result.stderr


def test_pickled_weights_are_refused(run: Path, refused: Refused, hofno: Hofno, folder: Path) -> None:
    import torch

    torch.save({"a": torch.ones(2)}, run / "model.safetensors")
    assert "model.safetensors is truncated" in refused("evaluate", run)
    files = {path.name: path.read_bytes() for path in run.glob("*.safetensors")}
    files["model.json"] = (run / "model.json").read_bytes()
    storage.save_folder(folder / "signed", files, {"kind": "model"})
    np.save(folder / "x.npy", np.ones((1, 2, 16, 16)))
    assert "this is a pickle file" in refused("predict", "signed", "x.npy", "y.npy")


STUDY = '[[compare]]\nlabel = "FNO"\nset = {"model.name" = "fno"}\n[sweep]\nseed = [0, 1]\n'


def test_run_report_and_results(hofno: Hofno, refused: Refused, folder: Path) -> None:
    with (folder / "tiny.toml").open("a") as file:
        file.write(STUDY)
    result = hofno("run", "tiny", "--out", "study", "--results", "results/tiny.json")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "report: study/index.html" in result.stdout
    assert (folder / "study" / "index.html").read_text().startswith("<!doctype html>")
    measured = json.loads((folder / "study" / "results.json").read_text())
    assert [run["seed"] for run in measured["runs"]] == [0, 1, 0, 1]
    assert {run["label"] for run in measured["runs"]} == {"HO-FNO", "FNO"}
    assert json.loads((folder / "results" / "tiny.json").read_text()) == measured
    (folder / "study" / "index.html").unlink()
    assert hofno("report", "study").exit_code == 0
    assert (folder / "study" / "index.html").exists()
    assert hofno("report", "results/tiny.json", "--out", "page").exit_code == 0
    assert "FNO" in (folder / "page" / "index.html").read_text()
    stamps = {path: path.stat().st_mtime_ns for path in (folder / "study" / "runs").glob("*/model.safetensors")}
    assert len(stamps) == 4
    changed = ["--set", "sweep.seed=[1, 2]", "--results", "results/tiny.json"]
    assert hofno("run", "tiny", "--out", "study", *changed).exit_code == 0
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    merged = json.loads((folder / "results" / "tiny.json").read_text())
    assert sorted((run["label"], run["seed"]) for run in merged["runs"]) == [
        (label, seed) for label in ("FNO", "HO-FNO") for seed in (0, 1, 2)
    ]
    assert hofno("check", "study").exit_code == 0
    other = ["--set", "name=other", "--set", "sweep.seed=[1]", "--results", "results/tiny.json"]
    assert "has name 'tiny'" in refused("run", "tiny", "--out", "study", *other)


def test_run_with_two_workers_gives_the_same_numbers(hofno: Hofno, folder: Path) -> None:
    settings = ["--set", "sweep.seed=[0, 1]", "--set", "train.epochs=1"]
    assert hofno("run", "tiny", "--out", "one", *settings).exit_code == 0
    two = hofno("run", "tiny", "--out", "two", "--workers", "2", *settings)
    assert two.exit_code == 0, (two.output, two.exception)
    errors = [
        [run["metrics"] for run in json.loads((folder / name / "results.json").read_text())["runs"]]
        for name in ("one", "two")
    ]
    assert errors[0] == errors[1]


def test_run_refuses_other_folders_before_it_trains(refused: Refused, folder: Path) -> None:
    (folder / "foreign").mkdir()
    (folder / "foreign" / "thesis.txt").write_text("mine")
    assert "holds no study" in refused("run", "tiny", "--out", "foreign")
    assert "order" in refused("run", "tiny", "--out", "study", "--set", "sweep.'model.order'=[2, 0]")
    assert not (folder / "study").exists()


def test_run_refuses_the_folder_of_another_study(hofno: Hofno, refused: Refused, folder: Path) -> None:
    """Finished or not, with its runs or without; going on and other parts of a sweep are no other study."""
    same = ["run", "tiny", "--out", "study", "--set", "train.epochs=1", "--set", "sweep.seed=[0]"]
    assert hofno(*same).exit_code == 0
    (made,) = (folder / "study" / "runs").iterdir()
    told = "study holds a study of other settings: {} was {} and is {}; choose another --out"
    others = {"train.epochs": (1, 2), "model.width": (8, 12), "train.noise": (0.0, 0.5), "data.waves": (8, 9)}
    for key, (was, now) in others.items():
        assert told.format(key, was, now) in refused(*same, "--set", f"{key}={now}")
    assert list((folder / "study" / "runs").iterdir()) == [made]
    results = (folder / "study" / "results.json").read_bytes()
    (folder / "study" / "results.json").unlink()
    assert "train.epochs was 1 and is 2" in refused(*same, "--set", "train.epochs=2")
    assert hofno(*same, "--set", "sweep.seed=[0, 1]", "--workers", "2").exit_code == 0
    assert hofno(*same, "--set", "sweep.seed=[1]").exit_code == 0
    (folder / "bare").mkdir()
    (folder / "bare" / "results.json").write_bytes(results)
    same[3] = "bare"
    assert "train.epochs was 1 and is 2" in refused(*same, "--set", "train.epochs=2")
    assert hofno(*same).exit_code == 0


def test_a_tracker_is_refused_before_a_folder_is_made(refused: Refused, folder: Path) -> None:
    assert "unknown tracker 'paper'" in refused("train", "tiny", "--out", "run", "--track", "paper")
    assert not (folder / "run").exists()


def test_report_needs_a_study(refused: Refused, folder: Path) -> None:
    assert "holds no study" in refused("report", "nowhere")
    (folder / "results.json").write_text("[1, 2]")
    assert "not a results file" in refused("report", ".")
    (folder / "results.json").write_text("{")
    assert "not valid JSON" in refused("report", ".")
    assert "--out FOLDER" in refused("report", "results.json")


def test_bench_passes_its_arguments_on(hofno: Hofno, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[object, ...]] = []
    fake = types.ModuleType("hofno.bench")
    fake.bench_command = lambda *arguments: called.append(arguments)  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "hofno.bench", fake)
    assert hofno("bench").exit_code == 0
    assert hofno("bench", "transform", "--shape", "ns", "--batch", "4", "--json", "b.json").exit_code == 0
    assert called == [("model", "all", 1, None), ("transform", "ns", 4, Path("b.json"))]
