"""A training step of any model can be captured in a CUDA graph: it copies no numbers from Python and waits for nothing.

Seen on the CPU by the operations that would do so on a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import FORMS, Case
from torch.utils._python_dispatch import TorchDispatchMode

# lift_fresh: a tensor from a Python list or number; the others need their values before the next operation can start
FORBIDDEN = ("lift_fresh", "_local_scalar_dense", "nonzero", "masked_select", "equal", "unique")


class Watch(TorchDispatchMode):
    """Notes forbidden operations."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if any(name.startswith(other) for other in FORBIDDEN):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


CASES = [
    (case, ragged, decoder)
    for case in FORMS
    for ragged in ((False, True) if case.kind == "points" else (False,))
    for decoder in (("correct", "original") if case.name == "geofno" else (None,))
]


@pytest.mark.parametrize(("case", "ragged", "decoder"), CASES, ids=str)
def test_a_warm_step_could_be_captured(case: Case, ragged: bool, decoder: str | None) -> None:
    changed = {"domain_padding": 0.0} if "domain_padding" in case.arguments else {}
    model = case.make(**changed, **({} if decoder is None else {"decoder": decoder}))
    x = case.batch()
    x = (*x, torch.rand(2, x[0].shape[2]) < 0.8) if ragged else x
    model(*x).square().mean().backward()  # what is made once is made here
    with Watch() as watch:
        model(*x).square().mean().backward()
    assert watch.found == []


@pytest.mark.parametrize("make", [lambda: torch.tensor([1.0, 2.0]), lambda: bool(torch.ones(3).any())])
def test_the_watch_sees(make: Any) -> None:
    with Watch() as watch:
        make()
    assert watch.found
