"""Compiled Newton steps of Euler flow equal the plain ones, whatever is solved beside them and in how many threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from bent_flows import channel, disturbed, foils, start
from changed_source import changed, compiles
from hypothesis import given, settings
from hypothesis import strategies as st

from hofno.problems.airfoil import Airfoil
from hofno.problems.airfoil_mesh import c_grid
from hofno.solvers import euler_native, euler_steady
from hofno.solvers.euler import Euler, free_stream
from hofno.solvers.euler_lines import LinePreconditioner
from hofno.solvers.euler_native import MOST_VECTORS, STEPS, NativeSteps, march, native_runs_on
from hofno.solvers.euler_steady import Newton, next_cfl, solve_steady
from hofno.solvers.native import Native


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def steps_of(flow: Euler, krylov: int = 20) -> NativeSteps:
    library = STEPS.library()
    assert library is not None, STEPS.why_not()
    return NativeSteps(flow, krylov, library)


def flow_around(of: str, wake: int = 2, foil: int = 6, normal: int = 3) -> Euler:
    wall = not of.startswith("open ")
    return foils(2, wake, foil, normal, wall=wall) if of.endswith("foils") else channel(wall=wall, rows=2 * foil + 1)


KINDS = "foils", "channel", "open foils", "open channel"


@compiles
@settings(deadline=None)
@given(
    st.sampled_from(KINDS),
    st.integers(2, 6),
    st.integers(2, 12),
    st.integers(2, 9),
    st.floats(1, 1e4),
    st.integers(0, 1000),
)
def test_residual_and_preconditioner(of: str, wake: int, half_foil: int, normal: int, cfl: float, seed: int) -> None:
    torch.manual_seed(seed)
    flow = flow_around(of, wake, 2 * half_foil, normal)
    state = disturbed(flow)
    residual, lines = flow.residual(state), LinePreconditioner(flow, state, torch.tensor([cfl, 7.0]))
    right = flow.join_(torch.randn_like(state))
    expected, steps = lines.solve(right), steps_of(flow)
    for number, this in enumerate((cfl, 7.0)):
        found = steps.residual(state[number], number)
        assert float((found - residual[number]).abs().max()) < 1e-12 * float(residual[number].abs().max())
        found = steps.precondition(state[number], this, right[number], number)
        assert float((found - expected[number]).abs().max()) < 1e-5 * float(expected[number].abs().max())


@compiles
@pytest.mark.parametrize("of", KINDS)
def test_a_newton_step(of: str) -> None:
    """The change of a state is that of the plain step but for the rounding of the vectors to float32."""
    flow = flow_around(of)
    plain, other = (start(flow, disturbed(flow, 0.02)) for _ in range(2))
    other = start(flow, plain.state)
    before, steps = plain.state.clone(), steps_of(flow, 5)
    euler_steady.newton_step(flow, plain, torch.ones(2, dtype=torch.bool), 5)
    for number in range(2):
        left, length, taken = steps.step(other, number)
        assert taken
        assert 0 < length <= 1
        change = float((plain.state - before)[number].abs().max())
        assert float((other.state - plain.state)[number].abs().max()) < 1e-4 * change
        cfl = next_cfl(torch.tensor(10.0), torch.tensor(left), torch.tensor(length), torch.tensor(taken))
        assert float(cfl) == pytest.approx(float(plain.cfl[number]), rel=1e-4)
    torch.testing.assert_close(other.residual, flow.residual(other.state), rtol=0, atol=1e-12)
    torch.testing.assert_close(other.norm, euler_steady.norm_of(other.residual))


@compiles
def test_more_vectors_than_a_flow_has_numbers_add_nothing() -> None:
    flow = channel(wall=False, rows=3, columns=3)
    found = [solve_steady(flow, flow.uniform() * 1.01, max_steps=1, krylov=count).state for count in (36, 64)]
    assert torch.equal(*found)
    assert float((found[0] / flow.uniform() - 1.01).abs().max()) > 1e-4


@compiles
def test_the_steady_flow_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Euler(c_grid(torch.rand(2, 8, dtype=torch.float64) / 10 - 0.05, 10, 24, 10), free_stream(0.8, 2.0), wake=10)
    found = solve_steady(flow, tolerance=1e-10)
    monkeypatch.setattr(euler_steady, "native_is_for", lambda *_: False)
    plain = solve_steady(flow, tolerance=1e-10)
    assert bool((found.converged & plain.converged).all())
    assert float(found.residual.max()) < 1e-10
    torch.testing.assert_close(found.state, plain.state, rtol=0, atol=1e-7)
    assert int((found.steps - plain.steps).abs().max()) <= 4


@compiles
def test_flows_are_the_same_bits_in_any_company() -> None:
    """Whatever is solved beside a flow, in however many threads."""
    designs, before = torch.rand(7, 8, dtype=torch.float64) / 10 - 0.05, torch.get_num_threads()
    found = []
    try:
        for threads, rows in ((1, [3]), (1, [5, 3, 1]), (3, [0, 1, 2, 3, 4, 5, 6])):
            torch.set_num_threads(threads)
            flow = Euler(c_grid(designs[rows], 5, 12, 5), free_stream(0.8), wake=5)
            solved = solve_steady(flow)
            found.append((solved.state[rows.index(3)], int(solved.steps[rows.index(3)])))
    finally:
        torch.set_num_threads(before)
    assert found[0][1] > 10
    for state, steps in found[1:]:
        assert steps == found[0][1]
        assert torch.equal(state, found[0][0])


@compiles
def test_samples_do_not_depend_on_the_count_of_threads() -> None:
    made, before, found = Airfoil(coarsen=10, tolerance=1e-4), torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert made.tunnel.group(torch.device("cpu"), 1000) == 4 * threads
            assert made.tunnel.group(torch.device("cpu"), 3) == 3
            found.append(made.flows("train", 7))
    finally:
        torch.set_num_threads(before)
    assert (found[0].fields == found[1].fields).all()
    assert (found[0].coefficients == found[1].coefficients).all()


@compiles
def test_flows_that_are_done_or_not_waited_for_stay() -> None:
    flow = foils(4)
    at = start(flow, flow.uniform())
    before, scale = at.state.clone(), at.norm * torch.tensor([1, 1e9, 1, 1])
    seen: list[tuple[int, list[float]]] = []
    wanted = torch.tensor([True, True, False, True])
    steps = march(flow, at, scale, wanted, 1e-6, 3, 4, lambda step, rest: seen.append((step, rest.tolist())))
    assert steps.tolist() == [3, 0, 0, 3]
    assert [bool((one == other).all()) for one, other in zip(at.state, before, strict=True)] == [
        False,
        True,
        True,
        False,
    ]
    assert [step for step, _ in seen] == [1, 2, 3]
    assert seen[-1][1] == (at.norm / scale).tolist()


@compiles
def test_steps_that_fail_are_not_taken() -> None:
    """A state without numbers, or whose residual would be ten times as large, is tried with a smaller CFL number."""
    flow = foils(3)
    at = start(flow, disturbed(flow))
    at.state[1, 0, 3, 2] = at.norm[1] = math.nan
    at.norm[2] /= 100
    before = at.state.clone()
    steps = march(flow, at, torch.ones(3).double(), torch.ones(3, dtype=torch.bool), 1e-9, 2, 4, None)
    assert steps.tolist() == [2, 2, 2]
    assert torch.equal(at.state[1:].nan_to_num(7), before[1:].nan_to_num(7))
    assert not torch.equal(at.state[0], before[0])
    assert at.cfl[1:].tolist() == [1, 1]


@compiles
def test_threads_take_a_flow_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three flows are in their first step at the same time, and between two steps one may stop."""
    together, step, asked = threading.Barrier(3, timeout=30), NativeSteps.step, list[int]()

    def met(self: NativeSteps, at: Newton, number: int) -> tuple[float, float, bool]:
        if len(asked) == 1:
            together.wait()
        return step(self, at, number)

    monkeypatch.setattr(NativeSteps, "step", met)
    monkeypatch.setattr(euler_native, "go_on", lambda: asked.append(len(asked)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    flow = foils(3)
    at = start(flow, flow.uniform())
    march(flow, at, at.norm.clone(), torch.ones(3, dtype=torch.bool), 1e-9, 4, 4, None)
    assert len(asked) == 4
    assert not together.broken


@compiles
@pytest.mark.parametrize("usual", [torch.float32, torch.float64])
def test_the_usual_device_and_precision_do_not_matter(usual: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = foils(1, 5, 12, 5)
    expected = solve_steady(flow)
    monkeypatch.setattr(euler_native, "STEPS", Native(STEPS.source, STEPS._is_right))
    torch.set_default_dtype(usual)
    try:
        with torch.device("meta"):
            found = solve_steady(flow, flow.uniform().clone(), max_steps=300)
            assert native_runs_on(flow, 20)
        again = solve_steady(flow, flow.uniform(), max_steps=300)
    finally:
        torch.set_default_dtype(torch.float32)
    assert bool((expected.converged & found.converged).all())
    assert torch.equal(found.state, again.state)
    plain = solve_steady(flow, flow.uniform(), max_steps=300)
    assert torch.equal(found.state, plain.state)


def test_what_they_take() -> None:
    flow = foils(1)
    if library := STEPS.library():
        assert library.most_vectors() == MOST_VECTORS
    assert native_runs_on(flow, MOST_VECTORS) == (STEPS.library() is not None)
    assert not native_runs_on(flow, MOST_VECTORS + 1)
    assert not native_runs_on(Euler(flow.nodes.float(), free_stream(0.8).float(), 2), 20)


def test_a_switch_forbids_them_and_long_work_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOFNO_KERNELS", "off")
    assert not native_runs_on(foils(1), 20)
    made = Airfoil(coarsen=10, tolerance=1e-2)
    assert made.tunnel.group(torch.device("cpu"), 1000) == 4
    monkeypatch.setattr(euler_native, "MANY", 2 * 23 * 6)
    assert len(made.flows("train", 2).fields) == 2
    with pytest.warns(RuntimeWarning, match=r"^flows are solved in plain PyTorch.*: .* HOFNO_KERNELS=off"):
        made.flows("train", 3)


@compiles
@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("0.5 * (ahead + back) - still;", "0.51 * (ahead + back) - still;"),
        ("(4 * slope - d)", "(4.1 * slope - d)"),
        ("up[j + 1] - up[j]", "up[j + 1] - 0.99 * up[j]"),
        ("store(along, J + 1, minus(m->wall ? held : open))", "store(along, J + 1, minus(held))"),
        ("const double by = 1e-8", "const double by = 1e-2"),
        ("forth, r->left_i[two] = -forth", "forth, r->left_i[two] = forth"),
        ("smaller(1, most /", "smaller(1, 0.01 * most /"),
    ],
)
def test_code_that_computes_something_else_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, wrong: str
) -> None:
    wrong_steps = changed(STEPS, line, wrong, monkeypatch, tmp_path)
    monkeypatch.setattr(euler_native, "STEPS", wrong_steps)
    assert not native_runs_on(foils(1), 20)
    assert wrong_steps.why_not() == "its compiled code gives other numbers than PyTorch"
