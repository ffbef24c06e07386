"""A training step of any model can be captured in a CUDA graph: it copies no numbers from Python and waits for nothing.

Seen on the CPU by the operations that would do so on a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hofno.models import build
from hofno.models.registry import GEOMETRIES, MODELS, arguments_of

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
    (name, backbone, ragged, decoder)
    for name in sorted(MODELS)
    for backbone in (("modern", "classic") if "backbone" in arguments_of(name) else (None,))
    for ragged in ((False, True) if "points" in GEOMETRIES[name] else (False,))
    for decoder in (("correct", "original") if name == "geofno" else (None,))
]


@pytest.mark.parametrize(("name", "backbone", "ragged", "decoder"), CASES)
def test_a_warm_step_could_be_captured(name: str, backbone: str | None, ragged: bool, decoder: str | None) -> None:
    arguments = {"in_channels": 2, "out_channels": 1, "modes": (3, 3), "width": 8, "depth": 2, "backbone": backbone}
    arguments |= {} if decoder is None else {"decoder": decoder}
    model = build(name, {key: value for key, value in arguments.items() if key in arguments_of(name)})
    x: tuple[torch.Tensor, ...] = (torch.randn(2, 2, 9, 10),)
    if "points" in GEOMETRIES[name]:
        x = torch.randn(2, 2, 30), torch.rand(2, 2, 30)
        x = (*x, torch.rand(2, 30) < 0.8) if ragged else x
    model(*x).square().mean().backward()  # what is made once is made here
    with Watch() as watch:
        model(*x).square().mean().backward()
    assert watch.found == []


@pytest.mark.parametrize("make", [lambda: torch.tensor([1.0, 2.0]), lambda: bool(torch.ones(3).any())])
def test_the_watch_sees(make: Any) -> None:
    with Watch() as watch:
        make()
    assert watch.found
