"""The multiwavelet layer against its formula with the parts of each level spelled out, and its kernel by sums."""

from __future__ import annotations

import cmath
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hofno.layers.wavelets import DetailKernel, MultiwaveletLayer
from hofno.transforms import multiwavelets


def make(
    modes: tuple[int, ...], width: int = 2, order: int = 2, levels: int = 2, details: str = "all"
) -> MultiwaveletLayer:
    torch.manual_seed(2)
    return MultiwaveletLayer(modes, width, order, levels, details).double()


def kernel_by_sums(layer: DetailKernel, d: Tensor) -> Tensor:
    """W relu of sum over |k| < m of R(k) d̂(k) exp(2 pi i k.x), type by type, for one sample (n1, n2, types c)."""
    n1, n2, _ = d.shape
    m1, m2 = min(layer.modes[0], (n1 + 1) // 2), min(layer.modes[1], n2 // 2 + 1)
    parts = d.unflatten(-1, (layer.types, -1))
    out = torch.zeros_like(parts)
    stored = torch.view_as_complex(layer.filter.weight.detach())  # (K1, K2, types, c, c)
    for k1, k2 in itertools.product(range(-m1 + 1, m1), range(m2)):
        wave = torch.tensor(
            [[cmath.exp(2j * cmath.pi * (k1 * i / n1 + k2 * j / n2)) for j in range(n2)] for i in range(n1)]
        )
        spectrum = (parts * wave.conj()[:, :, None, None]).mean((0, 1))  # (types, c)
        mixed = torch.einsum("tc,tco->to", spectrum, stored[k1, k2])
        twice = 1.0 if k2 == 0 or 2 * k2 == n2 else 2.0
        out += twice * (mixed * wave[:, :, None, None]).real
    return layer.mix(F.relu(out.flatten(-2)))


@pytest.mark.parametrize("points", [(6, 8), (5, 3), (2, 2), (1, 1), (4, 1)])
@torch.no_grad()
def test_the_kernel_equals_sums_over_modes(points: tuple[int, int]) -> None:
    """Those that the level holds."""
    torch.manual_seed(1)
    layer = DetailKernel((2, 3), 3, 2).double()
    d = torch.randn(2, *points, 6, dtype=torch.float64)
    for sample in range(2):
        assert torch.allclose(layer(d)[sample], kernel_by_sums(layer, d[sample]), atol=1e-12)


@pytest.mark.parametrize(
    ("modes", "details"), [((3,), "all"), ((2, 3), "all"), ((2, 3), "diagonal"), ((1, 2, 2), "all")]
)
@torch.no_grad()
def test_equals_its_formula(modes: tuple[int, ...], details: str) -> None:
    dims = len(modes)
    layer, points = make(modes, details=details), (8, 4, 4)[:dims]
    size = 2**dims
    v = torch.randn(2, *points, 2 * size, dtype=torch.float64)
    matrix = torch.from_numpy(multiwavelets.cell_filters(2, dims, details))
    types = {"all": size, "diagonal": 2}[details]

    def level(s: Tensor, left: int) -> Tensor:
        """t of the functions s at a level, with so many levels above it."""
        if left == 0:
            return F.linear(s, layer.coarsest.weight, layer.coarsest.bias)
        parts = multiwavelets.decompose(s.unflatten(-1, (2, size)), matrix)
        low, d = parts[..., 0, :].flatten(-2), [parts[..., t, :].flatten(-2) for t in range(1, types)]
        details = torch.cat(d, -1)
        t = level(low, left - 1) + layer.down(details)
        high = layer.kernel(details) + layer.up(low)
        pieces = [part.unflatten(-1, (2, size)) for part in (t, *high.chunk(types - 1, -1))]
        return multiwavelets.reconstruct(torch.stack(pieces, -2), matrix).flatten(-2)

    assert torch.allclose(layer(v), level(v, 2), atol=1e-12)


@torch.no_grad()
def test_it_can_be_the_identity() -> None:
    """With A = 1, B = C = 0 and T = 1 nothing is lost on the way down and up; but where details are left out."""
    v = torch.randn(1, 8, 8, 8, dtype=torch.float64)
    found = {}
    for details in ("all", "diagonal"):
        layer = make((2, 2), levels=3, details=details)
        layer.kernel = torch.nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
        for part in (layer.up.mix, layer.down.mix, layer.coarsest):
            torch.nn.init.zeros_(part.weight)
            torch.nn.init.zeros_(part.bias)
        torch.nn.init.eye_(layer.coarsest.weight)
        found[details] = float((layer(v) - v).norm() / v.norm())
    assert found["all"] < 1e-12
    assert found["diagonal"] > 0.3


def test_gradients() -> None:
    layer = make((2,), width=1, levels=2)
    v = torch.randn(1, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (v,))
