"""Progress for the person watching: a bar with what is done and the time left, or plain lines without a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol


class Show(Protocol):
    """What a loop tells while it runs; `unit` is the word before what is counted, where it stands in a line."""

    def start(self, label: str, total: int, done: int, unit: str = "step") -> None: ...
    def advance(self, step: int, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """Shows nothing."""

    def start(self, label: str, total: int, done: int, unit: str = "step") -> None:
        pass

    def advance(self, step: int, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def stop(self) -> None:
        pass


class Lines:
    """A line every few seconds, for logs."""

    def __init__(self, every: float = 5.0) -> None:
        self.every = every
        self.label, self.unit, self.total, self.begun, self.first, self.told = "", "", 1, 0.0, 0, 0.0

    def start(self, label: str, total: int, done: int, unit: str = "step") -> None:
        self.label, self.unit, self.total, self.first = label, unit, total, done
        self.begun = self.told = time.monotonic()

    def advance(self, step: int, text: str) -> None:
        now = time.monotonic()
        if now - self.told >= self.every or step == self.total:
            self.told = now
            left = (now - self.begun) / max(step - self.first, 1) * (self.total - step)
            parts = (f"{self.unit} {step}/{self.total}".strip(), text, f"{left:.0f} s left")
            print(f"{self.label}: {'  '.join(filter(None, parts))}", flush=True)

    def note(self, text: str) -> None:
        print(text, flush=True)

    def stop(self) -> None:
        pass


class Bar:
    """A live bar in a terminal."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.task, self.begun = None, 0.0

    def start(self, label: str, total: int, done: int, unit: str = "step") -> None:
        self.progress.start()
        self.begun = self.progress.get_time()
        self.task = self.progress.add_task(label, total=total, completed=done, text="")

    def advance(self, step: int, text: str) -> None:
        if self.task is not None:
            elapsed = self.progress.get_time() - self.begun
            self.progress.speed_estimate_period = max(30.0, elapsed / 2)  # half a minute sees too little of slow work
            self.progress.update(self.task, completed=step, text=text)

    def note(self, text: str) -> None:
        self.progress.console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        self.progress.stop()


def choose_show(progress: bool) -> Show:
    """The bar in a terminal, lines elsewhere, nothing if not wanted."""
    if not progress:
        return Silent()
    return Bar() if sys.stderr.isatty() and sys.stdout.isatty() else Lines()


def progress_on(show: Show) -> Callable[[str, int, int], None]:
    """Progress of data generation, told on the bar or the lines that training uses, stage after stage.

    What the first call of a stage tells was there before: the time left is that of the rest, at the pace from then on.
    """
    begun: list[str] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in begun:
            begun.append(stage)
            show.start(stage, total, done, "")
        show.advance(done, "")
        if done >= total:
            show.stop()
            begun.clear()

    return progress


@contextmanager
def telling(progress: bool | Callable[[str, int, int], None]) -> Iterator[Callable[[str, int, int], None]]:
    """Whom to tell how far data are made: a bar if that is asked for, the caller's function, or no one."""
    show = choose_show(progress is True)
    with showing(show):
        yield progress if callable(progress) else progress_on(show)


class showing:  # noqa: N801
    """Context that stops a `Show` whatever happens."""

    def __init__(self, show: Show) -> None:
        self.show = show

    def __enter__(self) -> Show:
        return self.show

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.show.stop()
