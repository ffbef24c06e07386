"""The device that work runs on, by name."""

from __future__ import annotations

import torch

from hofno.errors import SpecError


def find_device(name: str = "auto") -> torch.device:
    """The device called `name`; "auto" is CUDA where there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SpecError(f"unknown device {name!r}; use auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SpecError("device 'cuda' was asked for and no CUDA GPU is usable here; use device='cpu'")
    return device
