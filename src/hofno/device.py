"""The device that work runs on, by name."""

from __future__ import annotations

import os

import torch

from hofno.errors import SpecError


def find_device(name: str | torch.device = "auto") -> torch.device:
    """The device called `name`; "auto" is CUDA where there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise SpecError(f"unknown device {name!r}; use auto, cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise SpecError(f"hofno runs on a CPU or a CUDA GPU; got device {str(name)!r}; use auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SpecError("device 'cuda' was asked for and no CUDA GPU is usable here; use device='cpu'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SpecError(f"there are {torch.cuda.device_count()} CUDA GPUs here; got device {str(name)!r}; use 'cuda:0'")
    return device


def gpus_to_share(name: str = "auto") -> list[str]:
    """The GPUs that processes may be spread over, as CUDA_VISIBLE_DEVICES names them; none if `name` is one device."""
    device = find_device(name)
    if device.type != "cuda" or device.index is not None:
        return []
    count = torch.cuda.device_count()
    visible = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    return (visible or [str(index) for index in range(count)])[:count] if count > 1 else []
