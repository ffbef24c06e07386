"""The small parts of a block: RMSNorm, DropPath, MLP. All on channel-last tensors (b, *n, c)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import SpecError

EPSILON = 1e-6


class RMSNorm(nn.Module):
    """v / sqrt(mean_c v^2 + eps) * weight."""

    def __init__(self, width: int, eps: float = EPSILON) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, v: Tensor) -> Tensor:
        return F.rms_norm(v, (v.shape[-1],), self.weight.to(v.dtype), self.eps)


class DropPath(nn.Module):
    """In training, drop the whole branch of a sample with probability `rate` and scale the others to match."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise SpecError(f"drop_path is a probability of at least 0 and below 1; got {rate}")
        self.rate = rate

    def forward(self, v: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return v
        keep = torch.rand((v.shape[0],) + (1,) * (v.ndim - 1), device=v.device) >= self.rate
        return v * (keep.to(v.dtype) / (1.0 - self.rate))


class MLP(nn.Module):
    """Linear, GELU, Linear."""

    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, out)

    def forward(self, v: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(v)))
