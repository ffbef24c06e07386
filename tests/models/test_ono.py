"""ONO's eigenfunctions: orthonormal over the points of each sample, or of what was seen in training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import hofno
from hofno.errors import SpecError
from hofno.models.ono import JITTER, KEPT, ONO, Eigenfunctions, ONOBlock

MASK = torch.arange(40) < torch.tensor([40, 25])[:, None]


def make(covariance: str = "sample") -> Eigenfunctions:
    torch.manual_seed(0)
    return Eigenfunctions(6, 4, covariance).double()


def tokens(seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(2, 40, 6, dtype=torch.float64)


@torch.no_grad()
def test_eigenfunctions_of_a_sample_are_orthonormal() -> None:
    unit = torch.eye(4, dtype=torch.float64)
    psi = make()(tokens())
    assert torch.allclose(psi.mT @ psi / 40, unit, atol=100 * JITTER)
    masked = make()(tokens(), MASK)
    assert not bool(masked[1, 25:].any())
    assert torch.allclose(masked[1].mT @ masked[1] / 25, unit, atol=100 * JITTER)
    assert torch.allclose(masked[1, :25], make()(tokens()[1:, :25])[0])


@torch.no_grad()
def test_what_is_spanned_is_what_was_given() -> None:
    layer, v = make(), tokens()
    g, psi = layer.g(v[0]), layer(v)[0]
    projected = psi @ (psi.T @ g) / 40
    assert torch.allclose(projected, g, atol=1e-3)


@torch.no_grad()
def test_running_means() -> None:
    """In training the mean over a batch; afterwards the mean over batches, later ones counting more."""
    layer = make("running")
    assert bool(layer.eval()(tokens()).isfinite().all())
    layer.train()
    batches = [tokens(seed) for seed in (1, 2, 3)]
    own = [layer.g(v).flatten(0, 1).mT @ layer.g(v).flatten(0, 1) / 80 for v in batches]
    for v in batches:
        psi = layer(v).flatten(0, 1)
        assert torch.allclose(psi.T @ psi / 80, torch.eye(4, dtype=torch.float64), atol=100 * JITTER)
    weights = [KEPT**2, KEPT, 1.0]
    mean = sum((w * c for w, c in zip(weights, own, strict=True)), torch.zeros(4, 4).double()) / sum(weights)
    lower = torch.linalg.cholesky(mean + JITTER * mean.diagonal().mean() * torch.eye(4))
    exact = torch.linalg.solve(lower, layer.g(batches[0]).mT).mT
    layer.eval()
    assert torch.allclose(layer(batches[0]), exact)
    assert torch.allclose(layer(batches[0])[:1], layer(batches[0][:1]))
    again = make("running").eval()
    again.load_state_dict(layer.state_dict())
    assert again(batches[0]).equal(layer(batches[0]))


@torch.no_grad()
def test_a_running_mean_counts_every_point_of_a_ragged_batch_once() -> None:
    layer, v = make("running"), tokens()
    layer(v, MASK)
    g = layer.g(v)[MASK]
    assert torch.allclose(layer.average / layer.weight, g.T @ g / 65)


def test_gradients_go_through_the_running_form_in_training() -> None:
    model = ONO(2, 1, width=8, depth=2, heads=2, functions=3, covariance="running").train()
    model(torch.randn(2, 2, 6, 6)).square().mean().backward()
    assert all(p.grad is not None and float(p.grad.abs().max()) > 0 for p in model.parameters())


@torch.no_grad()
def test_the_second_stream_is_expanded_in_the_eigenfunctions() -> None:
    torch.manual_seed(0)
    block = ONOBlock(6, 2, 4, 1, "sample", last=True).double()
    block.scale.copy_(torch.randn(4, 1))
    v, f = tokens(1), tokens(2)
    after, found = block((v, f))
    psi = block.eigenfunctions(after)
    exact = f.clone()
    for k in range(4):
        for sample in range(2):
            inner = (psi[sample, :, k, None] * f[sample]).mean(0)
            exact[sample] += (1 + block.scale[k].exp()).log() * psi[sample, :, k, None] * inner
    assert torch.allclose(found, exact)


@torch.no_grad()
def test_the_number_of_points_does_not_matter() -> None:
    torch.manual_seed(0)
    block = ONOBlock(6, 2, 4, 1, "sample", last=False).double()
    v, f = tokens(1), tokens(2)
    twice = block((v.repeat(1, 2, 1), f.repeat(1, 2, 1)))
    assert all(torch.allclose(a[:, :40], b) for a, b in zip(twice, block((v, f)), strict=True))


def test_wrong_covariance() -> None:
    with pytest.raises(SpecError, match="covariance must be one of sample, running"):
        make("batch")


def test_functions_beyond_the_channels_are_refused() -> None:
    with pytest.raises(SpecError, match="combinations of the 16 channels"):
        ONO(1, 1, width=16, heads=2, functions=17)


def test_looking_at_data_leaves_the_running_covariance_alone() -> None:
    """Data that differ by an offset are the same once standardised, and so is what is learnt from them."""
    torch.manual_seed(0)
    u, found = torch.randn(16, 1, 6, 6), []
    for offset in (0.0, 1e4):
        torch.manual_seed(0)
        model = ONO(1, 1, width=8, depth=1, heads=2, functions=4, covariance="running")
        data = hofno.from_arrays(offset + u, u.square(), split=(12, 2, 2))
        hofno.fit(model, data, epochs=1, batch_size=12, progress=False)
        kept = next(module for module in model.modules() if isinstance(module, Eigenfunctions))
        assert float(kept.weight) == pytest.approx(0.1)
        found.append(kept.average.clone())
    torch.testing.assert_close(found[0], found[1], rtol=0.05, atol=1e-4)
