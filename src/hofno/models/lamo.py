r"""LaMO: slices of the domain as the tokens of a state space, on grids, meshes and points.

    v_i = MLP(u_i, x_i)                                                lift
    w_ij, s_j = slices of norm v                                       see `hofno.layers.slices`
    v_i <- v_i + W sum_j w_ij S(s)_j,   v <- v + MLP(norm v)           blocks, S see `hofno.layers.statespace`
    G u = W norm v                                                     at every point

S looks along the list of slices from both ends; slice j has the channels of all heads. The order of the slices is
learned with them, and that of the points does not matter. The published models for regular grids have patches in place
of slices: `hofno.models.lamo_patches`. As with Transolver, a learned vector added to all tokens is left out here as a
second bias of the lift.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hofno.geometry import Coordinates, choose
from hofno.layers.fields import at_least
from hofno.layers.parts import MLP
from hofno.layers.slices import Slicing
from hofno.layers.statespace import Hydra, TwoWayScan
from hofno.layers.token_blocks import merge_heads, normal_weights, split_heads
from hofno.models.anywhere import TokenModel
from hofno.models.config import config_of

SCANS: dict[str, type[Hydra | TwoWayScan]] = {"hydra": Hydra, "mamba": TwoWayScan}
State = tuple[Tensor, Slicing | None]  # tokens, and the slices of all blocks where they share them


class SliceScanBlock(nn.Module):
    """v + W S(slices of norm v), then v + MLP(norm v), with slices of its own or those that are given."""

    def __init__(self, width: int, expansion: int, scan: nn.Module, slicing: Slicing | None) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.slicing, self.scan = slicing, scan
        self.out = nn.Linear(width, width)
        self.mlp = MLP(width, expansion * width, width)

    def forward(self, state: State, mask: Tensor | None = None) -> State:
        v, shared = state
        slicing = self.slicing if shared is None else shared
        assert slicing is not None
        shares, slices = slicing(self.norm1(v), mask)  # (b, h, N, G), (b, h, G, d)
        heard = split_heads(self.scan(merge_heads(slices)), slicing.heads)
        v = v + self.out(merge_heads(torch.matmul(shares, heard.to(shares.dtype)))).unflatten(1, v.shape[1:-1])
        return v + self.mlp(self.norm2(v)), shared


class LaMO(TokenModel):
    """LaMO of slices on grids, meshes and points, (b, in_channels, *n) -> (b, out_channels, *n).

    Args:
        in_channels: input fields, on a mesh its coordinates too; those of points are not counted (0: they are all).
        out_channels: output fields.
        dims: number of axes of a grid or coordinates of a point.
        width: hidden channels. Published: 128.
        depth: number of blocks. Published: 8.
        heads: groups of channels with slices of their own; a divisor of `width`. Published: 8.
        slices: slices of each head. Published: 64.
        scan: what goes along the slices, "hydra" (published: elasticity, airfoil) or "mamba" (pipe, plasticity).
        states: numbers remembered for each channel. Published: 64, 1 (airfoil).
        growth: channels that are scanned over `width`. Published: 2, 1 (airfoil).
        groups: sets of maps into and out of the states. Published: 2 (elasticity), 1.
        share: one set of slices' maps for all blocks. Published: true with "hydra", false with "mamba".
        expansion: hidden width of the MLPs over `width`. Published: 1, 2 (pipe).
        projection: "linear", or "conv" for convolutions of 3 points per axis before the slices. Published: "conv" on
            meshes, which ties the model to their resolution, and "linear" at points.
        coordinates: positions of a grid's points: "endpoint" (linspace(0, 1, n)), "periodic" (i/n) or "none". The last
            leaves positions out, those of points too.
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
        slices: int = 64,
        scan: str = "hydra",
        states: int = 64,
        growth: int = 2,
        groups: int = 2,
        share: bool = True,
        expansion: int = 1,
        projection: str = "linear",
        coordinates: Coordinates = "endpoint",
        spread: float = 0.02,
    ) -> None:
        super().__init__(config_of(LaMO, locals()), in_channels, out_channels, dims, coordinates)
        self.needs_grid = "projection='conv'" if projection == "conv" else ""
        at_least(1, width=width, depth=depth, expansion=expansion)
        choose(scan, tuple(SCANS), "scan")
        self.lift = MLP(self.known, 2 * width, width)
        self.shared = Slicing(width, heads, slices, projection, dims) if share else None
        self.blocks = nn.ModuleList(
            SliceScanBlock(
                width,
                expansion,
                SCANS[scan](width, states, growth, groups),
                None if share else Slicing(width, heads, slices, projection, dims),
            )
            for _ in range(depth)
        )
        self.project = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, out_channels))
        normal_weights(self, spread)

    def start(self, known: Tensor) -> State:
        return self.lift(known), self.shared

    def end(self, state: State) -> Tensor:
        return state[0]
