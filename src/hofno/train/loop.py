"""The one training loop.

    for each epoch: a permutation of the training set made from (seed, epoch); a step for each batch; validation;
    a checkpoint

It can be stopped at any moment. Ctrl-C and SIGTERM finish the step, save, and leave; after a kill the newest checkpoint
serves. Either way `resume` goes on to the same bits on the same machine. Several processes may train one network
together (`hofno.train.ranks`); then this runs in each of them.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hofno.data.dataset import Dataset, Split, refuse_not_finite
from hofno.errors import DivergedError
from hofno.evaluation.metrics import UNBOUNDED
from hofno.evaluation.score import measure
from hofno.models.registry import place
from hofno.show import Show, Silent, showing
from hofno.spec import TrainSpec
from hofno.surrogate import Surrogate
from hofno.train import state as checkpoint
from hofno.train.experience import gain_experience
from hofno.train.feed import Feed, make_feed
from hofno.train.grids import coarse_grids
from hofno.train.optim import Optimisers
from hofno.train.phases import phase_of
from hofno.train.precision import policy_of, precision
from hofno.train.ranks import Ranks, join
from hofno.train.same_data import describe_data, stamp_of_data
from hofno.train.schedule import rate
from hofno.train.start import (
    check_start,
    digest_of_statistics,
    placed,
    stamp_of_start,
    statistics_of,
    unlike_training,
)
from hofno.train.state import Position, TrainState
from hofno.train.step import Step
from hofno.train.targets import about_offset, check_targets
from hofno.train.tasks import check_fit, check_task, inputs_all_alike, normalisers
from hofno.train.track import JsonLines, Tracker


@dataclass(repr=False)
class Run:
    """A trained operator with the story of its training."""

    surrogate: Surrogate
    history: list[dict[str, Any]]
    seconds: float

    def __repr__(self) -> str:
        epochs = self.history[-1]["epoch"] if self.history else 0
        return f"Run({self.surrogate!r}, {epochs} epochs in {self.seconds:.1f} s)"

    def predict(
        self,
        x: Any,
        coords: Any = None,
        *,
        mask: Any = None,
        fixed: Any = None,
        batch_size: int = 32,
        steps: int | None = None,
    ) -> Any:
        """Predict from raw inputs, see `Surrogate.predict`."""
        return self.surrogate.predict(x, coords, mask=mask, fixed=fixed, batch_size=batch_size, steps=steps)

    def error_bound(
        self,
        coverage: float = 0.9,
        x: Any = None,
        coords: Any = None,
        *,
        mask: Any = None,
        fixed: Any = None,
        batch_size: int = 32,
    ) -> Any:
        """A relative L2 error that predictions exceed with probability 1 - coverage, see `Surrogate.error_bound`."""
        return self.surrogate.error_bound(coverage, x, coords, mask=mask, fixed=fixed, batch_size=batch_size)

    def spread(
        self,
        x: Any,
        coords: Any = None,
        *,
        mask: Any = None,
        fixed: Any = None,
        batch_size: int = 32,
        steps: int | None = None,
    ) -> Any:
        """How far predictions lie apart whose mean is given, see `Surrogate.spread`."""
        return self.surrogate.spread(x, coords, mask=mask, fixed=fixed, batch_size=batch_size, steps=steps)

    def strangeness(self, x: Any, coords: Any = None, *, mask: Any = None, fixed: Any = None) -> Any:
        """How unlike the inputs of training each input is, see `Surrogate.strangeness`."""
        return self.surrogate.strangeness(x, coords, mask=mask, fixed=fixed)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Save the trained operator as a folder, see `Surrogate.save` and `hofno.load`."""
        return self.surrogate.save(path, overwrite=overwrite)


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop and has saved where it stands; `except Exception` lets it pass, as it does Ctrl-C."""

    finish: Callable[[], Run] | None = None

    @cached_property
    def run(self) -> Run | None:
        """What was trained so far, as if that were all; its errors are measured when it is asked for. None: nothing.

        It shares its weights with the model that was trained.
        """
        return None if self.finish is None else self.finish()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process is told of it alone: what was trained stays where it is."""
        return type(self), self.args


@dataclass
class Folder:
    """Where a run keeps its checkpoints and rows; `resume` goes on from what is there, `again` says how to do it."""

    path: Path
    run_hash: str
    resume: bool
    again: str


def train(
    model: nn.Module,
    data: Dataset,
    spec: TrainSpec,
    *,
    seed: int = 0,
    device: torch.device,
    folder: Folder | None = None,
    show: Show | None = None,
    trackers: list[Tracker] | None = None,
    label: str = "train",
    contents: dict[str, str] | None = None,
    start: Surrogate | None = None,
) -> Run:
    """Train `model` in place and return it with its normalisers and history.

    `contents` is what `describe_data` tells of the data, where it was asked already. With a `start` the model gets the
    weights and statistics of that operator.
    """
    ranks = join(device)
    device = ranks.place(device)
    show = show if show is not None and ranks.first else Silent()
    for name, split in (("train", data.train), ("valid", data.valid)):
        for key, part in zip(("x", "y", "coords"), split.parts[:3], strict=True):
            if part is not None:
                refuse_not_finite(part, f"{name}.{key}")
    check_task(data, spec)
    about_targets = check_targets(data, spec)
    if start is not None:
        check_start(start, spec, model, (data.in_channels, data.out_channels), data.grid, data.rollout)
        data = placed(data, start)
    model.to(device).train()
    inputs, targets = normalisers(data, spec) if start is None else statistics_of(start)
    symmetry = data.symmetry if spec.symmetric else None
    normalised = (inputs.to(device), targets.to(device))
    contents = describe_data(data) if contents is None and ranks.count > 1 else contents
    stamp = stamp_of_data(data, contents) | stamp_of_start(start)
    surrogate = Surrogate(model, *normalised, data.grid, stamp, data.rollout, symmetry)
    with _random(ranks.seed(seed), device), _requests_to_stop() as stop, showing(show):
        place(model, data.grid)
        if start is not None:
            model.load_state_dict(start.model.state_dict())
        if ranks.count > 1:
            told = f"{seed} {spec!r} {contents} {digest_of_statistics(start)} {_described(model)}"
            ranks.check_alike("data, settings or models", told)
            ranks.same_weights(model)
        check_fit(model, data, device, coarse_grids(spec))
        optimisers = Optimisers(model, spec, device)
        average = {k: v.detach().clone() for k, v in model.state_dict().items()} if spec.ema > 0 else None
        state = TrainState(model, optimisers, Position(), average)
        if folder is not None and folder.resume:
            where = folder.path / "checkpoints"
            found = checkpoint.restore(state, where, folder.run_hash, device, show.note, ranks)
            show.note(f"resuming from {found.name}" if found else "no checkpoint yet: starting from the beginning")
        rows: list[Tracker] = list(trackers or [])
        if folder is not None and ranks.first:
            rows.append(JsonLines(folder.path / "metrics.jsonl", state.position.history))
        feed = make_feed(data, spec, inputs, targets, device)
        if ranks.count > 1:
            ranks.check_alike("checkpoints", f"{state.position.step}")
            ranks.check_shares(spec.batch_size, feed.items)
            show.note(f"{ranks.count} processes train together, each with {ranks.size(spec.batch_size)} of a batch")
        unlike = None if start is None else unlike_training(start, data)
        for about in (feed.place if feed.streamed else None, about_targets, about_offset(targets), unlike):
            if about is not None:
                show.note(about)
        if start is None and inputs_all_alike(data, spec):
            show.note(
                "the inputs of different samples are nearly the same once standardised by channel; "
                "train.normaliser=pixel shows the network what differs"
            )
        final = policy_of(spec, spec.epochs - 1, device)
        if final != "fp32":
            show.note(f"trained in {final}, used in float32: train.finish=0.1 would end the training in float32 too")
        scale = targets.to(device).shaped(len(data.train.parts.y.shape) - 2)
        step = Step(model, optimisers, state.average, feed.task, scale, spec, ranks)

        def finish() -> Run:
            _use_chosen_weights(state, spec)
            surrogate.experience = gain_experience(surrogate, data, selected=spec.select == "best")
            return Run(surrogate, state.position.history, state.position.seconds)

        try:
            _epochs(state, step, feed, surrogate, data, spec, seed, folder, show, rows, stop, label)
        except Interrupted as stopped:
            stopped.finish = finish
            raise
        finally:
            for tracker in rows:
                tracker.close()
        return finish()


def _epochs(
    state: TrainState,
    step: Step,
    feed: Feed,
    surrogate: Surrogate,
    data: Dataset,
    spec: TrainSpec,
    seed: int,
    folder: Folder | None,
    show: Show,
    rows: list[Tracker],
    stop: threading.Event,
    label: str,
) -> None:
    """Run the epochs that remain."""
    at, device, ranks = state.position, step.device, step.ranks
    items = feed.items
    batches = math.ceil(items / spec.batch_size)
    total = spec.epochs * batches
    show.start(label, total, at.step)
    clock = time.perf_counter()

    def save() -> str:
        nonlocal clock
        at.seconds += time.perf_counter() - clock
        clock = time.perf_counter()
        if folder is None:
            return (
                "nothing is saved: no folder was given; what was trained so far is `run` of this exception, in a "
                "notebook: import sys; run = sys.last_value.run"
            )
        where = checkpoint.save(state, folder.path / "checkpoints", folder.run_hash, device, ranks)
        started = f", by torchrun in {ranks.count} processes as before" if ranks.count > 1 else ""
        return f"continue with: {folder.again}{started}  (saved {where.name})"

    while at.epoch < spec.epochs:
        order, phase = epoch_order(seed, at.epoch, items), phase_of(spec, at.epoch, device)
        policy = phase.policy
        with precision(policy, state.model):
            step.use(phase)
            step.loss_sum.fill_(at.loss_sum if ranks.first else 0.0)
            for index, share in enumerate(ranks.shares(feed, order, spec.batch_size, at.batch), at.batch):
                step.optimisers.set_rate(rate(spec.schedule, at.step, total, spec.warmup, spec.final_lr))
                step(share)
                at.step += 1
                at.batch = index + 1
                stopping = ranks.any(stop.is_set())
                saving = stopping or at.batch == batches
                if device.type == "cpu" or saving:
                    at.loss_sum = ranks.total(float(step.loss_sum))
                    seen = min(at.batch * spec.batch_size, items)
                    if not math.isfinite(at.loss_sum):
                        raise _divergence(f"the loss turned {at.loss_sum}", at.epoch + 1, at.step, folder, spec, policy)
                    if saving and not step.weights_are_finite():
                        raise _divergence("the weights are not finite", at.epoch + 1, at.step, folder, spec, policy)
                    show.advance(at.step, f"epoch {at.epoch + 1}/{spec.epochs}  loss {at.loss_sum / seen:.3e}")
                if stopping:
                    raise Interrupted(f"stopped at step {at.step} of {total}; {save()}")
        row: dict[str, Any] = {"epoch": at.epoch + 1, "step": at.step, "train_loss": at.loss_sum / items}
        at.epoch, at.batch, at.loss_sum = at.epoch + 1, 0, 0.0
        last = at.epoch == spec.epochs
        ranks.same_weights(state.model, buffers_only=True)  # what a network has seen differs; what it learnt does not
        if len(data.valid) > 0 and (last or at.epoch % spec.validate_every == 0):
            row["valid_rel_l2"] = _validate(state, surrogate, data.valid, spec, ranks)
            if data.rollout is None and row["valid_rel_l2"] >= UNBOUNDED:
                raise _divergence("predictions have no bound", at.epoch, at.step, folder, spec, policy)
        row["rate"] = rate(spec.schedule, at.step - 1, total, spec.warmup, spec.final_lr)
        row["seconds"] = round(at.seconds + time.perf_counter() - clock, 3)
        at.history.append(row)
        for tracker in rows:
            tracker.log(row)
        if last or at.epoch % spec.checkpoint_every == 0:
            save()
    at.seconds += time.perf_counter() - clock


def _described(model: nn.Module) -> str:
    """What a model is, but for its weights."""
    shapes = [(name, tuple(part.shape), part.dtype) for name, part in model.state_dict().items()]
    return f"{type(model).__qualname__} {getattr(model, 'config', '')} {shapes}"


def epoch_order(seed: int, epoch: int, items: int) -> Tensor:
    """The order of the training samples (or windows) in one epoch: a function of seed and epoch alone."""
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch, 7])))
    return torch.from_numpy(rng.permutation(items))


def _validate(state: TrainState, surrogate: Surrogate, split: Split, spec: TrainSpec, ranks: Ranks) -> float:
    """Mean rel_l2 on the validation split of the weights that would be saved; remembers the best ones if asked to."""
    with _weights(state.model, state.average):
        value = ranks.of_first(measure(surrogate, split).means()["rel_l2"])
        if spec.select == "best" and (state.position.best is None or value < state.position.best):
            state.position.best = value
            state.best_weights = {k: v.detach().clone() for k, v in state.model.state_dict().items()}
    return value


def _use_chosen_weights(state: TrainState, spec: TrainSpec) -> None:
    """Leave in the model what the run is to be judged by."""
    chosen = state.best_weights if spec.select == "best" else state.average
    if chosen is not None:
        state.model.load_state_dict(chosen)


@contextmanager
def _weights(model: nn.Module, other: dict[str, Tensor] | None) -> Iterator[None]:
    """Run with other weights, then put the live ones back in place."""
    if other is None:
        yield
        return
    live = {k: v.detach().clone() for k, v in model.state_dict().items()}
    model.load_state_dict(other)
    try:
        yield
    finally:
        model.load_state_dict(live)


def _divergence(what: str, epoch: int, step: int, folder: Folder | None, spec: TrainSpec, policy: str) -> DivergedError:
    """What happened, what is left, and what was not tried yet."""
    kept = "no checkpoint was saved before"
    if folder and checkpoint.checkpoint_folders(folder.path / "checkpoints"):
        kept = f"the last good checkpoint is kept in {folder.path / 'checkpoints'}"
    remedies = ["lower train.lr", f"{'lower' if spec.clip > 0.0 else 'set'} train.clip"]
    remedies += [] if policy == "fp32" else ["use train.precision=fp32"]
    return DivergedError(f"{what} in epoch {epoch} at step {step}; {kept}; {', or '.join(remedies)}")


@contextmanager
def _random(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers from `seed` inside, the caller's own stream untouched outside."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def _requests_to_stop() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; a second Ctrl-C interrupts at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
