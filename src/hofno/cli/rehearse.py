"""How long training would take here: a few steps of it, timed on random numbers in place of the data.

The work of a step does not depend on the numbers in it, so no data are made. Rates are zero, and the first step of each
precision, in which matrices and kernels are made, is not timed. Making data, validation and checkpoints are left out.
"""

from __future__ import annotations

import math
import time

import torch

from hofno import stages
from hofno.cli.cost import Cost
from hofno.data.dataset import Dataset, Split
from hofno.geometry import Points
from hofno.problems.base import Problem
from hofno.problems.registry import problem
from hofno.spec import Spec
from hofno.surrogate import find_device
from hofno.train.optim import Optimisers
from hofno.train.precision import policies_of, policy_of, precision
from hofno.train.step import Step
from hofno.train.tasks import make_task, normalisers

TIMED_STEPS, TIMED_SECONDS = 2, 0.2  # at least


def step_seconds(spec: Spec) -> dict[str, float]:
    """Seconds of a training step of a spec's own run in each of its precisions, in the order they come."""
    made, train, device = problem(spec.data.problem, spec.data.parameters), spec.train, find_device(spec.device)
    data = random_data(made, spec)
    model = stages.make_model(spec, *made.channels).to(device).train()
    inputs, targets = normalisers(data, train)
    task = make_task(data, train, inputs, targets, device)
    average = {k: v.detach().clone() for k, v in model.state_dict().items()} if train.ema > 0 else None
    scale = targets.to(device).shaped(len(made.grid_geometry.shape))
    step = Step(model, Optimisers(model, train, device), average, task, scale, train)
    step.optimisers.set_rate(0.0)
    batch = torch.arange(min(train.batch_size, task.items), device=device)
    found: dict[str, float] = {}
    for policy in policies_of(train, device):
        with precision(policy, model):
            step.use(policy)
            step(batch)
            begun, steps, passed = _clock(device), 0, 0.0
            while steps < TIMED_STEPS or passed < TIMED_SECONDS:
                step(batch)
                steps, passed = steps + 1, _clock(device) - begun
            found[policy] = passed / steps
    return found


def projected(spec: Spec, cost: Cost, seconds: dict[str, float]) -> float:
    """Seconds of all training steps."""
    device = find_device(spec.device)
    return sum(cost.batches * seconds[policy_of(spec.train, epoch, device)] for epoch in range(spec.train.epochs))


def random_data(made: Problem, spec: Spec) -> Dataset:
    """Enough samples for a batch, with the shapes of the problem."""
    geometry, rollout = made.grid_geometry, made.rollout
    each = made.windows if spec.train.batch_of == "windows" else 1  # of what a batch is made, in a sample
    samples = max(2, min(made.train * made.together, math.ceil(spec.train.batch_size / each)))
    given, wanted = made.channels
    wanted = wanted if rollout is None else wanted * made.windows
    x, y = (torch.randn(samples, channels, *geometry.shape) for channels in (given, wanted))
    coords = None
    if isinstance(geometry, Points):
        low, high = (torch.tensor(ends)[:, None] for ends in (geometry.low, geometry.high))
        coords = low + (high - low) * torch.rand(samples, geometry.dim, *geometry.shape)
    split = Split(x, y, coords)
    return Dataset(split, split, split, geometry, "generated", rollout=rollout, symmetry=made.symmetry)


def _clock(device: torch.device) -> float:
    """Seconds, when all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
