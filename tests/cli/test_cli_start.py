"""`train.start`: a run that begins with the operator of another one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_cli_flow import FLOW
from test_cli_other_data import ARRAYS
from typer.testing import Result

import hofno as library

Hofno = Callable[..., Result]
Refused = Callable[..., str]
FURTHER = ("--set", "train.start=first", "--set", "data.seed=5", "--set", "data.resolution=20")


def done(result: Result) -> str:
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture
def first(hofno: Hofno, folder: Path) -> Path:
    done(hofno("train", "tiny.toml", "--out", "first"))
    return folder / "first"


def test_a_run_goes_on_from_another(first: Path, hofno: Hofno, refused: Refused) -> None:
    assert "operator in first" in done(hofno("show", "tiny.toml", *FURTHER))
    still = ("--set", "train.lr=1e-30", "--set", "train.weight_decay=0")
    done(hofno("train", "tiny.toml", "--out", "second", *FURTHER, *still))
    before, after = library.load("first"), library.load("second")
    x = np.random.default_rng(0).normal(size=(2, 2, 20, 20)).astype(np.float32)
    np.testing.assert_array_equal(after.predict(x), before.predict(x))
    assert after.stamp["start"]["data"] == before.stamp["data"]
    shutil.rmtree("first")
    done(hofno("evaluate", "second"))  # what was started with is needed no more
    assert "no saved model at first" in refused("train", "tiny.toml", "--out", "third", *FURTHER)


def test_a_study_compares_starts(first: Path, hofno: Hofno, refused: Refused) -> None:
    text = Path("tiny.toml").read_text() + '\n[[compare]]\nlabel = "anew"\n[compare.set]\n"train.start" = ""\n'
    Path("study.toml").write_text(text.replace("[train]\n", '[train]\nstart = "first"\n'))
    seed = ("--set", "data.seed=5")
    done(hofno("run", "study.toml", "--out", "out", *seed))
    assert "anew" in Path("out/report.md").read_text()
    done(hofno("run", "study.toml", "--out", "out", *seed))
    shutil.rmtree("first")
    done(hofno("train", "tiny.toml", "--out", "first", "--set", "seed=3"))
    told = refused("run", "study.toml", "--out", "out", *seed)
    assert "first is another operator than" in told
    assert "choose another --out" in told


def test_an_unfinished_run_wants_the_operator_it_began_with(
    first: Path, folder: Path, hofno: Hofno, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hofno.train import loop

    with monkeypatch.context() as patch:
        patch.setattr(loop, "gain_experience", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt()))
        assert hofno("train", "tiny.toml", "--out", "second", *FURTHER).exit_code != 0
    shutil.move("first", "kept")
    done(hofno("train", "tiny.toml", "--out", "first", "--set", "seed=3"))
    assert "start was" in refused("train", "--resume", "second")
    shutil.rmtree("first")
    shutil.move("kept", "first")
    (folder / "elsewhere").mkdir()
    with monkeypatch.context() as patch:
        patch.chdir(folder / "elsewhere")
        told = refused("train", "--resume", str(folder / "second"))
        assert "no saved model at first: there is nothing there; give the folder" in told
        assert f"taken from the folder hofno runs in: {folder / 'elsewhere'}" in told
    done(hofno("train", "--resume", "second"))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("model.width=12", "model.width is 12 and that of the operator to start with 8; set model.width=8"),
        ("model.name=fno", "is a HOFNO and the model a FNO"),
        ("data.degree=3", "takes 2 input channels and predicts 1; these data have 3 and 1"),
        ("train.normaliser=pixel", "train.normaliser='channel'"),
    ],
)
def test_what_does_not_fit_is_told_before_data_are_made(first: Path, refused: Refused, key: str, message: str) -> None:
    for command in (("show", "tiny.toml"), ("train", "tiny.toml", "--out", "second")):
        assert message in refused(*command, *FURTHER, "--set", key)
    assert not Path("second").exists()


def test_an_operator_that_may_know_test_samples_is_refused(folder: Path, hofno: Hofno, refused: Refused) -> None:
    rng = np.random.default_rng(0)
    for name, shape in {"x": (20, 2, 8, 8), "y": (20, 1, 8, 8)}.items():
        np.save(f"{name}.npy", rng.normal(size=shape).astype(np.float32))
    Path("own.toml").write_text(ARRAYS)
    once = ("--set", "train.epochs=1")
    done(hofno("train", "own.toml", "--out", "first", *once))
    start = (*once, "--set", "train.start=first")
    told = refused("train", "own.toml", "--out", "second", *start, "--set", "data.seed=7")
    assert "cut by data.seed=0; with data.seed=7, test samples could be among those it knows: cut them as" in told
    done(hofno("train", "own.toml", "--out", "second", *start))

    Path("flow.toml").write_text(FLOW)
    done(hofno("train", "flow.toml", "--out", "flow", *once))
    start = (*once, "--set", "train.start=flow")
    told = refused("train", "flow.toml", "--out", "other", *start, "--set", "data.test=1")
    assert "with data.samples=7 and data.test=1, test samples could be among those it knows" in told
    assert "--set data.seed=" in told


@pytest.fixture
def own(folder: Path, hofno: Hofno) -> tuple[str, ...]:
    """Two sets of files of one's own, and a run `first` on one of them; settings that name the other."""
    rng = np.random.default_rng(0)
    Path("own.toml").write_text(ARRAYS)
    for name, shape in {"x": (20, 2, 8, 8), "y": (20, 1, 8, 8)}.items():
        np.save(f"{name}.npy", rng.normal(size=shape).astype(np.float32))
        np.save(f"new_{name}.npy", rng.normal(size=shape).astype(np.float32))
    done(hofno("train", "own.toml", "--out", "first", "--set", "train.epochs=1"))
    return (
        "--set",
        "train.epochs=1",
        "--set",
        "train.start=first",
        "--set",
        "data.x=new_x.npy",
        "--set",
        "data.y=new_y.npy",
    )


def test_an_operator_from_elsewhere_comes_without_its_files(
    own: tuple[str, ...], hofno: Hofno, refused: Refused, tmp_path: Path
) -> None:
    for name in ("x", "y"):
        shutil.move(f"{name}.npy", tmp_path / f"{name}.npy")
    done(hofno("train", "own.toml", "--out", "second", *own, "--set", "data.seed=7"))
    for name in ("x", "y"):  # others of the same name do not hide where the samples are known from
        shutil.copy(f"new_{name}.npy", f"{name}.npy")
    known = ("--set", f"data.x={tmp_path / 'x.npy'}", "--set", f"data.y={tmp_path / 'y.npy'}", "--set", "data.seed=7")
    assert "among those it knows" in refused("show", "own.toml", *own, *known)


def test_files_that_have_grown_are_cut_otherwise(own: tuple[str, ...], hofno: Hofno, refused: Refused) -> None:
    counts = [part for key in ("train=16", "valid=2", "test=2") for part in ("--set", f"data.{key}")]
    start = (*own[:4], *counts)
    done(hofno("show", "own.toml", *start))
    for name in ("x", "y"):
        np.save(f"{name}.npy", np.concatenate([np.load(f"{name}.npy"), np.load(f"new_{name}.npy")]))
    assert "cut by data.x=x.npy of 10368 bytes" in refused("show", "own.toml", *start)
    assert "cut by data.train=16" in refused("show", "own.toml", *own[:4])


def test_other_targets_of_the_same_samples_are_cut_alike(own: tuple[str, ...], hofno: Hofno) -> None:
    np.save("y.npy", np.load("y.npy").astype(np.float64))  # as many samples, in a longer file
    done(hofno("show", "own.toml", *own[:4]))


def test_what_its_own_start_knew_is_known(own: tuple[str, ...], hofno: Hofno, refused: Refused) -> None:
    done(hofno("train", "own.toml", "--out", "second", *own))
    third = ("--set", "train.start=second", "--set", "data.seed=7")
    assert "with data.seed=7, test samples could be among" in refused("train", "own.toml", "--out", "third", *third)
    back = ("--set", "data.x=x.npy", "--set", "data.y=y.npy")
    told = refused("evaluate", "second", *back, "--set", "data.seed=7")
    assert "the operator that the run started with was trained on some of the same samples" in told
    done(hofno("evaluate", "second", *back))


def test_in_python_files_are_known_too(own: tuple[str, ...]) -> None:
    operator = library.load("first")
    data = library.generate("arrays", x="x.npy", y="y.npy", seed=7)
    with pytest.raises(library.HofnoError, match=r"data\.seed=0; with data\.seed=7"):
        library.fit(operator, data, epochs=1, progress=False)
    saved = operator.save("elsewhere")
    with pytest.raises(library.HofnoError, match=r"data\.seed=0; with data\.seed=7"):
        library.fit(operator.model, data, epochs=1, progress=False, start=str(saved))
