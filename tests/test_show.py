"""What the person watching sees."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hofno import generate
from hofno.show import Bar, Lines, Silent, choose_show, progress_on


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show = Lines(every=0.0)
    show.start("label", 4, 2)
    show.advance(3, "loss 1")
    show.note("a note")
    show.stop()
    assert capsys.readouterr().out.splitlines()[0].startswith("label: step 3/4  loss 1")


def test_lines_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    show = Lines(every=60.0)
    show.start("label", 100, 0)
    for step in range(1, 101):
        show.advance(step, "")
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_bar(capsys: pytest.CaptureFixture[str]) -> None:
    show = Bar()
    show.start("label", 4, 0)
    show.advance(4, "loss 1")
    show.note("[a] note")
    show.stop()
    out = capsys.readouterr().out
    assert "label" in out
    assert "[a] note" in out


def test_what_is_chosen() -> None:
    assert isinstance(choose_show(False), Silent)
    assert isinstance(choose_show(True), Lines)


def test_each_stage_has_a_bar_of_its_own() -> None:
    told: list[tuple[Any, ...]] = []

    class Recorded(Silent):
        def start(self, label: str, total: int, done: int, unit: str = "step") -> None:
            told.append(("start", label, total))

        def stop(self) -> None:
            told.append(("stop",))

    progress = progress_on(Recorded())
    for _ in range(2):
        for done in (1, 2):
            progress("solve", done, 2)
    assert told == [("start", "solve", 2), ("stop",)] * 2


def test_a_bar_ends_with_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = Bar()
    monkeypatch.setattr("hofno.show.choose_show", lambda _: bar)
    monkeypatch.setattr(bar, "advance", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        generate("poisson", progress=True, train=2, valid=1, test=1, resolution=40)
    assert not bar.progress.live.is_started


def test_the_time_left_is_that_of_what_was_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """90 of 100 were kept; each of the others takes 60 s."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = progress_on(Lines())
    for done in range(90, 94):
        progress("generate", done, 100)
        now[0] += 60
    told = [line.split("  ")[1:] for line in capsys.readouterr().out.splitlines()]
    assert told == [["540 s left"], ["480 s left"], ["420 s left"]]


def test_a_bar_tells_the_time_left_of_slow_work() -> None:
    """A step in 20 minutes: no half minute sees two of them."""
    bar, now = Bar(), [1000.0]
    bar.progress.get_time = lambda: now[0]
    bar.start("generate", 100, 90)
    for done in (91, 92, 93, 94, 95):
        now[0] += 1200
        bar.advance(done, "")
    assert bar.progress.tasks[0].time_remaining == 5 * 1200
    bar.stop()


def test_stages_follow_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    progress = progress_on(Lines(every=0.0))
    for stage in ("solve", "store"):
        for done in (1, 2):
            progress(stage, done, 2)
    told = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert told == ["solve: 1/2", "solve: 2/2", "store: 1/2", "store: 2/2"]


def test_generating_shows_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    few, told = {"train": 2, "valid": 1, "test": 1, "resolution": 40}, list[tuple[str, int, int]]()
    generate("poisson", **few)
    generate("poisson", progress=False, **few)
    generate("poisson", progress=lambda *what: told.append(what), **few)
    assert not capsys.readouterr().out
    assert told[-1][1:] == (4, 4)
    generate("poisson", progress=True, **few)
    assert "4/4" in capsys.readouterr().out
