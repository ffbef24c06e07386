"""Attention in balls, and coarser and finer clouds, one token at a time."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.layers.balls import BallAttention, Coarsen, GatedMLP, Refine, balls_of, centres, offsets_from_centres

FILLED = torch.tensor([[True, True, True, True, True, True], [True, False, True, True, True, False]])
EMPTY = torch.tensor([[True, True, True, True, True, True], [True, True, False, False, False, False]])


def data() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 6, 4).double(), torch.rand(2, 6, 2).double()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("filled", [None, FILLED, EMPTY])
@torch.no_grad()
def test_attention_equals_loops(filled: Tensor | None, shared: bool) -> None:
    v, places = data()
    layer = BallAttention(4, 2, 2).double()
    layer.slope.copy_(torch.tensor([-3.0, 2.0]).view(2, 1, 1))
    rows = slice(1, 2) if shared else slice(None)
    found = layer(v, balls_of(places[rows], 3, None if filled is None else filled[rows]))
    assert bool(found.isfinite().all())
    for b in range(2):
        at = places[1 if shared else b]
        there = [True] * 6 if filled is None else filled[1 if shared else b].tolist()
        for ball in (range(3), range(3, 6)):
            inside = [i for i in ball if there[i]]
            if not inside:
                continue
            centre = sum((at[i] for i in inside), torch.zeros(2).double()) / len(inside)
            told = {i: v[b, i] + layer.places(at[i] - centre) for i in inside}
            images = {i: layer.maps(told[i]).view(3, 2, 2) for i in inside}
            for i in inside:
                heard = []
                for head in range(2):
                    scores = torch.stack(
                        [
                            images[i][0, head] @ images[j][1, head] / math.sqrt(2)
                            + layer.slope[head, 0, 0] * (at[i] - at[j]).norm()
                            for j in inside
                        ]
                    )
                    values = torch.stack([images[j][2, head] for j in inside])
                    heard.append(scores.softmax(0) @ values)
                # distances to itself are 1e-6 and not 0, so that they have a slope
                assert torch.allclose(found[b, i], layer.out(torch.cat(heard)), atol=1e-5)


@pytest.mark.parametrize("filled", [None, FILLED, EMPTY])
@torch.no_grad()
def test_coarser_and_finer_clouds(filled: Tensor | None) -> None:
    v, places = data()
    coarsen, refine = Coarsen(4, 2, 2).double(), Refine(4, 2, 2).double()
    middle, offsets = centres(places, 2, filled), offsets_from_centres(places, 2, filled)
    coarse = coarsen(v, offsets, filled)
    fine = refine(coarse, v, offsets)
    assert coarse.shape == (2, 3, 4)
    for b in range(2):
        for group in range(3):
            inside = [2 * group, 2 * group + 1]
            there = [i for i in inside if filled is None or filled[b, i]]
            centre = sum((places[b, i] for i in there), torch.zeros(2).double()) / max(1, len(there))
            assert torch.allclose(middle[b, group, 0], centre)
            steps = [places[b, i] - centre if i in there else torch.zeros(2).double() for i in inside]
            both = [torch.cat((v[b, i] if i in there else torch.zeros(4).double(), steps[i % 2])) for i in inside]
            assert torch.allclose(coarse[b, group], coarsen.norm(coarsen.map(torch.cat(both))), atol=1e-12)
            children = refine.map(torch.cat((coarse[b, group], *steps))).view(2, 4)
            for i in inside:
                assert torch.allclose(fine[b, i], refine.norm(v[b, i] + children[i % 2]), atol=1e-12)


def test_gated_mlp() -> None:
    layer, v = GatedMLP(3, 5), torch.randn(2, 3)
    gate, values = (F.linear(v, layer.up.weight[part], layer.up.bias[part]) for part in (slice(5), slice(5, 10)))
    assert torch.allclose(layer(v), layer.down(gate * gate.sigmoid() * values), atol=1e-6)


def test_gradients() -> None:
    v, places = data()
    layer: nn.Module = BallAttention(4, 2, 2).double()

    def attend(tokens: Tensor, at: Tensor) -> Tensor:
        return layer(tokens, balls_of(at, 3, FILLED)).masked_fill(~FILLED.unsqueeze(-1), 0.0)

    assert torch.autograd.gradcheck(attend, (v.requires_grad_(), places.requires_grad_()), atol=1e-4)


def test_heads_divide_the_width() -> None:
    with pytest.raises(SpecError, match="width must be a multiple of heads"):
        BallAttention(4, 3, 2)
