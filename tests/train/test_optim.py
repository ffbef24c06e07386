"""SOAP, which parameters each optimiser takes, and the warm-up, stable, decay schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from hofno import HOFNO, HONORM, HOSFNO, Run
from hofno.spec import TrainSpec
from hofno.train.optim import Optimisers
from hofno.train.schedule import rate
from hofno.train.soap import Soap, turned

Trained = Callable[..., Run]
WeightsOf = Callable[[Run], Tensor]
CPU = torch.device("cpu")


def moments_of(values: Tensor) -> Tensor:
    """A symmetric matrix with the given eigenvalues and random eigenvectors."""
    q, _ = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.float64))
    return ((q * values.double()) @ q.mT).float()


def off_diagonal(basis: Tensor, moments: Tensor) -> float:
    a = basis.double().mT @ moments.double() @ basis.double()
    return float((a - a.diagonal().diag()).norm() / a.norm())


class TestTurned:
    @pytest.mark.parametrize("n", [2, 8, 40])
    @pytest.mark.parametrize("spectrum", ["even", "steep", "low rank", "degenerate"])
    def test_it_reaches_the_eigenbasis_and_stays_orthonormal(self, n: int, spectrum: str) -> None:
        torch.manual_seed(0)
        values = {
            "even": torch.linspace(0.1, 1, n),
            "steep": torch.logspace(0, -8, n),
            "low rank": torch.linspace(1, 2, n) * (torch.arange(n) < n // 2),
            "degenerate": 1.0 + 0.5 * (torch.arange(n) < n // 2),
        }[spectrum]
        moments, basis, identity = moments_of(values), torch.eye(n), torch.eye(n)
        for _ in range(100):
            basis = turned(basis, moments)
            assert (basis.mT @ basis - identity).norm() < 1e-3
        assert off_diagonal(basis, moments) < 1e-4 * off_diagonal(identity, moments) + 1e-4

    def test_two_equal_entries_on_the_diagonal_are_no_trap(self) -> None:
        moments = torch.tensor([[1.0, 0.5], [0.5, 1.0]])
        basis = torch.eye(2)
        for _ in range(10):
            basis = turned(basis, moments)
        assert off_diagonal(basis, moments) < 1e-6

    def test_each_matrix_of_a_batch_turns_alone(self) -> None:
        """One that is far from its eigenbasis does not shorten the turn of another."""
        torch.manual_seed(0)
        moments = torch.stack([moments_of(torch.linspace(0.1, 1, 12)), torch.eye(12) * torch.arange(1, 13)])
        moments[1, 0, 1] = moments[1, 1, 0] = 0.01
        together = turned(torch.eye(12).repeat(2, 1, 1), moments)
        for basis, alone in zip(together, moments, strict=True):
            torch.testing.assert_close(basis, turned(torch.eye(12), alone))

    def test_where_nothing_is_known_nothing_turns(self) -> None:
        assert torch.equal(turned(torch.eye(5), torch.zeros(5, 5)), torch.eye(5))

    def test_the_size_of_the_gradients_does_not_matter(self) -> None:
        torch.manual_seed(0)
        moments = moments_of(torch.linspace(0.1, 1, 6))
        torch.testing.assert_close(turned(torch.eye(6), 2.0**-60 * moments), turned(torch.eye(6), moments))


class TestSoap:
    def test_steps_from_the_definition(self) -> None:
        """Adam with bias correction in the followed basis, one matrix at a time; the decay is decoupled."""
        torch.manual_seed(0)
        params = [nn.Parameter(torch.randn(4, 3)) for _ in range(2)] + [nn.Parameter(torch.randn(3, 5))]
        expected = [p.detach().clone() for p in params]
        gradients = [[torch.randn_like(p) for p in params] for _ in range(4)]
        lr, decay, slow, fast = 0.1, 0.3, 0.9, 0.8
        soap = Soap(params, lr, betas=(slow, fast), weight_decay=decay)
        for made in gradients:
            for p, g in zip(params, made, strict=True):
                p.grad = g.clone()
            soap.step()
        for index, weight in enumerate(expected):
            m, s, left, right = (torch.zeros(()) for _ in range(4))
            u, v = torch.eye(weight.shape[0]), torch.eye(weight.shape[1])
            for t, made in enumerate(gradients, start=1):
                g = made[index]
                m, s = slow * m + (1 - slow) * g, fast * s + (1 - fast) * (u.mT @ g @ v) ** 2
                step = (u.mT @ m @ v) / (1 - slow**t) / ((s / (1 - fast**t)).sqrt() + 1e-8)
                weight = weight * (1 - lr * decay) - lr * u @ step @ v.mT
                left, right = fast * left + (1 - fast) * g @ g.mT, fast * right + (1 - fast) * g.mT @ g
                u, v = turned(u, left), turned(v, right)
            torch.testing.assert_close(params[index].detach(), weight, rtol=1e-3, atol=1e-4)

    def test_it_beats_adam_on_a_valley_across_the_axes(self) -> None:
        """|A (W - W*) B|^2 with A and B far from diagonal, 1000 times stiffer one way than the other."""
        torch.manual_seed(0)
        stiffness = torch.logspace(0, -1.5, 8)
        a, b, target = moments_of(stiffness), moments_of(stiffness), torch.randn(8, 8)

        def left_over(kind: type[Soap] | type[torch.optim.Adam]) -> float:
            weight = nn.Parameter(torch.zeros(8, 8))
            optimiser = kind([weight], 0.02, betas=(0.95, 0.95))
            for _ in range(400):
                weight.grad = a @ a @ (weight.detach() - target) @ b @ b
                optimiser.step()
            return float((weight.detach() - target).norm() / target.norm())

        assert left_over(Soap) < 0.2 * left_over(torch.optim.Adam)

    def test_a_step_can_be_captured(self) -> None:
        """No number goes to the host, no factorisation is called, and every tensor of the state stays where it is."""
        called: set[str] = set()

        class Listen(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                called.add(func.name())
                return func(*args, **(kwargs or {}))

        p = nn.Parameter(torch.randn(6, 4))
        p.grad = torch.randn(6, 4)
        soap = Soap([p], torch.tensor(0.1))
        places = {key: value.data_ptr() for key, value in soap.state[p].items()}
        weight = p.data_ptr()
        with Listen():
            soap.step()
        assert {"aten::bmm", "aten::lerp_.Scalar"} <= called
        assert not [name for name in called if "linalg" in name and "norm" not in name]
        assert not called & {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::equal"}
        assert places == {key: value.data_ptr() for key, value in soap.state[p].items()}
        assert weight == p.data_ptr()

    def test_the_state_is_there_before_the_first_step(self) -> None:
        """A captured step puts back what was there before it, and sets to zero what was not: no basis may be zero."""
        model = HOFNO(2, 1, (4, 4), width=8, depth=2)
        optimisers = Optimisers(model, spec(optimiser="soap"), CPU)
        before = {key for key in optimisers.tensors() if key.startswith("1.")}
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimisers.step()
        assert before
        assert before == {key for key in optimisers.tensors() if key.startswith("1.")}

    def test_frozen_weights_stay(self) -> None:
        learned, frozen = (nn.Parameter(torch.ones(3, 3), requires_grad=learns) for learns in (True, False))
        soap = Soap([frozen, learned], 0.1, weight_decay=0.5)
        learned.grad = torch.ones(3, 3)
        soap.step()
        assert torch.equal(frozen, torch.ones(3, 3))
        assert not torch.equal(learned, torch.ones(3, 3))

    def test_the_precision_of_the_run_is_put_back(self) -> None:
        before = torch.get_float32_matmul_precision()
        p = nn.Parameter(torch.ones(3, 3))
        try:
            torch.set_float32_matmul_precision("high")
            Soap([p], 0.1).step()
            assert torch.get_float32_matmul_precision() == "high"
        finally:
            torch.set_float32_matmul_precision(before)

    def test_state_round_trip(self) -> None:
        def step(optimisers: Optimisers, model: HOFNO, seed: int) -> None:
            generator = torch.Generator().manual_seed(seed)
            for p in model.parameters():
                p.grad = torch.randn(p.shape, generator=generator)
            optimisers.set_rate(0.5)
            optimisers.step()

        model = HOFNO(2, 1, (4, 4), width=8, depth=2)
        first = Optimisers(model, spec(optimiser="soap"), CPU)
        step(first, model, 1)
        other = HOFNO(2, 1, (4, 4), width=8, depth=2)
        other.load_state_dict(model.state_dict())
        second = Optimisers(other, spec(optimiser="soap"), CPU)
        second.load_tensors({key: value.clone() for key, value in first.tensors().items()})
        step(first, model, 2)
        step(second, other, 2)
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(one, two)

    def test_soap_lr_counts_only_with_soap(self, trained: Trained, weights_of: WeightsOf) -> None:
        soap = weights_of(trained(optimiser="soap"))
        assert not torch.equal(soap, weights_of(trained()))
        assert not torch.equal(soap, weights_of(trained(optimiser="muon")))
        assert not torch.equal(soap, weights_of(trained(optimiser="soap", soap_lr=0.1)))
        assert torch.equal(weights_of(trained()), weights_of(trained(soap_lr=0.1)))


class TestShares:
    @pytest.mark.parametrize("optimiser", ["muon", "soap"])
    @pytest.mark.parametrize("factors", ["dense", "diagonal+low-rank(2)", "spectral"])
    def test_matrices_of_the_blocks_and_the_rest(self, optimiser: str, factors: str) -> None:
        """A stack of m biases or scales is no matrix."""
        model = HOFNO(2, 1, (4, 4), width=8, depth=2, factors=factors)
        optimisers = Optimisers(model, spec(optimiser=optimiser), CPU)
        names = {p: name for name, p in model.named_parameters()}
        rest, matrices = ([names[p] for p in each.param_groups[0]["params"]] for each in optimisers.each)
        assert sorted(rest + matrices) == sorted(names.values())
        linear = [name for name, part in model.named_modules() if isinstance(part, nn.Linear) and "blocks." in name]
        assert sorted(matrices) == sorted(f"{name}.weight" for name in linear)

    def test_numbers_of_modes_and_channels_are_no_matrix(self) -> None:
        for model in (HONORM(1, 1, 6, width=8), HOSFNO(1, 1, 6, width=8)):
            rest, matrices = (
                each.param_groups[0]["params"] for each in Optimisers(model, spec(optimiser="muon"), CPU).each
            )
            filters = [p for name, p in model.named_parameters() if name.endswith("filter.weight")]
            assert len(filters) == 4
            assert {id(p) for p in filters} <= {id(p) for p in rest}
            assert all(p.shape[1] in (8, 16) for p in matrices)

    @pytest.mark.parametrize("optimiser", ["muon", "soap"])
    def test_a_network_of_matrices_alone(self, optimiser: str) -> None:
        model = nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(3, 3, bias=False)])})
        (weight,) = model.parameters()
        before = weight.detach().clone()
        optimisers = Optimisers(model, spec(optimiser=optimiser), CPU)
        weight.grad = torch.ones_like(weight)
        optimisers.set_rate(0.5)
        optimisers.step()
        assert not torch.equal(weight, before)
        assert {key.split(".")[0] for key in optimisers.tensors()} == {"0"}

    def test_adamw_takes_all(self) -> None:
        model = HOFNO(2, 1, (4, 4), width=8)
        optimisers = Optimisers(model, spec(), CPU)
        assert [len(each.param_groups[0]["params"]) for each in optimisers.each] == [len(list(model.parameters()))]


class TestWarmUpStableDecay:
    def test_its_three_parts(self) -> None:
        assert [rate("wsd", step, 100, 0.1, 0.0) for step in (0, 4)] == pytest.approx([1 / 11, 5 / 11])
        assert [rate("wsd", step, 100, 0.1, 0.0) for step in (10, 50, 80)] == [1.0, 1.0, 1.0]
        assert [rate("wsd", step, 100, 0.1, 0.0) for step in (85, 90, 100)] == pytest.approx([0.75, 0.5, 0.0])
        assert rate("wsd", 90, 100, 0.0, 0.2) == pytest.approx(0.6)

    def test_a_long_warm_up_shortens_the_fall(self) -> None:
        assert rate("wsd", 95, 100, 0.9, 0.0) == pytest.approx(0.5)

    @given(total=st.integers(1, 500), warmup=st.floats(0, 0.99), final=st.floats(0, 1), data=st.data())
    def test_always_a_fraction(self, total: int, warmup: float, final: float, data: st.DataObject) -> None:
        step = data.draw(st.integers(0, total - 1))
        assert 0.0 <= rate("wsd", step, total, warmup, final) <= 1.0 + 1e-12

    def test_the_loop_follows_it(self, trained: Trained) -> None:
        history = trained(epochs=4, schedule="wsd", final_lr=0.1).history
        assert [row["rate"] for row in history] == [rate("wsd", row["step"] - 1, 12, 0.0, 0.1) for row in history]
        assert history[-1]["rate"] < 1.0 == history[0]["rate"]


def spec(**settings: Any) -> TrainSpec:
    return TrainSpec(**settings)
