"""GNOT's experts, and that what is asked stays as it is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hofno.errors import SpecError
from hofno.models.gnot import GNOT, Experts, GNOTBlock


@torch.no_grad()
def test_experts_equal_their_sum() -> None:
    torch.manual_seed(0)
    layer = Experts(4, 5, 3).double()
    v, shares = torch.randn(2, 6, 4, dtype=torch.float64), torch.rand(2, 6, 3, dtype=torch.float64)
    exact = torch.zeros_like(v)
    for expert in range(3):
        rows = slice(5 * expert, 5 * expert + 5)
        hidden = F.gelu(v @ layer.up.weight[rows].T + layer.up.bias[rows])
        answer = hidden @ layer.down.weight[:, rows].T + layer.offset.weight[:, expert]
        exact += shares[..., expert, None] * answer
    assert torch.allclose(layer(v, shares), exact)


@torch.no_grad()
def test_a_block_changes_the_queries_and_not_what_they_ask() -> None:
    torch.manual_seed(0)
    block = GNOTBlock(8, 2, 2, 2, 3)
    v, y, places = torch.randn(1, 7, 8), torch.randn(1, 7, 8), torch.rand(1, 7, 2)
    after, asked, where = block((v, y, places))
    assert asked is y
    assert where is places
    assert not torch.allclose(after, block((v, y.flip(2), places))[0], atol=1e-4)
    assert not torch.allclose(after, block((v, y, 3 * places))[0], atol=1e-4)


@torch.no_grad()
def test_gates_choose_by_position() -> None:
    torch.manual_seed(0)
    block = GNOTBlock(8, 2, 2, 1, 3)
    shares = block.gate(torch.rand(1, 50, 2)).softmax(-1)
    assert torch.allclose(shares.sum(-1), torch.ones(1, 50))
    assert float(shares.std(1).min()) > 1e-3


def test_a_single_expert_is_refused() -> None:
    with pytest.raises(SpecError, match="experts must be at least 2"):
        GNOT(1, 1, experts=1)
