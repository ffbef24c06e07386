"""A run without its data: training steps and predictions on random numbers, as the run itself takes them.

The work of a step does not depend on the numbers in it, so no data are made. Rates are zero, and the first step of each
phase, in which matrices and kernels are made, is not timed. Making data, validation and checkpoints are left out.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import torch
from torch import Tensor

from hofno import stages
from hofno.bench.measure import timed
from hofno.data.dataset import Dataset, Split
from hofno.device import find_device
from hofno.geometry import Points
from hofno.models.registry import place
from hofno.problems.base import Problem
from hofno.problems.registry import problem
from hofno.spec import Spec, TrainSpec
from hofno.surrogate import Surrogate
from hofno.train.optim import Optimisers
from hofno.train.phases import Phase, phase_of, phases_of
from hofno.train.precision import precision
from hofno.train.ranks import Share
from hofno.train.step import Step
from hofno.train.tasks import make_task, normalisers

TIMED_ROUNDS, TIMED_SECONDS = 2, 0.1  # of a step, and of each round at least


@dataclass(frozen=True)
class Epoch:
    """Of one run: what its batches are made of, batches, and forward passes of a full one."""

    items: int
    batches: int
    passes: int


def epoch_of(made: Problem, train: TrainSpec) -> Epoch:
    single = train.batch_of == "windows"
    items = made.train * made.together * (made.windows if single else 1)
    passes = min(train.batch_size, items) * (1 if single else made.windows)
    return Epoch(items, math.ceil(items / train.batch_size), passes)


@dataclass(frozen=True)
class Rehearsal:
    """A run that is ready for its steps: the step, a full batch, and the operator that is trained."""

    step: Step
    batch: Tensor
    surrogate: Surrogate

    def step_rounds(self, phase: Phase, rounds: int, seconds: float) -> list[float]:
        """Seconds of a training step of a phase, round by round."""
        share = Share.whole(self.batch)
        with precision(phase.policy, self.step.model):
            self.step.use(phase)
            return timed(lambda: self.step(share), self.step.device, rounds, seconds)


def rehearsal(spec: Spec) -> Rehearsal:
    """The own run of a spec, on its device."""
    made, train, device = problem(spec.data.problem, spec.data.parameters), spec.train, find_device(spec.device)
    data = random_data(made, spec)
    model = stages.make_model(spec, *made.channels).to(device).train()
    place(model, made.grid_geometry)
    inputs, targets = (one.to(device) for one in normalisers(data, train))
    task = make_task(data, train, inputs, targets, device)
    average = {k: v.detach().clone() for k, v in model.state_dict().items()} if train.ema > 0 else None
    scale = targets.shaped(len(made.grid_geometry.shape))
    step = Step(model, Optimisers(model, train, device), average, task, scale, train)
    step.optimisers.set_rate(0.0)
    batch = torch.arange(min(train.batch_size, task.items), device=device)
    symmetry = made.symmetry if train.symmetric else None
    return Rehearsal(step, batch, Surrogate(model, inputs, targets, data.grid, rollout=made.rollout, symmetry=symmetry))


def step_seconds(spec: Spec) -> dict[Phase, float]:
    """Seconds of a training step of a spec's own run in each of its phases, in the order they come."""
    ready = rehearsal(spec)
    return {
        phase: statistics.median(ready.step_rounds(phase, TIMED_ROUNDS, TIMED_SECONDS))
        for phase in phases_of(spec.train, ready.step.device)
    }


def projected(spec: Spec, seconds: dict[Phase, float]) -> float:
    """Seconds of all training steps."""
    device = find_device(spec.device)
    batches = epoch_of(problem(spec.data.problem, spec.data.parameters), spec.train).batches
    return sum(batches * seconds[phase_of(spec.train, epoch, device)] for epoch in range(spec.train.epochs))


def same_steps(spec: Spec) -> str:
    """A text that is the same for runs that differ in their seed or length alone, and so take the same steps."""
    alike = spec.model_copy(update={"seed": 0, "train": spec.train.model_copy(update={"epochs": 1})})
    return f"{alike.run_hash} {phases_of(spec.train, find_device(spec.device))}"


def random_data(made: Problem, spec: Spec) -> Dataset:
    """Enough samples for a batch, with the shapes of the problem."""
    each = made.windows if spec.train.batch_of == "windows" else 1  # of what a batch is made, in a sample
    samples = max(2, min(made.train * made.together, math.ceil(spec.train.batch_size / each)))
    split = random_split(made, samples)
    return Dataset(split, split, split, made.grid_geometry, "generated", rollout=made.rollout, symmetry=made.symmetry)


def random_split(made: Problem, samples: int) -> Split:
    """So many samples with the shapes of the problem."""
    geometry, (given, wanted) = made.grid_geometry, made.channels
    wanted = wanted if made.rollout is None else wanted * made.windows
    x, y = (torch.randn(samples, channels, *geometry.shape) for channels in (given, wanted))
    at_points = isinstance(geometry, Points)
    return Split(x, y, geometry.from_unit(torch.rand(samples, geometry.dim, *geometry.shape)) if at_points else None)
