r"""What the spectral networks of planes and spheres have in common.

    G = project . block_L . ... . block_1 . lift

Outside, fields are channel-first (b, c, *n); inside, channel-last. The lift takes known fields, such as positions,
beside the given ones; these are the same for every sample.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.geometry import choose
from hofno.layers.blocks import BACKBONES, Convolution, stack_of_blocks
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP, check_drop_path
from hofno.layers.precision import full_precision


class LiftedBlocks(nn.Module):
    """Lift, blocks and projection; a network of its own says what is known of a grid and what it refuses."""

    def known(self, x: Tensor) -> list[Tensor]:
        """Fields that are known beside those given, each (points, channels)."""
        raise NotImplementedError

    def check(self, x: Tensor) -> None:
        """Refuse an input of the wrong rank or channel count."""
        raise NotImplementedError

    def build(
        self,
        conv: Callable[[], Convolution],
        known: int,
        *,
        in_channels: int,
        out_channels: int,
        width: int,
        depth: int,
        backbone: str,
        expansion: int,
        drop_path: float,
        residual: bool,
    ) -> None:
        """Check the sizes and make the parts; `known` counts the channels that are known."""
        at_least(1, in_channels=in_channels, out_channels=out_channels, width=width, depth=depth, expansion=expansion)
        check_drop_path(drop_path)
        choose(backbone, BACKBONES, "backbone")
        if residual and out_channels > in_channels:
            raise SpecError(
                f"residual adds the last {out_channels} inputs to the output and there are {in_channels}; set "
                "residual=false"
            )
        self.in_channels, self.out_channels, self.residual = in_channels, out_channels, residual
        self.lift = nn.Linear(in_channels + known, width)
        self.blocks = stack_of_blocks(depth, conv, backbone, expansion, drop_path)
        if backbone == "classic":
            self.project: nn.Module = MLP(width, expansion * width, out_channels)
        else:
            self.project = nn.Linear(width, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self.check(x)
        with full_precision(x):
            v = self._lift(x)
        for block in self.blocks:
            v = block(v)
        with full_precision(x):
            out = self.project(v.to(x.dtype)).movedim(-1, 1)
        return out + x[:, -self.out_channels :] if self.residual else out

    def _lift(self, x: Tensor) -> Tensor:
        """The lift of given and known fields; the latter's share is the same for every sample. (b, *n, c)"""
        weight, bias = self.lift.weight, self.lift.bias
        fields = torch.matmul(x.flatten(2).mT, weight[:, : self.in_channels].T)  # (b, N, c)
        if known := self.known(x):
            bias = F.linear(torch.cat(known, -1), weight[:, self.in_channels :], bias)
        return (fields + bias).unflatten(1, x.shape[2:])
