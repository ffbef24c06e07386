"""A tiny Poisson problem and a tiny model, and a training run of them in a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from hofno import HOFNO, Dataset, Run, fit, generate
from hofno.train import precision


@pytest.fixture(autouse=True)
def policies_hold_on_a_cpu() -> Iterator[None]:
    """Tests of reduced precision run where there is no GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "REDUCED_ON", ("cpu", "cuda"))
        yield


@pytest.fixture(scope="session")
def data() -> Dataset:
    return generate("poisson", degree=2, resolution=16, k_min=2, k_max=4, waves=8, train=20, valid=4, test=6)


def make_model(seed: int = 0, **arguments: Any) -> HOFNO:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return HOFNO(2, 1, (4, 4), **{"width": 8, "depth": 1, "order": 2, **arguments})


@pytest.fixture
def model() -> HOFNO:
    return make_model()


@pytest.fixture
def trained(data: Dataset) -> Callable[..., Run]:
    """`trained(lr=..., ...)`: a run of two epochs on the CPU without output, from the same weights each time."""

    def run(**settings: Any) -> Run:
        arguments = settings.pop("model", {})
        chosen = {"epochs": 2, "batch_size": 8, "device": "cpu", "progress": False, **settings}
        return fit(make_model(**arguments), data, **chosen)

    return run


def weights(run: Run) -> Tensor:
    """All weights of a trained model in one vector."""
    return torch.cat([p.detach().flatten() for p in run.surrogate.model.parameters()])


@pytest.fixture
def weights_of() -> Callable[[Run], Tensor]:
    return weights
