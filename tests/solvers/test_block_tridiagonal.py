"""Block tridiagonal Cholesky against dense solves."""

from __future__ import annotations

import pytest
import torch

from hofno.solvers.block_tridiagonal import BlockTridiagonal, sum_rounds


def entries(n: int, pairs: list[tuple[int, int]], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows, columns and values of 3 positive matrices as sums of 2 x 2 elements, places coming more than once."""
    rows, columns, values = [], [], []
    generator = torch.Generator().manual_seed(seed)
    for i, j in [*pairs, *((k, k) for k in range(n))]:
        root = torch.randn(3, 2, 2, generator=generator, dtype=torch.float64)
        element = root @ root.mT + 0.1 * torch.eye(2, dtype=torch.float64)
        for a, row in enumerate((i, j)):
            for b, column in enumerate((i, j)):
                rows.append(row)
                columns.append(column)
                values.append(element[:, a, b])
    return torch.tensor(rows), torch.tensor(columns), torch.stack(values, 1)


CHAIN = [(i, i + 1) for i in range(11)]
RING = [*CHAIN, (11, 0), (3, 7)]
STAR = [(0, i) for i in range(1, 12)]
APART = [(0, 1), (1, 2), (5, 6), (9, 11)]


@pytest.mark.parametrize("pairs", [CHAIN, RING, STAR, APART, []], ids=["chain", "ring", "star", "apart", "diagonal"])
def test_it_solves_what_a_dense_solver_solves(pairs: list[tuple[int, int]]) -> None:
    rows, columns, values = entries(12, pairs)
    dense = torch.zeros(3, 12, 12, dtype=torch.float64)
    for place in range(len(rows)):
        dense[:, rows[place], columns[place]] += values[:, place]
    right = torch.randn(3, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    system = BlockTridiagonal(12, rows, columns)
    lowers, couplings, failed = system.factorise(values)
    assert not failed.any()
    torch.testing.assert_close(system.solve(lowers, couplings, right), torch.linalg.solve(dense, right))


def test_blocks_are_small_where_the_graph_is_long() -> None:
    rows, columns, _ = entries(12, CHAIN)
    system = BlockTridiagonal(12, rows, columns)
    assert system.size <= 2
    assert system.bytes_per_matrix() == 32 * system.blocks * system.size**2


def test_matrices_that_are_not_positive_are_named() -> None:
    rows, columns, values = entries(12, RING)
    values[1] -= 5.0 * (rows == columns)
    _, _, failed = BlockTridiagonal(12, rows, columns).factorise(values)
    assert failed.tolist() == [False, True, False]


def test_rounds_add_every_entry_once() -> None:
    places = torch.tensor([4, 2, 4, 4, 0, 2])
    rounds = sum_rounds(places)
    assert [len(place) for place, _ in rounds] == [3, 2, 1]
    for place, source in rounds:
        assert len(place.unique()) == len(place)
        assert torch.equal(places[source], place)
    assert sorted(torch.cat([source for _, source in rounds]).tolist()) == list(range(6))
