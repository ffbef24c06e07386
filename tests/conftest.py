"""What every test shares: one thread, one seed, and reproducible examples from hypothesis."""

from __future__ import annotations

import os

# some processors announce newer matrix instructions than they can run
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("hofno", deadline=None, derandomize=True, database=None)
settings.load_profile("hofno")


@pytest.fixture(autouse=True)
def seed() -> int:
    """Every test starts from the same random state."""
    torch.manual_seed(0)
    return 0
