r"""MSPT: points attend to those of their own patch and to means over all patches, on grids, meshes and points.

    v_i = MLP(u_i, x_i)                                                lift
    v <- v + A(norm v),   v <- v + MLP(norm v)                         blocks
    G u = W norm v                                                     at every point

    A(v)_i = sum_j softmax_j(q_i . k_j / sqrt d) w_j                   over the points j of the patch of i, and over the
                                                                       supernodes j of all patches

Each of K patches is cut into Q parts, and the mean over a part is a supernode. q, k, w are linear maps, so keys and
values of supernodes are means of those of the points. What is near is heard in full and what is far as a mean, in one
softmax.

Patches are of equal size, up to one point. On grids and meshes they are runs of points in the order of the axes, as
published. Points are put in the order of a ball tree (`hofno.layers.balltree`) first, so that patches hold together and
the order of the points does not matter; the published code takes them as they come unless told.

This is the attention of the paper, whose outputs at the supernodes are not kept. The published code takes it for a
whole transformer block inside of A, with an MLP of four times the width, and hands supernodes on from block to block:
half of its 2.15 million parameters. It counts points that fill up the last patch in the means; here nothing does.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.geometry import Coordinates
from hofno.layers.balltree import Slots, even_chunks, kept, take, tree_order
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP
from hofno.layers.token_blocks import TokenBlock, check_heads, hidden_score, normal_weights
from hofno.models.anywhere import TokenModel
from hofno.models.config import config_of


class PatchAttention(nn.Module):
    """Attention in patches and to the means of all, of tokens that stand patch by patch: (b, S, width) -> same."""

    def __init__(self, width: int, heads: int, patches: int, supernodes: int) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads, self.patches, self.supernodes = heads, patches, supernodes
        self.maps = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, v: Tensor, filled: Tensor | None = None) -> Tensor:
        """Apply the layer; slots that `filled` (b, S) lacks are given values and give none."""
        batch, parts, width = len(v), self.patches * self.supernodes, v.shape[-1]
        images = self.maps(v).unflatten(1, (parts, -1))  # (b, parts, slots, 3 c)
        far, hidden = images[..., width:], None
        if filled is None:
            far = far.mean(2)
        else:
            there = filled.unflatten(1, (parts, -1)).unsqueeze(-1)  # (b, parts, slots, 1)
            number = there.sum(2)
            far = far.masked_fill(~there, 0.0).sum(2) / number.clamp_min(1)
            near = filled.unflatten(1, (self.patches, -1))
            seen = torch.cat((near, (number > 0).mT.expand(-1, self.patches, -1)), -1)  # (b, K, L + parts)
            hidden = torch.zeros_like(seen, dtype=images.dtype).masked_fill(~seen, hidden_score(images.dtype))
            hidden = hidden.expand(batch, -1, -1).flatten(0, 1)[:, None, None]
        q, k, u = self._by_head(images.unflatten(1, (self.patches, -1)).flatten(2, 3), 3)  # (b, K, h, L, d)
        far = self._by_head(far.to(images.dtype).unsqueeze(1), 2).expand(-1, -1, self.patches, -1, -1, -1)
        k, u = torch.cat((k, far[0]), -2).flatten(0, 1), torch.cat((u, far[1]), -2).flatten(0, 1)
        heard = F.scaled_dot_product_attention(q.flatten(0, 1), k, u, attn_mask=hidden)  # (b K, h, L, d)
        return self.out(heard.transpose(1, 2).reshape(v.shape))

    def _by_head(self, images: Tensor, count: int) -> Tensor:
        """(b, K, L, count h d) -> (count, b, K, h, L, d)"""
        return images.unflatten(-1, (count, self.heads, -1)).permute(3, 0, 1, 4, 2, 5)


class MSPT(TokenModel):
    """MSPT on grids, meshes and points, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too; those of points are not counted (0: they are all).
        out_channels: output fields.
        dims: number of axes of a grid or coordinates of a point.
        width: hidden channels. Published: 128, 256 (Darcy, Navier-Stokes).
        depth: number of blocks. Published: 8.
        heads: groups of channels that attend by themselves; a divisor of `width`. Published: 8.
        patches: number of patches. Published: 32, 64 (Pipe), 106 (Airfoil), 600 (Darcy).
        supernodes: means of each patch. Published: 1.
        expansion: hidden width of the MLPs over `width`. Published: 2.
        coordinates: positions of a grid's points: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none". The last
            leaves positions out of the lift, those of points too.
        landmarks: tell positions by their distances to a grid of this many points per axis; 0 tells coordinates.
            Published: 8 (Darcy, Navier-Stokes), 0.
        spread: standard deviation of the weights of linear maps at the start. Published: 0.02.
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
        patches: int = 32,
        supernodes: int = 1,
        expansion: int = 2,
        coordinates: Coordinates = "endpoint",
        landmarks: int = 0,
        spread: float = 0.02,
    ) -> None:
        super().__init__(config_of(MSPT, locals()), in_channels, out_channels, dims, coordinates, landmarks)
        at_least(1, width=width, depth=depth, patches=patches, supernodes=supernodes, expansion=expansion)
        self.parts = patches * supernodes
        self.lift = MLP(self.known, 2 * width, width)
        self.blocks = nn.ModuleList(
            TokenBlock(PatchAttention(width, heads, patches, supernodes), width, expansion) for _ in range(depth)
        )
        self.project = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, out_channels))
        normal_weights(self, spread)

    def start(self, known: Tensor) -> Tensor:
        return self.lift(known.flatten(1, -2))

    def through(self, state: Tensor, coords: Tensor | None, mask: Tensor | None) -> Tensor:
        if coords is None and state.shape[1] % self.parts == 0:  # they stand in their slots as they are
            return super().through(state, None, None)
        slots = self.slots(state, coords, mask)
        v = take(state, slots.source)
        return take(super().through(v, None, slots.filled), slots.home)

    def slots(self, v: Tensor, coords: Tensor | None, mask: Tensor | None) -> Slots:
        """Where the tokens (b, N, width) stand: patch by patch, part by part."""
        if coords is not None:
            count = None if mask is None else mask.sum(1, keepdim=True)
            return even_chunks(tree_order(coords.mT, mask), self.parts, count)
        number = v.shape[1]

        def rows() -> Slots:
            return even_chunks(torch.arange(number, device=v.device).unsqueeze(0), self.parts)

        return kept(("rows", number, self.parts), rows, v)
