r"""ONO, the orthogonal neural operator: one stream of tokens makes eigenfunctions, another is expanded in them.

    v <- v + A(norm v),   v <- v + MLP(norm v)                       the first stream, A see `hofno.layers.attention`
    psi = L^-1 g(v),      L L^T = 1/N sum_i g(v_i) g(v_i)^T          k eigenfunctions, orthonormal by construction
    f <- f + sum_k softplus(m_k) psi_k <psi_k, f>,   f <- MLP(norm f)    the second stream; no MLP after the last
    G u = W norm f                                                       at every point

<., .> is the mean over the points, so that nothing grows with their number; published code takes the sum. There L L^T
is a mean over the samples of a batch in training and its running mean afterwards (`covariance="running"`), with which
a sample's answer depends on its batch and the functions of no single sample are quite orthonormal; with "sample" they
are. The published A (Nystrom attention with convolutions along the list of points) depends on the order of the points;
the one here does not.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.geometry import Coordinates, choose
from hofno.layers.attention import NormalisedAttention
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP
from hofno.layers.precision import full_precision, like_weights, wide
from hofno.models.anywhere import TokenModel
from hofno.models.config import config_of

COVARIANCES = ("sample", "running")
KEPT = 0.9  # of a running mean at each step
JITTER = 1e-5  # of the mean variance


class Eigenfunctions(nn.Module):
    """L^-1 g(v) of (b, N, width), with a unit covariance: (b, N, k)."""

    average: Tensor
    weight: Tensor

    def __init__(self, width: int, functions: int, covariance: str) -> None:
        super().__init__()
        self.g = nn.Linear(width, functions)
        self.running = choose(covariance, COVARIANCES, "covariance") == "running"
        if self.running:
            self.register_buffer("average", torch.zeros(functions, functions))
            self.register_buffer("weight", torch.zeros(()))

    def forward(self, v: Tensor, mask: Tensor | None = None) -> Tensor:
        with full_precision(v):
            g = wide(self.g(v.to(self.g.weight.dtype)))
            if mask is not None:
                g = g.masked_fill(~mask.unsqueeze(-1), 0.0)
            count = g.new_full((g.shape[0],), g.shape[1]) if mask is None else mask.sum(1).clamp_min(1)
            covariance = self._covariance(torch.matmul(g.mT, g), count[:, None, None])
            mean = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
            unit = torch.eye(g.shape[-1], dtype=g.dtype, device=g.device)
            lower = torch.linalg.cholesky_ex(covariance + (JITTER * mean + 1e-30) * unit).L
            return like_weights(torch.linalg.solve_triangular(lower, g.mT, upper=False).mT, self.g)

    def _covariance(self, products: Tensor, count: Tensor) -> Tensor:
        """Sums of products (b, k, k) and numbers of points (b, 1, 1) -> (b, k, k)."""
        if not self.running:
            return products / count
        if self.training:
            batch = products.sum(0) / count.sum()
            with torch.no_grad():
                self.average.lerp_(batch.to(self.average.dtype), 1.0 - KEPT)
                self.weight.lerp_(torch.ones_like(self.weight), 1.0 - KEPT)
            return batch.expand_as(products)
        unseen = (self.weight == 0.0).to(products.dtype)  # before any training: as if g were orthonormal
        unit = torch.eye(products.shape[-1], dtype=products.dtype, device=products.device)
        return ((self.average + unseen * unit) / (self.weight + unseen)).expand_as(products)


class ONOBlock(nn.Module):
    """Attention and an MLP on the first stream, an expansion in eigenfunctions of it and an MLP on the second."""

    def __init__(self, width: int, heads: int, functions: int, expansion: int, covariance: str, last: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = NormalisedAttention(width, heads, keep_query=False)
        self.mlp = MLP(width, expansion * width, width)
        self.eigenfunctions = Eigenfunctions(width, functions, covariance)
        self.scale = nn.Parameter(torch.zeros(functions, 1))
        self.after = None if last else nn.Sequential(nn.LayerNorm(width), MLP(width, expansion * width, width))

    def forward(self, state: tuple[Tensor, Tensor], mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        v, f = state  # (b, N, width) each
        normed = self.norm1(v)
        v = v + self.attention(normed, normed, mask)
        v = v + self.mlp(self.norm2(v))
        psi = self.eigenfunctions(v, mask)  # (b, N, k), 0 where no point is
        count = f.shape[1] if mask is None else mask.sum(1).clamp_min(1)[:, None, None]
        coefficients = torch.matmul(psi.mT, f) / count  # (b, k, width)
        f = f + torch.matmul(psi, F.softplus(self.scale) * coefficients)
        return v, f if self.after is None else self.after(f)


class ONO(TokenModel):
    """Orthogonal neural operator on grids, meshes and points, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too; those of points are not counted (0: they are all).
        out_channels: output fields.
        dims: number of axes of a grid or coordinates of a point.
        width: hidden channels. Published: 128.
        depth: number of blocks. Published: 8, 10 (Darcy), 6 (Airfoil).
        heads: groups of channels that attend by themselves; a divisor of `width`. Published: 8.
        functions: eigenfunctions of each block. Published: 8, 16 (Navier-Stokes), 32 (Darcy).
        expansion: hidden width of the MLPs over `width`. Published: 1 or 2.
        covariance: "sample", or "running" for the published one, see the top of this file.
        coordinates: positions of a grid's points: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none". The last
            leaves positions out, those of points too.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 128,
        depth: int = 8,
        heads: int = 8,
        functions: int = 8,
        expansion: int = 1,
        covariance: str = "sample",
        coordinates: Coordinates = "endpoint",
    ) -> None:
        super().__init__(config_of(ONO, locals()), in_channels, out_channels, dims, coordinates)
        at_least(1, width=width, depth=depth, functions=functions, expansion=expansion)
        if functions > width:
            raise SpecError(
                f"functions are combinations of the {width} channels of `width`, and no more of them can be "
                f"orthogonal; got {functions}; lower functions, or widen the network"
            )
        self.lift = MLP(self.known, 2 * width, 2 * width)
        self.blocks = nn.ModuleList(
            ONOBlock(width, heads, functions, expansion, covariance, index == depth - 1) for index in range(depth)
        )
        self.project = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, out_channels))

    def start(self, known: Tensor) -> tuple[Tensor, Tensor]:
        first, second = self.lift(known.flatten(1, -2)).chunk(2, -1)
        return first, second

    def end(self, state: tuple[Tensor, Tensor]) -> Tensor:
        return state[1]
