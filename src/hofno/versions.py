"""Versions of what makes numbers, for the stamps of data, models and results."""

from __future__ import annotations

import platform

import numpy as np
import torch


def versions() -> dict[str, str]:
    """hofno, torch, numpy and Python."""
    from hofno import __version__

    return {
        "hofno": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
