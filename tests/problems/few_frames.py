"""Plasticity with fewer frames than 20, so that a block takes no time."""

import pytest

from hofno.problems import plasticity, press


def few_frames(patch: pytest.MonkeyPatch, count: int) -> None:
    for part in (plasticity, press):
        patch.setattr(part, "FRAMES", count)
