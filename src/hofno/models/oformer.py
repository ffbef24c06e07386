r"""OFormer: attention of linear cost gathers the input, and queries made of positions alone read the output off it.

    v_i = P [u_i, x_i]                                                       lift
    v <- norm v,  v <- v + A(v, x),  v <- norm v,  v <- v + FFN(v)           encoder, A see `hofno.layers.rotary`
    q_i = MLP [cos, sin](2 pi F x_i)                                         queries, F drawn once and not learned
    z <- q + A(q, E v, x),   z <- z + MLP(z),   G u = MLP [z, x]             decoder, at every point

The norms stand in the stream: what is added to is normed too. FFN = W_2 (a * gelu b) with [a, b] = W_1 v.

The answer is read where the input is given. What published code marches in time between encoder and decoder for the
equations of Navier and Stokes is not here: a step is one answer, and rollouts make many. There, positions are counted
in points of the training grid before channels are turned by them, which is another model on another grid; here `reach`
says how fast that is.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.geometry import Coordinates
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP
from hofno.layers.precision import full_precision
from hofno.layers.rotary import RotaryAttention
from hofno.models.anywhere import TokenModel
from hofno.models.config import config_of

State = tuple[Tensor, Tensor]  # (b, N, channels), (b, N, d)


class OFormerBlock(nn.Module):
    """norm v + A, then the norm of that + FFN."""

    def __init__(self, width: int, heads: int, dims: int, expansion: int, reach: float, gain: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = RotaryAttention(width, heads, dims, reach, gain)
        self.up, self.down = nn.Linear(width, 2 * expansion * width), nn.Linear(expansion * width, width)

    def forward(self, state: State, mask: Tensor | None = None) -> State:
        v, places = state
        v = self.norm1(v)
        v = self.norm2(v + self.attention(v, v, places, mask))
        a, b = self.up(v).chunk(2, -1)
        return v + self.down(a * F.gelu(b)), places


class Decoder(nn.Module):
    """Queries of positions that attend to the encoded input, (b, N, width) -> (b, N, latent)."""

    frequencies: Tensor

    def __init__(
        self, width: int, latent: int, heads: int, dims: int, reach: float, gain: float, bandwidth: float
    ) -> None:
        super().__init__()
        self.register_buffer("frequencies", 2.0 * math.pi * bandwidth * torch.randn(dims, latent // 2))
        self.encode = nn.Linear(width, latent)
        self.query = MLP(2 * (latent // 2), latent, latent)
        self.attention = RotaryAttention(latent, heads, dims, reach, gain)
        self.mlp = MLP(latent, latent, latent)

    def forward(self, state: State, mask: Tensor | None = None) -> State:
        v, places = state
        with full_precision(places):
            angles = torch.matmul(places, self.frequencies)
            q = self.query(torch.cat((angles.cos(), angles.sin()), -1))
        z = q + self.attention(q, self.encode(v), places, mask)
        return z + self.mlp(z), places


class OFormer(TokenModel):
    """OFormer on grids, meshes and points, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too; those of points are not counted (0: they are all).
        out_channels: output fields.
        dims: number of axes of a grid or coordinates of a point.
        width: channels of the encoder. Published: 96.
        latent: channels of the decoder. Published: 256 (Darcy), 384 (Navier-Stokes).
        depth: blocks of the encoder. Published: 6 (Darcy), 5 (Navier-Stokes).
        heads: how often there are queries, keys and values, each of all channels. Published: 4 (Darcy).
        expansion: hidden width of the encoder's FFN over `width`. Published: 2.
        reach: the fastest pair of channels is turned by this angle over the domain in the first block and the decoder,
            by a quarter of it in the second block and by 1 in the others. Published: the points along an axis.
        gain: size of queries at the start over 1 / `width`, or 1 / `latent` in the decoder. Published: 1.
        bandwidth: standard deviation of the frequencies of queries, in waves over the domain.
        coordinates: positions of a grid's points: "endpoint" (linspace(0, 1, n)) or "periodic" (i/n).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int = 2,
        *,
        width: int = 96,
        latent: int = 256,
        depth: int = 6,
        heads: int = 4,
        expansion: int = 2,
        reach: float = 64.0,
        gain: float = 1.0,
        bandwidth: float = 8.0,
        coordinates: Coordinates = "endpoint",
    ) -> None:
        super().__init__(config_of(OFormer, locals()), in_channels, out_channels, dims, coordinates)
        self.need_places()
        at_least(1, width=width, latent=latent, depth=depth, expansion=expansion)
        if not (reach >= 0.0 and gain > 0.0 and bandwidth > 0.0):
            raise SpecError(f"reach is at least 0, gain and bandwidth above 0; got {reach}, {gain} and {bandwidth}")
        reaches = (reach, reach / 4.0, *(min(1.0, reach) for _ in range(depth)))
        self.lift = nn.Linear(self.known, width, bias=False)
        self.blocks = nn.ModuleList(OFormerBlock(width, heads, dims, expansion, reaches[k], gain) for k in range(depth))
        self.blocks.append(Decoder(width, latent, heads, dims, reach, gain, bandwidth))
        self.project = MLP(latent + dims, max(1, latent // 2), out_channels)

    def start(self, known: Tensor) -> State:
        known = known.flatten(1, -2)
        return self.lift(known), known[..., -self.dims :]

    def end(self, state: State) -> Tensor:
        z, places = state
        return torch.cat((z.to(places.dtype), places), -1)
