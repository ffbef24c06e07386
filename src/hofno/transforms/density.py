r"""What the neighbourhood of a point looks like: the density of the cloud, smoothed, and its slope.

    rho_s(x_i) = 1/N sum_j exp(-|x_j - x_i|^2 / 2 s^2) / (2 pi s^2)^{d/2}
    features   = log rho_s(x_i),   s grad log rho_s(x_i) = sum_j k_ij (x_j - x_i) / (s sum_j k_ij)

for some lengths s. Near an edge or a hole the slope points away from it and the density falls, so a point learns from
these how far away they are and where; and where points are placed by a mesh, how the mesh is stretched.

Sums are over all pairs of points: N^2 exponentials of each length, and no matrix product, whose TensorFloat-32 inputs
would lose the difference of two close points. Large clouds are done in tiles of points.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hofno.transforms.fourier import exporting

TILE, CPU_TILE = 2**25, 2**18
"""Pairs of points in one tile: 128 MiB of float32; on a CPU 1 MiB, which stays in its cache."""


def density_features(coords: Tensor, scales: tuple[float, ...], mask: Tensor | None = None) -> Tensor:
    """log density and scaled slope for each length. (b, N, d) -> (b, N, len(scales) (1 + d))

    Args:
        coords: the points.
        scales: lengths s, in units of the coordinates.
        mask: which points are there, (b, N); the others must hold finite numbers and change nothing.
    """
    if exporting():  # the number of samples is not known
        return _tile(coords, coords, scales, mask)
    step = max(1, (CPU_TILE if coords.device.type == "cpu" else TILE) // (coords.shape[0] * coords.shape[1]))
    return torch.cat([_tile(rows, coords, scales, mask) for rows in coords.split(step, 1)], 1)


def _tile(rows: Tensor, coords: Tensor, scales: tuple[float, ...], mask: Tensor | None) -> Tensor:
    """Features of some of the points."""
    away = [there[:, None] - here[..., None] for here, there in zip(rows.unbind(-1), coords.unbind(-1), strict=True)]
    squares = away[0].square()  # (b, rows, N)
    for part in away[1:]:
        squares = torch.addcmul(squares, part, part)
    count = float(coords.shape[1]) if mask is None else mask.sum(1).clamp_min(1).to(coords.dtype)[:, None]
    found = []
    for s in scales:
        # far pairs at exp(-60): nothing beside the point's own 1, and no denormal numbers, which are slow
        near = torch.exp((squares * (-0.5 / s**2)).clamp_min(-60.0))
        if mask is not None:
            near = near.masked_fill(~mask[:, None], 0.0)
        total = near.sum(-1).clamp_min(torch.finfo(near.dtype).tiny)  # 0 where no point is
        found.append(torch.log(total / (count * (2 * math.pi * s**2) ** (len(away) / 2))))
        found += [(near * part).sum(-1) / (total * s) for part in away]
    return torch.stack(found, -1)
