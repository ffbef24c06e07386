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
        fixed: int = 0,
    ) -> None:
        """Check the sizes and make the parts; `known` counts the channels that are known."""
        at_least(1, in_channels=in_channels, out_channels=out_channels, width=width, depth=depth, expansion=expansion)
        at_least(0, fixed=fixed)
        check_drop_path(drop_path)
        choose(backbone, BACKBONES, "backbone")
        if residual and out_channels > in_channels - fixed:
            before = f" before {fixed} fixed ones" if fixed else ""
            raise SpecError(
                f"residual adds the last {out_channels} inputs{before} to the output and there are "
                f"{in_channels - fixed}; set residual=false"
            )
        if fixed and not residual:
            raise SpecError(
                f"fixed says which inputs residual leaves out; got fixed={fixed} and residual=false; drop it"
            )
        if not fixed:  # models from before it was there are told apart by what they were built from
            getattr(self, "config", {}).pop("fixed", None)
        self.in_channels, self.out_channels, self.residual, self.fixed = in_channels, out_channels, residual, fixed
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
        if not self.residual:
            return out
        end = self.in_channels - self.fixed
        return out + x[:, end - self.out_channels : end]

    def _lift(self, x: Tensor) -> Tensor:
        """The lift of given and known fields; the latter's share is the same for every sample. (b, *n, c)"""
        weight, bias = self.lift.weight, self.lift.bias
        fields = torch.matmul(x.flatten(2).mT, weight[:, : self.in_channels].T)  # (b, N, c)
        if known := self.known(x):
            bias = F.linear(torch.cat(known, -1), weight[:, self.in_channels :], bias)
        return (fields + bias).unflatten(1, x.shape[2:])
