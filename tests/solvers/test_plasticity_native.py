"""Compiled steps of blocks equal the plain ones, with all that they carry on; where they cannot, the plain ones run."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path

import pytest
import torch
from changed_source import changed, compiles
from struck_blocks import METAL, assert_same, assert_same_return, blocks, carried, stressed

from hofno.problems.plasticity import Plasticity
from hofno.solvers import plasticity_native
from hofno.solvers.native import Native
from hofno.solvers.plasticity import Blocks
from hofno.solvers.plasticity_native import STEPS, NativeSteps, native_steps, warn_where_plain


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("struck_blocks.DEVICE", "cpu")


def steps_of(of: Blocks, dt: float) -> NativeSteps:
    found = native_steps(of, dt)
    assert found is not None, STEPS.why_not()
    return found


@compiles
@pytest.mark.parametrize("die", [True, False])
def test_compiled_equals_plain(die: bool) -> None:
    plain, other = blocks(die), blocks(die)
    dt = 0.4 * float(plain.stable_step().min())
    for _ in range(16):
        plain._advance(dt)
    steps_of(other, dt)(9)
    steps_of(other, dt)(7)
    assert_same(plain, other, die)


@compiles
def test_stress_returns_as_in_the_plain_step() -> None:
    plain, other = blocks(die=False), blocks(die=False)
    stress, inside = stressed(plain, other)
    plain._advance(1e-4)
    steps_of(other, 1e-4)(1)
    assert_same_return(plain, other, stress, inside)


@compiles
def test_advance_takes_them_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is taken at once, the bits are the same, and between two calls one may stop."""
    at_once, few, asked = blocks(), blocks(), []
    dt = 0.4 * float(at_once.stable_step().min())
    at_once.advance(20 * dt, 20)
    monkeypatch.setattr("hofno.solvers.plasticity._ELEMENTS_AT_ONCE", 3 * few.p.numel())
    monkeypatch.setattr("hofno.solvers.plasticity.go_on", lambda: asked.append(few.steps))
    few.advance(20 * dt, 20, 11)
    few.advance(20 * dt, 20, 9)
    assert asked == [0, 3, 6, 9, 11, 14, 17]
    assert few.steps == at_once.steps == 20
    for name, one in carried(at_once).items():
        assert torch.equal(one, carried(few)[name]), name


@compiles
def test_places_are_alike() -> None:
    """A block is the same to the last bit in any place of a group of eight, whatever the others do."""
    made = Plasticity(coarsen=10, refine=1)
    dies = torch.from_numpy(made.die_heights("train", 0)).repeat(8, 1).T.numpy()
    others = dies.copy()
    others[1:-1, :5] += 1
    alone, among = made.blocks(dies), made.blocks(others)
    for each in (alone, among):
        each.advance(0.5, 4000)
    assert float((alone.x - among.x)[..., :5].abs().max()) > 0.1
    assert torch.equal(alone.x[..., 5:], among.x[..., 5:])
    assert torch.equal(alone.x[..., :1].expand_as(alone.x), alone.x)


@compiles
def test_other_threads_run_meanwhile() -> None:
    """Groups are solved side by side in threads: one that computes must not hold up the others."""
    given, ticks, over = blocks(), 0, threading.Event()
    steps = steps_of(given, 1e-9)
    worker = threading.Thread(target=lambda: (steps(60_000), over.set()))
    worker.start()
    while not over.wait(0.002):
        ticks += 1
    worker.join()
    assert ticks > 10


def test_moving_supports_are_for_the_plain_step() -> None:
    nodes = blocks().x[..., 0]
    held = torch.zeros_like(nodes, dtype=torch.bool)
    held[:, 0] = True
    pulled = Blocks(nodes, 1, METAL, held=held, velocity=held.double())
    assert native_steps(pulled, 1e-4) is None
    pulled.advance(1e-3, 10)
    assert float(pulled.energies().external.abs().max()) > 0


def test_where_there_is_none_plain_steps_run_and_long_work_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOFNO_KERNELS", "off")
    plain, other = blocks(), blocks()
    dt = 0.4 * float(plain.stable_step().min())
    assert native_steps(plain, dt) is None
    for _ in range(5):
        plain._advance(dt)
    other.advance(5 * dt, 5)
    assert torch.equal(plain.x, other.x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_where_plain(1e6)
    with pytest.warns(RuntimeWarning, match=r"^blocks are solved in plain PyTorch.*: .* HOFNO_KERNELS=off"):
        warn_where_plain(1e12)


@compiles
@pytest.mark.parametrize(
    ("line", "wrong"),
    [("0.5 * hard * (", "0.51 * hard * ("), ("- n->allowance", "- 2 * n->allowance"), ("sum_y)", "2 * sum_y)")],
)
def test_code_that_computes_something_else_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, wrong: str
) -> None:
    wrong_steps: Native = changed(STEPS, line, wrong, monkeypatch, tmp_path)
    monkeypatch.setattr(plasticity_native, "STEPS", wrong_steps)
    assert native_steps(blocks(), 1e-4) is None
    assert wrong_steps.why_not() == "its compiled code gives other numbers than PyTorch"
