"""Groups of samples: how many fit into memory, and in what size they are solved."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hofno.errors import SolverError
from hofno.problems import groups
from hofno.problems.base import Problem, ignore_progress
from hofno.problems.groups import groups_in_memory, solve_in_groups, too_little_memory


class Counted(Problem):
    """A problem that is only counted."""

    name = "counted"

    @property
    def channels(self) -> tuple[int, int]:
        return 1, 2


def refusal(free: int) -> SolverError:
    return too_little_memory("of 10 bytes", 10, "cpu", free, "size")


@pytest.mark.parametrize(
    ("free", "expected"), [(None, (8, 3)), (300, (8, 3)), (200, (8, 2)), (100, (8, 1)), (90, (4, 1)), (10, (1, 1))]
)
def test_little_memory_means_smaller_and_fewer_groups(
    free: int | None, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(groups, "free_bytes", lambda device: free)
    assert groups_in_memory("cpu", 11, 10, refusal) == expected
    assert groups_in_memory("cuda", 11, 10, refusal) == (expected[0], 1)


def test_a_memory_that_holds_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "free_bytes", lambda device: 9)
    with pytest.raises(SolverError, match=r"one sample of 10 bytes needs .* on cpu and .* are free; .* lower size or"):
        groups_in_memory("cpu", 8, 10, refusal)


def test_splits_are_filled_in_order_and_in_whole_groups() -> None:
    asked: list[tuple[int, int, int, int]] = []
    told: list[int] = []

    def solve(stream: int, start: int, stop: int, group: int) -> tuple[np.ndarray, np.ndarray]:
        asked.append((stream, start, stop, group))
        if group > 2:
            raise torch.OutOfMemoryError
        number = 100.0 * stream + np.arange(start, stop, dtype=np.float32)[:, None, None]
        return number.repeat(3, 2), np.stack((number, -number), 1)[..., 0].repeat(3, 2)

    problem = Counted(train=5, valid=1, test=2)  # pyright: ignore[reportCallIssue]

    def watch(stage: str, done: int, total: int) -> None:
        told.append(done)
        assert (stage, total) == ("generate", 8)

    found = solve_in_groups(problem, (3,), solve, "cpu", (4, 1), refusal, watch)
    assert found["train"].x[:, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert found["test"].y[:, :, 2].tolist() == [[200, -200], [201, -201]]
    assert [job for job in asked if job[3] == 2] == [
        (0, 0, 2, 2), (0, 2, 4, 2), (0, 4, 5, 2), (1, 0, 1, 2), (2, 0, 2, 2)
    ]  # fmt: skip
    assert told == [2, 4, 5, 6, 8]


def test_what_goes_wrong_says_where() -> None:
    def solve(stream: int, start: int, stop: int, group: int) -> tuple[np.ndarray, np.ndarray]:
        raise torch.OutOfMemoryError if stream == 0 else SolverError("no")

    problem = Counted(train=1, valid=1, test=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(SolverError, match="one sample of 10 bytes needs"):
        solve_in_groups(problem, (3,), solve, "cpu", (1, 1), refusal, ignore_progress)

    def wrong(stream: int, start: int, stop: int, group: int) -> tuple[np.ndarray, np.ndarray]:
        if stream == 1:
            raise SolverError("no")
        return np.zeros((1, 1, 3)), np.zeros((1, 2, 3))

    with pytest.raises(SolverError, match="valid samples from 0 on: no"):
        solve_in_groups(problem, (3,), wrong, "cpu", (1, 1), refusal, ignore_progress)
