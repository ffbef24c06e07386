"""`hofno combine`: finished runs as one operator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from typer.testing import Result

from hofno.saved import load

Hofno = Callable[..., Result]
Refused = Callable[..., str]
VALID = ("--set", "data.valid=12")


def test_runs_of_two_seeds(hofno: Hofno, refused: Refused, folder: Path) -> None:
    for seed in (0, 1):
        assert hofno("train", "tiny.toml", "--out", f"run{seed}", "--set", f"seed={seed}", *VALID).exit_code == 0
    result = hofno("combine", "run0", "run1", "--out", "both")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "mean of their predictions" in result.output
    assert "bounds of single samples" in result.output
    operator, members = load(folder / "both"), [load(folder / f"run{seed}") for seed in (0, 1)]
    x = torch.randn(3, 2, 16, 16)
    expected = torch.stack([one.predict(x) for one in members])
    torch.testing.assert_close(operator.predict(x), expected.mean(0), rtol=1e-4, atol=1e-5)
    record = json.loads((folder / "both" / "evaluation.json").read_text())
    assert record["metrics"]["rel_l2"] < max(member["rel_l2"] for member in record["members"])
    assert record["bound"]["each"]["lowest"] <= record["bound"]["each"]["highest"]

    np.save("x.npy", x.numpy())
    told = hofno("predict", "both", "x.npy", "y.npy", "--spread", "apart.npy")
    assert told.exit_code == 0, told.output
    np.testing.assert_allclose(np.load("apart.npy"), expected.std(0).numpy(), rtol=1e-3, atol=1e-5)
    assert "apart.npy exists already" in refused("predict", "both", "x.npy", "z.npy", "--spread", "apart.npy")
    for same in ("z.npy", "x.npy"):
        assert "need a file each" in refused("predict", "both", "x.npy", "z.npy", "--spread", same, "--force")
    assert "hofno.combine" in refused("predict", "run0", "x.npy", "z.npy", "--spread", "other.npy")
    assert not (folder / "z.npy").exists()
    assert hofno("check", "both").exit_code == 0
    assert hofno("export", "both", "both.pt2").exit_code == 0

    assert "exists already" in refused("combine", "run0", "run1", "--out", "both")
    assert "two runs or more" in refused("combine", "run0", "--out", "new")
    assert "the same network" in refused("combine", "run0", "run0", "--out", "new")
    assert "it is a saved model" in refused("combine", "run0", "both", "--out", "new")
    assert "among the runs of a study" in refused("combine", "run0", "run1", "--only", "FNO", "--out", "new")
    assert hofno("train", "tiny.toml", "--out", "other", "--set", "data.seed=5", *VALID).exit_code == 0
    assert "on other data" in refused("combine", "run0", "other", "--out", "new")
    assert not (folder / "new").exists()


def test_the_runs_of_a_study(hofno: Hofno, refused: Refused, folder: Path) -> None:
    study = (folder / "tiny.toml").read_text() + '\n[[compare]]\nlabel = "FNO"\n[compare.set]\n"model.name" = "fno"\n'
    (folder / "study.toml").write_text(study + "\n[sweep]\nseed = [0, 1]\n")
    assert hofno("run", "study.toml", "--out", "study").exit_code == 0
    assert "study of FNO, HO-FNO; say which" in refused("combine", "study", "--out", "new")
    assert "there are: FNO, HO-FNO" in refused("combine", "study", "--only", "UNet", "--out", "new")
    result = hofno("combine", "study", "--only", "HO-FNO", "--out", "new")
    assert result.exit_code == 0, result.output
    assert len(load(folder / "new").variants()) == 2
    assert hofno("combine", "study", "--only", "HO-FNO", "--only", "FNO", "--out", "all").exit_code == 0
    assert len(load(folder / "all").variants()) == 4
