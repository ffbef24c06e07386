"""The AdamW of the GPU equals that of PyTorch, and its state is read and written by the same names.

On a GPU the compiled kernel is tested. Elsewhere Triton's interpreter runs it, in a process of its own.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hofno import HOFNO, storage, triton_use
from hofno.errors import CheckpointError, HofnoError
from hofno.layers.kernels import trial
from hofno.spec import TrainSpec
from hofno.train import adamw, optim
from hofno.train.adamw import FlatAdamW, flat_adamw_runs, flat_adamw_step
from hofno.train.optim import Optimisers
from own_process import DEVICE, INTERPRETED, again_under_the_interpreter, in_own_process, runs_kernels

if not triton_use.triton_is_installed():
    pytest.skip("the kernel needs Triton, which is not installed", allow_module_level=True)

SHAPES = [(3, 5), (1,), (), (1024,), (2, 3, 171), (1025,), (0, 4), (33, 65), (4, 1, 7)]
KEYS = ["step", "exp_avg", "exp_avg_sq"]


def weights(shapes: list[tuple[int, ...]] = SHAPES) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator).to(DEVICE)) for shape in shapes]


def give_gradients(params: list[nn.Parameter], seed: int, without: tuple[int, ...] = ()) -> None:
    """Gradients of very different sizes, for all parameters but some."""
    generator = torch.Generator().manual_seed(seed)
    for index, p in enumerate(params):
        gradient = torch.randn(p.shape, generator=generator) * 10.0 ** (index % 5 - 3)
        p.grad = None if index in without else gradient.to(DEVICE)


def assert_close(ours: list[nn.Parameter], theirs: list[nn.Parameter]) -> None:
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.detach(), two.detach(), rtol=1e-6, atol=1e-6)


def assert_same_state(ours: torch.optim.Optimizer, theirs: torch.optim.Optimizer) -> None:
    """To rounding of the largest number of each tensor: moments cancel."""
    for p, q in zip(ours.param_groups[0]["params"], theirs.param_groups[0]["params"], strict=True):
        for key, value in theirs.state.get(q, {}).items():
            scale = float(value.abs().max()) if value.numel() else 0.0
            torch.testing.assert_close(ours.state[p][key].cpu(), value.cpu(), rtol=0.0, atol=1e-6 * scale)


def pair(**options: Any) -> tuple[list[nn.Parameter], FlatAdamW, list[nn.Parameter], torch.optim.AdamW]:
    """Ours and PyTorch's, for the same weights."""
    ours, theirs = weights(), weights()
    lr = options.pop("lr", 0.01)
    options = {"weight_decay": 0.0, **options}
    return ours, FlatAdamW(ours, lr, **options), theirs, torch.optim.AdamW(theirs, lr=lr, foreach=False, **options)


@runs_kernels
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_twenty_steps_with_a_changing_rate(weight_decay: float) -> None:
    ours, flat, theirs, plain = pair(weight_decay=weight_decay)
    for step in range(20):
        rate = 0.02 * (1.0 - step / 25)
        flat.param_groups[0]["lr"] = plain.param_groups[0]["lr"] = rate
        give_gradients(ours, step)
        give_gradients(theirs, step)
        flat.step()
        plain.step()
        assert_close(ours, theirs)
    assert_same_state(flat, plain)


@runs_kernels
@pytest.mark.parametrize(
    "options", [{"betas": (0.5, 0.9)}, {"betas": (0.0, 0.99)}, {"betas": (0.9, 0.0)}, {"eps": 0.1}]
)
def test_every_option(options: dict[str, Any]) -> None:
    ours, flat, theirs, plain = pair(**options)
    other, default, _, _ = pair()
    for step in range(3):
        for params, optimiser in ((ours, flat), (theirs, plain), (other, default)):
            give_gradients(params, step)
            optimiser.step()
    assert_close(ours, theirs)
    assert not torch.allclose(ours[3], other[3])


@runs_kernels
def test_a_rate_that_is_changed_in_place() -> None:
    lr = torch.tensor(0.01, device=DEVICE)
    ours, flat, theirs, plain = pair()
    flat.param_groups[0]["lr"] = lr
    for step, rate in enumerate((0.01, 0.003)):
        lr.fill_(rate)
        plain.param_groups[0]["lr"] = rate
        give_gradients(ours, step)
        give_gradients(theirs, step)
        flat.step()
        plain.step()
    assert_close(ours, theirs)


@runs_kernels
def test_gradients_in_any_layout() -> None:
    ours, flat, theirs, plain = pair()
    give_gradients(ours, 1)
    give_gradients(theirs, 1)
    for p in ours:
        if p.ndim > 1 and p.grad is not None:
            p.grad = p.grad.transpose(0, -1).contiguous().transpose(0, -1)
    for params, plainly in ((ours, False), (theirs, True)):
        params[1].grad = torch.ones((), device=DEVICE).expand(1)
        negated = torch.view_as_complex(torch.ones(1024, 2, device=DEVICE)).conj().imag
        assert negated.is_neg()
        params[3].grad = negated.resolve_neg().contiguous() if plainly else negated
    assert not all(p.grad is None or p.grad.is_contiguous() for p in ours)
    flat.step()
    plain.step()
    assert_close(ours, theirs)


@runs_kernels
def test_parameters_without_a_gradient_are_left_alone_and_count_their_own_steps() -> None:
    ours, flat, theirs, plain = pair(weight_decay=0.5)
    for step, without in enumerate([(0, 5), (), (2, 7), tuple(range(len(SHAPES))), (2, 7), (), (0,)]):
        before = [p.detach().clone() for p in ours]
        give_gradients(ours, step, without)
        give_gradients(theirs, step, without)
        flat.step()
        plain.step()
        assert_close(ours, theirs)
        assert all(torch.equal(ours[i], before[i]) for i in without)
    assert [int(flat.state[p]["step"]) for p in ours] == [4, 6, 4, 6, 6, 5, 6, 4, 6]
    assert_same_state(flat, plain)


@runs_kernels
def test_the_weights_are_those_of_the_model() -> None:
    """Changed in place or moved from outside, between steps."""
    ours, flat, theirs, plain = pair(weight_decay=0.1)
    for step in range(3):
        for params, optimiser in ((ours, flat), (theirs, plain)):
            give_gradients(params, step)
            optimiser.step()
            with torch.no_grad():
                params[3].mul_(0.5)
            params[7].data = params[7].data.clone() + 1.0
    assert_close(ours, theirs)


@runs_kernels
def test_a_changed_weight_is_noticed_by_autograd() -> None:
    (p,) = weights([(3, 3)])
    flat = FlatAdamW([p], 0.1)
    product = (p * p).sum()
    p.grad = torch.ones_like(p)
    flat.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@runs_kernels
def test_groups_have_options_of_their_own() -> None:
    ours, theirs = weights(), weights()
    flat = FlatAdamW(ours[:4], 0.01)
    flat.add_param_group({"params": ours[4:], "lr": 0.1, "weight_decay": 0.2})
    plain = torch.optim.AdamW(
        [{"params": theirs[:4], "weight_decay": 0.0}, {"params": theirs[4:], "lr": 0.1, "weight_decay": 0.2}], lr=0.01
    )
    for step in range(2):
        for params, optimiser in ((ours, flat), (theirs, plain)):
            give_gradients(params, step)
            optimiser.step()
    assert_close(ours, theirs)


@runs_kernels
def test_the_state_is_flat_and_there_from_the_start() -> None:
    ours, flat, _, _ = pair()
    places = {(i, key): flat.state[p][key].data_ptr() for i, p in enumerate(ours) for key in KEYS}
    for p in ours:
        assert list(flat.state[p]) == KEYS
        assert flat.state[p]["exp_avg"].shape == flat.state[p]["exp_avg_sq"].shape == p.shape
        assert all(not value.any() for value in flat.state[p].values())
    for key in KEYS:
        assert len({flat.state[p][key].untyped_storage().data_ptr() for p in ours}) == 1
    give_gradients(ours, 0)
    flat.step()
    assert places == {(i, key): flat.state[p][key].data_ptr() for i, p in enumerate(ours) for key in KEYS}
    assert all(int(flat.state[p]["step"]) == 1 for p in ours)


@runs_kernels
def test_weights_that_no_longer_fit_are_refused() -> None:
    ours, flat, _, _ = pair()
    ours[0].data = ours[0].data.double()
    give_gradients(ours[1:], 0)
    flat.step()
    ours[0].grad = torch.zeros_like(ours[0])
    with pytest.raises(HofnoError, match=r"expected contiguous float32 weights .*, got \(3, 5\), torch.float64"):
        flat.step()


@runs_kernels
@pytest.mark.parametrize(("source", "target"), [(0, 1), (1, 0), (0, 0)])
def test_state_dicts_of_both_kinds(source: int, target: int) -> None:
    """Into an optimiser that has stepped elsewhere; ours keeps its place."""
    ours, flat, theirs, plain = pair(weight_decay=0.1)
    params, optimiser = (ours, theirs)[source], (flat, plain)[source]
    ours, flat, theirs, plain = pair(weight_decay=0.1)
    others, other = (ours, theirs)[target], (flat, plain)[target]
    for seed in (1, 2):
        give_gradients(params, seed)
        optimiser.step()
    give_gradients(others, 3)
    other.step()
    places = [flat.state[p][key].data_ptr() for p in ours for key in KEYS]
    other.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    assert places == [flat.state[p][key].data_ptr() for p in ours for key in KEYS]
    with torch.no_grad():
        for p, q in zip(params, others, strict=True):
            q.copy_(p)
    for seed in (4, 5):
        for each, stepping in ((params, optimiser), (others, other)):
            give_gradients(each, seed)
            stepping.step()
    assert_close(others, params)


@runs_kernels
def test_a_copy_steps_on_its_own() -> None:
    ours, flat, _, _ = pair()
    give_gradients(ours, 1)
    flat.step()
    copied, other = copy.deepcopy((ours, flat))
    before = [p.detach().clone() for p in ours]
    give_gradients(copied, 2)
    other.step()
    assert all(torch.equal(p, q) for p, q in zip(ours, before, strict=True))
    assert all(int(flat.state[p]["step"]) == 1 for p in ours)
    give_gradients(ours, 2)
    flat.step()
    assert all(torch.equal(p, q) for p, q in zip(ours, copied, strict=True))


def spec() -> TrainSpec:
    return TrainSpec(weight_decay=0.1)


def model() -> HOFNO:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return HOFNO(2, 1, (4, 4), width=8, depth=2).to(DEVICE)


def optimisers(network: HOFNO, flat: bool, monkeypatch: pytest.MonkeyPatch) -> Optimisers:
    with monkeypatch.context() as patch:
        patch.setattr(optim, "flat_adamw_runs", lambda params: flat)
        made = Optimisers(network, spec(), torch.device(DEVICE))
    assert type(made.each[0]) is (FlatAdamW if flat else torch.optim.AdamW)
    return made


def steps(network: HOFNO, made: Optimisers, seeds: range) -> None:
    for seed in seeds:
        give_gradients(list(network.parameters()), seed)
        made.set_rate(1.0 / (1 + seed))
        made.step()


@runs_kernels
@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize(("source", "target"), [(True, True), (True, False), (False, True)])
def test_checkpoints_of_both_kinds(
    source: bool, target: bool, stepped: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Through a file, into an optimiser that has not stepped or has; from there on both take the same steps."""
    first, second = model(), model()
    one, two = optimisers(first, source, monkeypatch), optimisers(second, target, monkeypatch)
    steps(first, one, range(3))
    if stepped:
        steps(second, two, range(7, 9))
    (tmp_path / "state.safetensors").write_bytes(storage.tensor_bytes(one.tensors()))
    saved = storage.read_tensors(tmp_path / "state.safetensors")
    count = len(list(first.parameters()))
    assert set(saved) == {f"0.{position}.{key}" for position in range(count) for key in KEYS}
    live = two.tensors()
    second.load_state_dict(first.state_dict())
    two.load_tensors(saved)
    assert all(two.tensors()[name] is value for name, value in live.items()), "restored in place"
    assert all(torch.equal(two.tensors()[name].cpu(), value) for name, value in saved.items())
    steps(first, one, range(3, 6))
    steps(second, two, range(3, 6))
    if source and target:
        assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))
    assert_close(list(first.parameters()), list(second.parameters()))


@runs_kernels
def test_a_state_of_another_shape_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = optimisers(model(), True, monkeypatch)
    name = "0.0.exp_avg"
    wrong = torch.zeros(1, *made.tensors()[name].shape)
    with pytest.raises(CheckpointError, match="expected exp_avg of shape"):
        made.load_tensors({name: wrong})


@runs_kernels
def test_one_step() -> None:
    assert torch.allclose(flat_adamw_step(torch.zeros(1, device=DEVICE)), torch.tensor([-1.0], device=DEVICE))


def test_a_processor_keeps_the_optimiser_of_pytorch() -> None:
    network = HOFNO(2, 1, (4, 4), width=8)
    assert not flat_adamw_runs(list(network.parameters()))
    assert not flat_adamw_runs([])
    (made,) = Optimisers(network, spec(), torch.device("cpu")).each
    assert type(made) is torch.optim.AdamW
    assert made.defaults["fused"]
    assert not made.defaults["capturable"]


def test_the_package_does_not_import_triton() -> None:
    code = (
        "import sys, hofno.train.optim; sys.exit('triton' in sys.modules or 'hofno.train.adamw_kernel' in sys.modules)"
    )
    finished = in_own_process("-c", code, interpret=False)
    assert finished.returncode == 0, finished.stderr


on_a_gpu = pytest.mark.skipif(DEVICE != "cuda", reason="asks a GPU")


@on_a_gpu
def test_a_gpu_takes_it_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    params = weights()
    assert flat_adamw_runs(params)
    assert type(Optimisers(model(), spec(), torch.device(DEVICE)).each[0]) is FlatAdamW
    assert not flat_adamw_runs([nn.Parameter(torch.zeros(3, device=DEVICE, dtype=torch.float64))])
    assert not flat_adamw_runs([*params, nn.Parameter(torch.zeros(3))])
    assert not flat_adamw_runs([nn.Parameter(torch.zeros(3, 4, device=DEVICE).t())])
    with monkeypatch.context() as patch:
        patch.setattr(triton_use, "triton_is_installed", lambda: False)
        assert not flat_adamw_runs(params)

    def fail(weights: Tensor) -> Tensor:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(trial, "_found", {})
    monkeypatch.setattr(adamw, "flat_adamw_step", fail)
    with pytest.warns(RuntimeWarning, match="no compiler"):
        assert not flat_adamw_runs(params)


@on_a_gpu
def test_a_captured_step_equals_an_eager_one() -> None:
    """Replayed with gradients, a rate and weights that change in place; another set of gradients in between."""
    ours, theirs = weights(), weights()
    rates = [torch.tensor(0.01, device=DEVICE) for _ in range(2)]
    captured, eager = (FlatAdamW(p, lr, weight_decay=0.1) for p, lr in zip((ours, theirs), rates, strict=True))
    for params, optimiser in ((ours, captured), (theirs, eager)):
        give_gradients(params, 0)
        optimiser.step()
    held = [p.grad for p in ours]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.step()
    for step in range(1, 8):
        for rate in rates:
            rate.fill_(0.01 / step)
        without = (1, 4) if step % 3 == 0 else ()
        give_gradients(theirs, step, without)
        eager.step()
        if without:
            give_gradients(ours, step, without)
            captured.step()
            continue
        for gradient, p in zip(held, theirs, strict=True):
            assert gradient is not None
            assert p.grad is not None
            gradient.copy_(p.grad)
        graph.replay()
    assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))
    for p, q in zip(ours, theirs, strict=True):
        assert all(torch.equal(captured.state[p][key], eager.state[q][key]) for key in KEYS)


@on_a_gpu
def test_weights_are_found_before_a_capture() -> None:
    params = weights()
    optimiser = FlatAdamW(params, torch.tensor(0.01, device=DEVICE))
    give_gradients(params, 0)

    def record() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.zeros(1, device=DEVICE)
            optimiser.step()

    with pytest.raises(HofnoError, match="take a step"):
        record()


@pytest.mark.skipif(INTERPRETED, reason="this is that process")
def test_under_the_interpreter() -> None:
    again_under_the_interpreter(__file__)
