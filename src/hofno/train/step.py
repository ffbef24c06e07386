"""One training step, eager or captured in CUDA graphs. Both run the same kernels on the same numbers.

A step learns, which is forward, loss and backward, and takes what was learnt, which is clipping, optimiser and average.
Between the two, processes that train together add up their gradients (`hofno.train.ranks`): alone, all of it is one
graph, and with others two.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hofno.spec import TrainSpec
from hofno.train.grids import every, on_every
from hofno.train.losses import in_own_units, loss_of
from hofno.train.optim import Optimisers
from hofno.train.phases import Phase
from hofno.train.precision import autocast
from hofno.train.ranks import Ranks, Share, reals
from hofno.train.tasks import Task

WARMUP_STEPS = 3


def noisy(model: Callable[..., Tensor], noise: float, fixed: Tensor | None) -> Callable[..., Tensor]:
    """The model for inputs with Gaussian noise of this deviation, drawn anew in each call.

    Fixed fields have none: predictions take the place of frames, and these are as they are in every step.
    """
    first = 0 if fixed is None else fixed.shape[1]

    def forward(x: Tensor, *places: Tensor) -> Tensor:
        frames = x[:, first:]
        frames = frames + noise * torch.randn_like(frames)
        return model(torch.cat((x[:, :first], frames), 1) if first else frames, *places)

    return forward


class Step:
    """Forward, loss, backward, clipping, optimiser, weight average, for a batch of a task's indices."""

    def __init__(
        self,
        model: nn.Module,
        optimisers: Optimisers,
        average: dict[str, Tensor] | None,
        task: Task,
        target_scale: tuple[Tensor, Tensor],
        spec: TrainSpec,
        ranks: Ranks | None = None,
    ) -> None:
        self.model, self.optimisers, self.average = model, optimisers, average
        self.task, self.ranks = task, ranks or Ranks()
        self.scale = in_own_units(*target_scale)
        self.spec = spec
        self.device = task.device
        forward = torch.compile(model, dynamic=False) if spec.compile else model
        self.forward = noisy(forward, spec.noise, task.fixed) if spec.noise > 0.0 else forward
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        self.indices = torch.zeros(self.ranks.size(spec.batch_size), dtype=torch.long, device=self.device)
        self.full = Share(self.indices, len(self.indices), spec.batch_size)
        self.phase = Phase("")
        self.scales = [self.scale]
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.gradients: Tensor | None = None  # all of them, flat, where there are other processes

    def use(self, phase: Phase) -> None:
        """Take the next steps as in this phase, the `precision` of whose policy the caller has set."""
        if phase != self.phase:
            self.phase, self.graphs = phase, []
            mean, std = (part[None] for part in self.scale)
            self.scales = [(every(mean, stride)[0], every(std, stride)[0]) for stride in phase.strides]
            if self.spec.cuda_graph and self.device.type == "cuda":
                self._capture()

    def __call__(self, share: Share) -> None:
        """Train on a batch, of which this is the share of this process; add its summed loss to `loss_sum`."""
        if self.graphs and (share.counted, share.batch) == self.full[1:]:
            self.indices.copy_(share.indices)
            for turn, graph in enumerate(self.graphs):
                if turn == 1:
                    self._add_up()
                graph.replay()
        else:
            self._run(share)

    def weights_are_finite(self) -> bool:
        return bool(torch.stack([p.isfinite().all() for p in self.parameters]).all())

    def _run(self, share: Share) -> None:
        self._learn(share)
        self._add_up()
        self._take()

    def _learn(self, share: Share) -> None:
        for p in self.parameters:
            p.grad = None
        policy, strides = self.phase
        part = share.counted / share.batch / len(strides)
        for stride, scale in zip(strides, self.scales, strict=True):
            with autocast(policy, self.device):
                prediction, target, there = self.task.predict(on_every(self.forward, stride), share.indices)
            loss = loss_of(self.spec.loss, prediction.float(), every(target, stride), *scale, there)
            (loss if part == 1.0 else loss * part).backward()
            self.loss_sum += loss.detach().double() * (share.counted / len(strides))
        if self.ranks.count > 1:  # all of them, since processes may leave out different ones
            found = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
            self.gradients = torch.cat([reals(grad).flatten().float() for grad in found], out=self.gradients)

    def _add_up(self) -> None:
        if self.gradients is not None:
            self.ranks.add(self.gradients)

    def _take(self) -> None:
        if self.gradients is not None:
            parts = self.gradients.split([reals(p).numel() for p in self.parameters])
            for p, part in zip(self.parameters, parts, strict=True):
                whole = part.view_as(reals(p))
                p.grad = (torch.view_as_complex(whole) if p.is_complex() else whole).to(p.dtype)
        if self.spec.clip > 0.0:
            nn.utils.clip_grad_norm_(self.parameters, self.spec.clip, foreach=True)
        self.optimisers.step()
        if self.average is not None:
            with torch.no_grad():
                live = self.model.state_dict()
                means = {k: v for k, v in self.average.items() if v.is_floating_point() or v.is_complex()}
                for key in self.average.keys() - means.keys():  # counts and switches
                    self.average[key].copy_(live[key])
                averages, weights = list(means.values()), [live[k] for k in means]
                torch._foreach_lerp_(averages, weights, 1.0 - self.spec.ema)  # pyright: ignore[reportPrivateImportUsage]

    def _capture(self) -> None:
        """Record `_run` once on a side stream, leaving weights, optimiser, averages and random numbers as they were."""
        kept = {k: v.clone() for k, v in self._live().items()}
        existed = set(self.optimisers.tensors())
        random = torch.cuda.get_rng_state(self.device)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARMUP_STEPS):
                self._run(self.full)
        torch.cuda.current_stream().wait_stream(stream)
        parts = [lambda: self._run(self.full)]
        if self.ranks.count > 1:
            parts = [lambda: self._learn(self.full), self._take]
        for part in parts:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=torch.cuda.Stream(priority=-1)):  # before what is done aside
                part()
            self.graphs.append(graph)
        torch.cuda.set_rng_state(random, self.device)
        with torch.no_grad():
            for key, value in self._live().items():
                if key in kept:
                    value.copy_(kept[key])
            for key, value in self.optimisers.tensors().items():
                if key not in existed:
                    value.zero_()

    def _live(self) -> dict[str, Tensor]:
        """Every tensor a step changes."""
        live = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        live |= {f"optimiser.{k}": v for k, v in self.optimisers.tensors().items()}
        live |= {f"average.{k}": v for k, v in (self.average or {}).items()}
        return live | {"loss_sum": self.loss_sum}
