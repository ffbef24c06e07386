r"""The loss of the published Darcy protocol: relative L2 of the field and of its central differences.

    rel_l2(u) + 0.1 sum over axes of rel_l2(D u),      (D u)_i = u_{i+1} - u_{i-1},   u = 0 outside the grid,

each a mean over samples of ||p - y|| / ||y|| in physical units. Before it is differenced, the outermost ring of the
prediction is set to 0 and that of the target is not, as published. So the ring of the prediction is trained by the
first term alone. The published D divides by twice the step h = 1/n, which cancels in the ratio.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

WEIGHT = 0.1
"""Weight of the differences, as published."""


def rel_l2_gradient(prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Standardised prediction and target (b, c, *n), statistics of the targets to undo it, e.g. (c, 1, ...). Scalar."""
    p, y = prediction * std + mean, target * std + mean
    loss = _relative(p, y)
    inside = functional.pad(p[(..., *[slice(1, -1)] * (p.dim() - 2))], (1, 1) * (p.dim() - 2))
    for axis in range(2, p.dim()):
        loss = loss + WEIGHT * _relative(differences(inside, axis), differences(y, axis))
    return loss.mean()


def differences(u: Tensor, axis: int) -> Tensor:
    """u_{i+1} - u_{i-1} along one axis, with u = 0 outside. (b, c, *n) -> (b, c, *n)"""
    zero = torch.zeros_like(u.narrow(axis, 0, 1))
    n = u.shape[axis]
    return torch.cat((u.narrow(axis, 1, n - 1), zero), axis) - torch.cat((zero, u.narrow(axis, 0, n - 1)), axis)


def _relative(p: Tensor, y: Tensor) -> Tensor:
    """||p - y|| / ||y|| of each sample. (b, ...) -> (b,)"""
    return (p - y).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1).clamp_min(1e-12)
