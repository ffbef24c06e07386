"""Arrays of the user's own on a surface: made, refused, learnt, saved and read again."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hofno
from hofno.errors import DataError, SpecError
from hofno.problems.symmetry import mirror
from hofno.train.loop import Interrupted
from hofno.train.step import Step
from hofno.transforms import manifold
from triangulated import square, torus

TORUS = torus(6, 5)


def arrays(count: int = 20) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(count, 2, 30)).astype(np.float32)
    return x, x[:, :1] * x[:, 1:]


def test_a_dataset() -> None:
    x, y = arrays()
    data = hofno.from_arrays(x, y, surface=TORUS, seed=None)
    assert data.grid == TORUS
    assert (data.in_channels, data.out_channels) == (2, 1)
    np.testing.assert_array_equal(data.train.x, x[:16])
    assert repr(data).endswith("2 to 1 channels, surface of 30)")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"surface": square(4)}, r"a surface of 16 vertices are \(n, channels, 16\); got \(20, 1, 30\)"),
        ({"surface": TORUS, "periodic": True}, "leave coords, mask and periodic out"),
        ({"surface": TORUS, "coords": np.zeros((3, 30))}, "leave coords, mask and periodic out"),
        ({"surface": (TORUS.vertices, TORUS.triangles)}, r"surface is a hofno.Surface\(.*got tuple"),
        ({"surface": TORUS, "symmetry": mirror(0, axes=1)}, "motions of the vertices of a surface are not known"),
    ],
)
def test_what_does_not_belong_together(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        hofno.from_arrays(*arrays(), **given)


def test_learnt_saved_and_loaded(tmp_path: Path) -> None:
    """`fit` places the network on the surface of the data; what is saved needs nothing else."""
    x, y = arrays(40)
    data = hofno.from_arrays(x, y, surface=TORUS)
    torch.manual_seed(0)
    model = hofno.HONORM(2, 1, functions=30, width=8, depth=1, backbone="classic", coordinates="none")
    run = hofno.fit(model, data, epochs=60, lr=2e-2, batch_size=8, progress=False)
    error = hofno.evaluate(run, data.test)["rel_l2"]
    assert error < 0.2
    run.save(tmp_path / "model")
    loaded = hofno.load(tmp_path / "model")
    assert loaded.grid == TORUS
    np.testing.assert_array_equal(loaded.predict(x), run.predict(x))
    assert hofno.evaluate(loaded, data.test)["rel_l2"] == error


def test_a_run_goes_on_on_its_surface_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the same bits, the surface's functions among them, and never on another surface."""
    x, y = arrays()

    def fitted(surface: hofno.Surface = TORUS, **settings: Any) -> hofno.Run:
        torch.manual_seed(0)
        model, data = hofno.NORM(2, 1, 6, width=4, depth=1), hofno.from_arrays(x, y, surface=surface)
        how = {"epochs": 3, "batch_size": 8, "ema": 0.9, "select": "best", "optimiser": "muon", "progress": False}
        return hofno.fit(model, data, device="cpu", **how, **settings)

    unbroken, run, count = fitted(), Step._run, [0]

    def counted(self: Step, indices: torch.Tensor) -> None:
        run(self, indices)
        count[0] += 1
        if count[0] == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Step, "_run", counted)
    with pytest.raises(Interrupted, match="stopped at step 3 of 6"):
        fitted(out=tmp_path / "run")
    monkeypatch.undo()
    with pytest.raises(DataError, match=r"geometry was Surface\(30 vertices, .*\) and is Surface\(30 vertices"):
        fitted(torus(6, 5, 2.0), out=tmp_path / "run", resume=True)
    resumed = fitted(out=tmp_path / "run", resume=True)
    assert resumed.surrogate.files()["model.safetensors"] == unbroken.surrogate.files()["model.safetensors"]
    kept = resumed.surrogate.model.state_dict()["basis.functions"]
    assert torch.equal(kept, torch.tensor(manifold.basis(TORUS, 6)[1]).float()), "training leaves them as they are"


def test_a_network_of_another_surface_is_refused() -> None:
    x, y = arrays()
    model = hofno.NORM(2, 1, 6, width=4).place(torus(6, 5, 2.0))
    with pytest.raises(SpecError, match="the network is on another surface"):
        hofno.fit(model, hofno.from_arrays(x, y, surface=TORUS), epochs=1, progress=False)
    with pytest.raises(SpecError, match="'fno' takes fields on a grid or on a mesh, and these are on a surface"):
        hofno.fit(hofno.FNO(2, 1, (4,)), hofno.from_arrays(x, y, surface=TORUS), epochs=1, progress=False)
