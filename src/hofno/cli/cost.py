r"""What a run costs, as far as it can be said without running it.

steps        epochs x batches
arithmetic   2 for each multiply-add of the model's matrix products, forward and backward, over a full batch;
             5/2 N log2 N for a real FFT of N points. Counted on tensors that have a shape and no numbers. What is
             done number by number, the loss and the optimiser are left out, and a fused kernel may do some again
memory       see `hofno.train.activations`
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from hofno.bench.rehearse import epoch_of
from hofno.fits import sample_shapes
from hofno.models.registry import build, check_arguments, place
from hofno.problems.base import Problem
from hofno.problems.registry import problem
from hofno.spec import Spec
from hofno.storage import fingerprint
from hofno.train.grids import Stride, every
from hofno.train.phases import phase_of

REAL_FFT, COMPLEX_FFT = 2.5, 5.0  # operations for each point and each doubling of their number
FFTS = {"aten::_fft_r2c": REAL_FFT, "aten::_fft_c2r": REAL_FFT, "aten::_fft_c2c": COMPLEX_FFT}


@dataclass(frozen=True)
class Cost:
    """Of one run: batches of an epoch, steps in all, passes of a full step, operations of the last step and of all."""

    batches: int
    steps: int
    passes: int
    step_flops: float
    flops: float


def cost_of(spec: Spec, known: dict[str, tuple[float, float]]) -> Cost:
    """The cost of a spec's own run; `known` keeps what was counted for runs that differ in depth or length alone."""
    made, train = problem(spec.data.problem, spec.data.parameters), spec.train
    epoch = epoch_of(made, train)
    epochs = Counter(phase_of(train, number, torch.device("cpu")).strides for number in range(train.epochs))
    flops = {
        strides: step_flops(spec.model.name, spec.model.arguments, made, epoch.passes, known, strides)
        for strides in epochs
    }
    batches = epoch.items / min(train.batch_size, epoch.items)  # as many full ones
    total = batches * sum(count * flops[strides] for strides, count in epochs.items())
    return Cost(epoch.batches, train.epochs * epoch.batches, epoch.passes, flops[next(reversed(epochs))], total)


def step_flops(
    name: str,
    arguments: dict[str, Any],
    made: Problem,
    passes: int,
    known: dict[str, tuple[float, float]],
    strides: tuple[Stride, ...] = (1,),
) -> float:
    """Operations of a training step over so many forward passes, each on every n-th point for n in `strides`.

    Those of a stack of blocks follow from those of one and of two.
    """
    channels = dict(zip(("in_channels", "out_channels"), made.channels, strict=True))
    arguments = check_arguments(name, {**channels, **arguments})
    depth = arguments.pop("depth", None)
    given = [torch.zeros(passes, *shape, device="meta") for shape in sample_shapes(made)]

    def count(**blocks: int) -> float:
        with torch.device("meta"):
            model = build(name, {**arguments, **blocks})
        place(model, made.grid_geometry, filled=False)
        with _Counting() as counting:
            for stride in strides:
                model(*(every(part, stride) for part in given)).sum().backward()
        return counting.flops

    key = fingerprint([name, arguments, [part.shape for part in given], strides])
    if key not in known:
        known[key] = (count(), 0.0) if depth is None else (count(depth=1), count(depth=2))
    one, two = known[key]
    return one if depth is None else one + (depth - 1) * (two - one)


class _Counting(TorchDispatchMode):
    """Adds up the operations of what runs inside, forward and backward, on tensors without numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        first = next((part for part in out if part is not None), None) if isinstance(out, tuple) else out
        if isinstance(first, Tensor) and first.is_meta:  # matrices of transforms are made with numbers, once
            formula = flop_registry.get(func.overloadpacket)
            if formula is not None:
                self.flops += formula(*args, **kwargs, out_val=out)
            elif isinstance(out, Tensor) and (weight := FFTS.get(func.name().partition(".")[0])) is not None:
                wide = max(args[0], out, key=lambda part: part.numel())  # not the half of a spectrum
                self.flops += weight * wide.numel() * math.log2(max(2, math.prod(wide.shape[d] for d in args[1])))
        return out
