"""What the card of Navier-Stokes says of float32: the scheme it is compared with, and the record behind the figures."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hofno.problems.navier_stokes import CARD, PUBLISHED, NavierStokesFlow

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    name = "navier_stokes_precision"
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return json.loads((ROOT / "results" / "checks" / "navier_stokes_precision.json").read_text(encoding="utf-8"))


def errors(record: dict[str, Any], scheme: str, precision: str, step: float, viscosity: float = 1e-5) -> np.ndarray:
    """(samples, frames)"""
    wanted = {"scheme": scheme, "precision": precision, "step": step, "viscosity": viscosity}
    return np.array([row["rel_l2"] for row in record["rows"] if {key: row[key] for key in wanted} == wanted])


@pytest.mark.parametrize("sample", [0, 1])
def test_published_scheme_converges_to_ours_at_first_order(tool: ModuleType, sample: int) -> None:
    """Our solver against a scheme written apart from it, in a flow that is not its linear part alone."""
    small = {"samples": 2, "viscosity": 1e-3, "resolution": 32, "solver_resolution": 32, "step": 1e-2}
    flow = NavierStokesFlow.model_validate(small)
    ours = tool.Ours(flow)
    w = ours.field(flow.initial_modes(sample, sample + 1, ours.solver))
    expected = ours.field(ours.second(ours.start(w)))

    def error(scheme: Any) -> float:
        return float((scheme.field(scheme.second(scheme.start(w))) - expected).norm() / expected.norm())

    found = [error(tool.Published(flow, step)) for step in (1e-2, 5e-3, 2.5e-3)]
    assert found[-1] < 2e-4
    assert [a / b for a, b in itertools.pairwise(found)] == pytest.approx([2, 2], abs=0.06)
    linear = tool.Published(flow, 1e-2)
    linear.mask.zero_()
    assert error(linear) > 10 * found[0]


@pytest.mark.parametrize("scheme", ["ours", "published"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_an_interrupted_run_goes_on(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, precision: str
) -> None:
    small = {"viscosity": 2e-3, "samples": 2, "frames": 3, "resolution": 8, "solver_resolution": 16}
    monkeypatch.setitem(PUBLISHED, 2e-3, small)
    run = tool.Run(scheme, 2e-3, 1, 0.05, precision)
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole, _ = tool.frames_of(run, tmp_path / "whole")
    monkeypatch.setitem(PUBLISHED, 2e-3, {**small, "frames": 2})
    assert len(tool.frames_of(run, tmp_path / "cut")[0]) == 2
    monkeypatch.setitem(PUBLISHED, 2e-3, small)
    again, _ = tool.frames_of(run, tmp_path / "cut")
    assert whole.shape == (3, 8, 8)
    assert np.array_equal(again, whole)
    made = NavierStokesFlow(**{**small, "step": 0.05}).trajectories()[1]
    tolerance = 1e-6 if scheme == "ours" else 5e-3
    assert max(tool.relative_l2(whole, made.astype(np.float64))) < tolerance


def test_float32_stays_below_the_error_of_the_published_scheme(record: dict[str, Any]) -> None:
    single = errors(record, "ours", "float32", 5e-3)
    for precision in ("float64", "float32"):
        theirs = errors(record, "published", precision, 1e-4)
        assert theirs.shape == single.shape == (2, 20)
        assert (single < theirs).all()


def test_the_record_is_of_the_solver_as_it_is(tool: ModuleType, record: dict[str, Any]) -> None:
    """The first second of the first sample again; float32 rounds a little differently elsewhere."""
    single, double = (NavierStokesFlow.model_validate({"samples": 1, "precision": p}) for p in ("float32", "float64"))
    exact, rough = tool.Ours(double), tool.Ours(single)
    w = exact.field(double.initial_modes(0, 1, exact.solver))
    frames = (scheme.field(scheme.second(scheme.start(w))) for scheme in (rough, exact))
    found, expected = (frame[:, ::4, ::4].double() for frame in frames)
    error = float((found - expected).norm() / expected.norm())
    assert error == pytest.approx(errors(record, "ours", "float32", 5e-3)[0, 0], rel=0.3)


def test_the_card_states_what_was_measured(record: dict[str, Any]) -> None:
    """The larger error of the two samples at t = 1, 10, 20."""
    for scheme, step in (("ours", 5e-3), ("published", 1e-4)):
        for precision in ("float64", "float32"):
            largest = errors(record, scheme, precision, step).max(0)[[0, 9, 19]]
            stated = ", ".join(f"{error:.1e}".replace("e-0", "e-") for error in largest)
            assert f"{stated} in {precision}" in CARD


def test_the_reference_is_finer_than_what_is_measured(record: dict[str, Any]) -> None:
    """With a step twice its own it moves by less than a tenth of any error in float32, at fourth order."""
    for viscosity, step, parts in ((1e-5, 5e-3, 4), (1e-4, 4e-3, 2), (1e-3, 5e-3, 2)):
        nearest = errors(record, "ours", "float64", step / parts, viscosity)
        assert nearest.size
        assert (nearest < errors(record, "ours", "float32", step, viscosity) / 10).all()
