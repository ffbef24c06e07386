"""--threads: a number, or the faster of one and all."""

from __future__ import annotations

import os

import pytest
import torch

from hofno.cli import threads
from hofno.errors import SpecError


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
    os.environ.pop("OMP_NUM_THREADS", None)


def test_a_number_is_taken_here_and_by_children() -> None:
    threads.settle_threads("1")
    assert torch.get_num_threads() == 1
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_nothing_is_chosen_unless_asked_for() -> None:
    before = torch.get_num_threads()
    threads.settle_threads(None)
    assert torch.get_num_threads() == before
    assert "OMP_NUM_THREADS" not in os.environ


@pytest.mark.parametrize(("pay", "count"), [(True, 2), (False, 1)])
def test_auto_takes_the_faster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pay: bool, count: int
) -> None:
    torch.set_num_threads(2)
    monkeypatch.setattr(threads, "several_pay", lambda: pay)
    threads.settle_threads("auto")
    assert torch.get_num_threads() == count
    assert ("one thread is faster" in capsys.readouterr().out) is not pay


def test_what_was_set_before_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(threads, "several_pay", lambda: pytest.fail("measured although the user has chosen"))
    threads.settle_threads("auto")
    assert torch.get_num_threads() == 2


def test_the_measurement_leaves_the_threads_as_they_are() -> None:
    torch.set_num_threads(2)
    assert threads.several_pay() in (True, False)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("wanted", ["0", "-1", "many", "1.5"])
def test_other_words_are_refused(wanted: str) -> None:
    with pytest.raises(SpecError, match="--threads is a number"):
        threads.settle_threads(wanted)
