"""`hofno export`: a run to a file that runs without hofno."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from typer.testing import Result

from hofno.saved import load

Hofno = Callable[..., Result]
Refused = Callable[..., str]


def test_a_run(hofno: Hofno, refused: Refused, folder: Path) -> None:
    assert hofno("train", "tiny.toml", "--out", "run").exit_code == 0
    result = hofno("export", "run", "run.pt2", "--shape", "20x20")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "differs from the operator by" in result.output
    operator = load(folder / "run")
    x = torch.randn(2, operator.inputs.mean.shape[0], 20, 20)
    with torch.no_grad():
        found = torch.export.load(folder / "run.pt2").module()(x=x)
    np.testing.assert_allclose(found.numpy(), operator.predict(x).numpy(), rtol=1e-4, atol=1e-6)

    assert "exists already" in refused("export", "run", "run.pt2")
    assert hofno("export", "run", "run.pt2", "--force", "--batch", 1).exit_code == 0
    assert "such as 85x85" in refused("export", "run", "other.pt2", "--shape", "20,20")
    assert "ends in .onnx or .pt2" in refused("export", "run", "other.bin")
    assert "leave it out" in refused("export", "run", "other.pt2", "--steps", 3)
    assert "no saved model" in refused("export", "nothing", "other.pt2")
    assert not (folder / "other.pt2").exists()
