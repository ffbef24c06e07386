r"""The network in its plain form, as the published code writes it, with the weights of a HOFNO.

    pad with zeros, project, multiply the factors, rfft2, two slices of modes times complex weights, irfft2, crop

An ordinary implementation, neither tuned nor slowed. Complex weights are views of real pairs, so that both forms take
the same fused optimiser.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.models.spectral import HOFNO


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A network on a grid of points x points; `samples` is the batch it is used with."""

    points: int
    modes: tuple[int, int]
    width: int
    depth: int
    order: int
    expansion: int
    in_channels: int
    weights: str = "depthwise"
    domain_padding: float = 0.0
    samples: int = 1

    def build(self) -> HOFNO:
        return HOFNO(
            self.in_channels,
            1,
            self.modes,
            width=self.width,
            depth=self.depth,
            order=self.order,
            expansion=self.expansion,
            weights=self.weights,
            domain_padding=self.domain_padding,
            mode_set="reference",
        )


class PlainConv(nn.Module):
    """The spectral convolution by rfft2 of the padded, channel-first field."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.order, self.modes, self.domain_padding = shape.order, shape.modes, shape.domain_padding
        self.proj = nn.Conv2d(shape.width, shape.order * shape.width, 1)
        channels = (shape.width,) * (2 if shape.weights == "dense" else 1)
        self.low = nn.Parameter(torch.empty(*channels, *shape.modes, 2))  # k1 = 0 .. m1-1
        self.high = nn.Parameter(torch.empty(*channels, *shape.modes, 2))  # k1 = -m1 .. -1
        self.mix = "bihw,iohw->bohw" if shape.weights == "dense" else None

    def forward(self, v: Tensor) -> Tensor:
        h, w = v.shape[1:3]
        m1, m2 = self.modes
        v = v.permute(0, 3, 1, 2)  # (b, c, h, w)
        if self.domain_padding:
            v = F.pad(v, (0, int(self.domain_padding * w), 0, int(self.domain_padding * h)))
        z = reduce(torch.mul, self.proj(v).chunk(self.order, dim=1))
        spectrum = torch.fft.rfft2(z)
        filtered = torch.zeros_like(spectrum)
        for rows, pairs in ((slice(None, m1), self.low), (slice(-m1, None), self.high)):
            kept, weight = spectrum[:, :, rows, :m2], torch.view_as_complex(pairs)
            filtered[:, :, rows, :m2] = kept * weight if self.mix is None else torch.einsum(self.mix, kept, weight)
        y = torch.fft.irfft2(filtered, s=z.shape[-2:])
        return y[:, :, :h, :w].permute(0, 2, 3, 1)


class PlainBlock(nn.Module):
    """v + conv(norm v), then v + MLP(norm v)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.RMSNorm(shape.width, eps=1e-6) for _ in range(2))
        self.conv = PlainConv(shape)
        hidden = shape.expansion * shape.width
        self.mlp = nn.Sequential(nn.Linear(shape.width, hidden), nn.GELU(), nn.Linear(hidden, shape.width))

    def forward(self, v: Tensor) -> Tensor:
        v = v + self.conv(self.norm1(v))
        return v + self.mlp(self.norm2(v))


class PlainNetwork(nn.Module):
    """The network of `ModelShape.build` in its plain form, (b, c, h, w) -> (b, 1, h, w)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.lift = nn.Linear(shape.in_channels + 2, shape.width)
        self.blocks = nn.ModuleList(PlainBlock(shape) for _ in range(shape.depth))
        self.project = nn.Linear(shape.width, 1)

    def forward(self, x: Tensor) -> Tensor:
        axes = (torch.linspace(0, 1, n, device=x.device) for n in x.shape[2:])
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).expand(x.shape[0], -1, -1, -1)
        v = self.lift(torch.cat((x.permute(0, 2, 3, 1), grid), dim=-1))
        for block in self.blocks:
            v = block(v)
        return self.project(v).permute(0, 3, 1, 2)


def plain_layout(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of a HOFNO, or their gradients, under the names and in the layout of `PlainNetwork`."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith("filter.weight"):  # (K1, K2, channels.., 2)
            low, high = tensor.movedim((0, 1), (-3, -2)).chunk(2, dim=-3)
            stem = name.removesuffix("filter.weight")
            found[stem + "low"], found[stem + "high"] = low.contiguous(), high.contiguous()
        elif ".factors.linear." in name:
            plain = name.replace("factors.linear", "proj")
            found[plain] = tensor[:, :, None, None] if tensor.ndim == 2 else tensor
        else:
            found[name.replace("mlp.up", "mlp.0").replace("mlp.down", "mlp.2")] = tensor
    return found
