r"""What networks of tokens are made of, where every point of a domain is a token.

    v <- v + M(norm v),   v <- v + MLP(norm v)            block around a map M that lets the tokens see each other

Channels come in heads, groups of them in which tokens see each other alone.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP, DropPath

HIDDEN = -1e30  # a score in a softmax of what must not be heard; finite, so that a row of them is no division by 0


def hidden_score(dtype: torch.dtype) -> float:
    """HIDDEN, or half of the largest number that a narrower type has."""
    return max(HIDDEN, torch.finfo(dtype).min / 2)


class TokenBlock(nn.Module):
    """v + M(norm v), then v + MLP(norm v), with LayerNorm, each branch with DropPath.

    M is called as mixer(v) or mixer(v, mask).
    """

    def __init__(self, mixer: nn.Module, width: int, expansion: int, drop_path: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixer = mixer
        self.mlp = MLP(width, expansion * width, width)
        self.drop = DropPath(drop_path)

    def forward(self, v: Tensor, mask: Tensor | None = None) -> Tensor:
        normed = self.norm1(v)
        v = v + self.drop(self.mixer(normed) if mask is None else self.mixer(normed, mask))
        return v + self.drop(self.mlp(self.norm2(v)))


def split_heads(u: Tensor, heads: int) -> Tensor:
    """(b, N, h c) -> (b, h, N, c)"""
    return u.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(u: Tensor) -> Tensor:
    """(b, h, N, c) -> (b, N, h c)"""
    return u.transpose(1, 2).flatten(2)


def check_heads(width: int, heads: int) -> None:
    """Refuse heads that do not divide the channels."""
    at_least(1, heads=heads)
    if width % heads:
        raise SpecError(f"width must be a multiple of heads; got width={width} and heads={heads}")


def normal_weights(module: nn.Module, spread: float) -> None:
    """Weights of all linear maps from a normal distribution of that standard deviation, biases 0."""
    if not spread > 0.0:
        raise SpecError(f"spread is a standard deviation above 0; got {spread}")
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.trunc_normal_(part.weight, std=spread)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
