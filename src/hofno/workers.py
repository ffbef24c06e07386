"""Work shared by a few processes, each with a private pipe to this one, so that any of them may end at any moment.

Nothing is shared between the processes, so one that dies takes no lock with it. The first error or interruption asks
the others to stop (SIGTERM: a training loop saves and leaves) and waits for them, `GRACE` seconds. Where this process
is killed, they ask themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from hofno.errors import HofnoError

LESS_TO_MEASURE = "lower --batch or choose a smaller --shape"
"""What helps where a benchmark finds too little memory."""

GRACE = 30.0
"""Seconds that processes have to stop as they are asked to."""


class EndedError(HofnoError):
    """A process ended without a result."""


def share(
    work: Callable[[Any], Any],
    tasks: Sequence[Any],
    workers: int,
    done: Callable[[int, Any], None],
    remedy: str = "use fewer --workers and run again",
    gpus: Sequence[str] = (),
) -> None:
    """Call `work(task)` for every task in at most `workers` processes, and `done(index, result)` as results come.

    `work` must be a function of a module, tasks and results plain values. `remedy` is what helps where a process ends
    without a result. Of `gpus`, as CUDA_VISIBLE_DEVICES names them, each process sees one, in turn.
    """
    context = multiprocessing.get_context("spawn")
    waiting = deque(enumerate(tasks))
    processes: list[BaseProcess] = []
    busy: dict[Any, int] = {}  # connection: index of its task

    def give_next(connection: Any) -> None:
        if waiting:
            busy[connection], task = waiting.popleft()
            with suppress(ConnectionError):  # a worker that died is found when its result is read
                connection.send(task)
        else:
            connection.close()  # the worker reads the end of its pipe and leaves

    patience = None
    with _asked_to_stop():
        try:
            for number in range(min(workers, len(tasks))):
                here, there = context.Pipe()
                process = context.Process(target=_serve, args=(work, there))
                with _seeing(gpus[number % len(gpus)] if gpus else None):
                    process.start()
                processes.append(process)
                there.close()
                give_next(here)
            while busy:
                for connection in wait(list(busy)):
                    index = busy.pop(connection)
                    result = _receive(connection, remedy)
                    give_next(connection)
                    done(index, result)
        except BaseException:
            patience = GRACE
            for process in processes:
                process.terminate()
            raise
        finally:
            for connection in busy:
                connection.close()
            for process in processes:
                process.join(patience)
                process.kill()  # one that was asked to stop and does not: its last checkpoint serves


@contextmanager
def _asked_to_stop() -> Iterator[None]:
    """SIGTERM is Ctrl-C here, once, so that processes that save are waited for; in the main thread, which gets both."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = threading.Event()

    def ask(number: int, frame: object) -> None:
        if not asked.is_set():
            asked.set()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _seeing(gpu: str | None) -> Iterator[None]:
    """Processes that are started in here see this GPU alone; all of them if it is None."""
    if gpu is None:
        yield
        return
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


def alone(work: Callable[[Any], Any], task: Any, remedy: str = LESS_TO_MEASURE) -> Any:
    """`work(task)` in a new process, which ends with it, as `hofno bench` measures."""
    results: list[Any] = []
    share(work, [task], 1, lambda _, result: results.append(result), remedy)
    return results[0]


def _receive(connection: Any, remedy: str) -> Any:
    """A result; an error of the worker is raised here."""
    try:
        result = connection.recv()
    except (EOFError, ConnectionError):
        raise EndedError(f"a process ended without a result, killed or out of memory; {remedy}") from None
    if isinstance(result, BaseException):
        raise result
    return result


def _serve(work: Callable[[Any], Any], connection: Connection) -> None:
    """A worker: task in, result out, until the pipe is closed. Ctrl-C is for the parent and for training loops."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_stop_without_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            task = connection.recv()
            try:
                result = work(task)
            except (HofnoError, MemoryError, RuntimeError, OSError, KeyboardInterrupt) as error:
                result = error
            except Exception:
                result = RuntimeError(traceback.format_exc())
            connection.send(result)


def _stop_without_parent() -> None:
    """Wait for the end of the parent, and ask this process to stop as the parent would have."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
