"""Jobs side by side: order, one thread each, failures, and the setting that is put back."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from hofno.problems.plasticity import Plasticity
from hofno.solvers import parallel, plasticity
from hofno.solvers.parallel import AbandonedError, go_on, in_order


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_are_in_order_whoever_is_first() -> None:
    def slow_start(job: int) -> int:
        time.sleep(0.05 if job == 0 else 0)
        return 10 * job

    assert list(in_order(slow_start, range(6), "cpu", 3)) == [0, 10, 20, 30, 40, 50]


def test_they_run_at_the_same_time_on_one_thread_each() -> None:
    meeting = threading.Barrier(2, timeout=20)

    def meet(job: int) -> int:
        meeting.wait()
        return torch.get_num_threads()

    assert list(in_order(meet, range(4), "cpu", 2)) == [1, 1, 1, 1]
    assert torch.get_num_threads() == 2


def test_another_device_takes_one_after_the_other() -> None:
    main = threading.get_ident()
    assert list(in_order(lambda job: threading.get_ident(), range(3), "meta", 4)) == [main] * 3


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_who_waits_looks_while_jobs_run_and_no_longer(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "PAUSE", 0.01)
    looks: list[int] = []

    def work(job: int) -> int:
        for _ in range(10):
            time.sleep(0.005)
            go_on()
        return job

    assert list(in_order(work, [1, 2], device, 2, lambda: looks.append(threading.get_ident()))) == [1, 2]
    assert set(looks) == {threading.get_ident()}
    count = len(looks)
    time.sleep(0.02)
    go_on()
    assert len(looks) == count


def test_a_failure_cancels_the_rest() -> None:
    begun: list[int] = []

    def fail(job: int) -> None:
        begun.append(job)
        time.sleep(0.01)
        if job == 1:
            raise ValueError("job 1")

    with pytest.raises(ValueError, match="job 1"):
        list(in_order(fail, range(1000), "cpu", 2))
    assert len(begun) < 500
    assert torch.get_num_threads() == 2


def test_closing_puts_the_setting_back() -> None:
    """Also for threads that begin later, which take the last setting that anyone made."""
    results = in_order(lambda job: job, range(100), "cpu", 2)
    assert next(results) == 0
    results.close()
    assert torch.get_num_threads() == 2
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 2


def test_no_jobs() -> None:
    assert list(in_order(str, [], "cpu", 2)) == []


@pytest.mark.parametrize("ends", ["interrupted", "failed", "closed"])
def test_long_jobs_end_when_no_one_waits_for_them(ends: str) -> None:
    """They run in threads that Ctrl-C does not reach, here for minutes unless they are told."""
    running, left = threading.Event(), list[int]()

    def long(job: int) -> int:
        if job == 0:
            running.wait(60)
            if ends == "failed":
                raise ValueError("job 0")
            return job
        try:
            for _ in range(60_000):
                go_on()
                running.set()
                time.sleep(0.001)
        finally:
            left.append(job)
        return job

    results, begun = in_order(long, range(2), "cpu", 2), time.monotonic()
    if ends == "failed":
        with pytest.raises(ValueError, match="job 0"):
            next(results)
    else:
        assert next(results) == 0
    if ends == "interrupted":
        with pytest.raises(KeyboardInterrupt):
            results.throw(KeyboardInterrupt)
    results.close()
    assert left == [1]
    assert time.monotonic() - begun < 30
    go_on()  # this thread runs no job


def test_an_interrupted_block_of_metal_stops_within_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []

    def stop_at_the_third() -> None:
        calls.append(None)
        if len(calls) == 3:
            raise AbandonedError

    blocks = Plasticity(coarsen=10, refine=1).blocks(np.array([[7.6, 5, 5, 5, 0, 5, 5, 5, 7.6]]).T)
    monkeypatch.setattr(plasticity, "go_on", stop_at_the_third)
    monkeypatch.setattr(plasticity, "_ELEMENTS_AT_ONCE", 1000)
    with pytest.raises(AbandonedError):
        blocks.advance(0.1, 1000)
    assert len(calls) == 3
