r"""What a training step learns from: pairs of fields, or windows of trajectories.

    pairs      loss(model(x_i), y_i) for the samples i of a batch
    clouds     loss(model(x_i, coords_i), y_i). Where samples differ in their number of points, those that are not there
               count as predicted exactly and as 0, and means are over the others: no loss knows of the padding
    windows    loss(model(w_{t-h}, ..., w_{t-1}), w_t): every frame t of the batch's trajectories follows from the h
               frames before it. "teacher": those are the true frames, and windows are independent. "free": predictions
               take the place of true frames as they are made, and gradients flow through the whole rollout.
               Fields that do not change in time are given with every window, before its frames.

The loss of a batch is the mean over its windows. The published protocol sums over the steps of a trajectory: the same
up to a constant factor, which AdamW does not see (but for its epsilon).

What a task is given lies standardised on the device and a batch is named by indices alone, so that a step has the same
shapes each time and can be captured. It is all data, or room for one batch, see `hofno.train.feed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from hofno.data.dataset import Dataset, Rollout
from hofno.data.normalise import ChannelNormaliser, Normaliser
from hofno.data.ondisk import JoinedArray, Values, channels_of, ranges
from hofno.data.passes import roll_out
from hofno.data.pointwise import PointwiseNormaliser
from hofno.errors import DataError, ShapeError, SpecError
from hofno.geometry import Geometry, Points, Sphere, Surface, kind_of
from hofno.models.registry import MODELS, check_geometry, check_nodes, model_name
from hofno.problems.symmetry import Symmetry
from hofno.spec import TrainSpec
from hofno.train.augment import Moved, augmentation, check_augment, unmoved
from hofno.train.grids import Stride, check_coarse, check_coarser, coarse_grids

Model = Callable[..., Tensor]

ALIKE = 0.02
"""Samples whose deviation from each other is below this part of the deviation over their points look the same."""


class Answer(NamedTuple):
    """Predictions and targets of a batch, standardised, (windows, c, *grid), and the part of points that are there."""

    prediction: Tensor
    target: Tensor
    share: Tensor | None = None  # (windows,); None: all are


class Task(Protocol):
    """Something to learn. `items` is how many there are of what a batch is made of."""

    items: int
    device: torch.device
    fixed: Tensor | None
    """Fields that do not change in time, of which models are given the channels first; None where there are none."""

    def predict(self, model: Model, indices: Tensor) -> Answer:
        """What the model makes of a batch, and what it should."""
        ...


class Pairs:
    """Inputs x (n, c, *grid) to targets y (n, c', *grid)."""

    fixed: Tensor | None = None

    def __init__(self, x: Tensor, y: Tensor, moved: Moved = unmoved) -> None:
        self.x, self.y, self.moved = x, y, moved
        self.items, self.device = len(x), x.device

    def predict(self, model: Model, indices: Tensor) -> Answer:
        x, target = self.moved(self.x.index_select(0, indices), self.y.index_select(0, indices))
        return Answer(model(x), target)


class Clouds:
    """Fields x (n, c, N) at coords (n, d, N) in units of their box, to targets y (n, c', N); mask (n, N) or None."""

    fixed: Tensor | None = None

    def __init__(self, x: Tensor, y: Tensor, coords: Tensor, mask: Tensor | None, moved: Moved = unmoved) -> None:
        self.x, self.y, self.coords, self.mask, self.moved = x, y, coords, mask, moved
        self.items, self.device = len(x), x.device

    def predict(self, model: Model, indices: Tensor) -> Answer:
        unmoved_ones = [part.index_select(0, indices) for part in (self.x, self.y, self.coords)]
        x, target, coords = self.moved(*unmoved_ones)
        if self.mask is None:
            return Answer(model(x, coords), target)
        mask = self.mask.index_select(0, indices)
        target = torch.where(mask[:, None], target, unmoved_ones[1])  # 0 in physical units, wherever the others went
        prediction = torch.where(mask[:, None], model(x, coords, mask).to(target.dtype), target)
        return Answer(prediction, target, mask.float().mean(1))


class TeacherForced:
    """All windows of a batch of trajectories, (n, t fields, *grid), and their fixed fields (n, c, *grid) or None."""

    def __init__(self, frames: Tensor, rollout: Rollout, moved: Moved = unmoved, fixed: Tensor | None = None) -> None:
        self.frames, self.history, self.fields, self.moved = frames, rollout.history, rollout.fields, moved
        self.items, self.device, self.fixed = len(frames), frames.device, fixed

    def predict(self, model: Model, indices: Tensor) -> Answer:
        chosen, *fixed = self.moved(*_rows(indices, self.frames, self.fixed))
        chosen = chosen.unflatten(1, (-1, self.fields))  # (b, t, fields, *grid)
        given = beside(windows(chosen, self.history), *fixed)
        return Answer(model(given), chosen[:, self.history :].flatten(0, 1))


class SingleWindows:
    """Windows of all trajectories, (n, t fields, *grid): number i is for frame history + i % w of trajectory i // w."""

    def __init__(self, frames: Tensor, rollout: Rollout, moved: Moved = unmoved, fixed: Tensor | None = None) -> None:
        self.rows, self.fixed = frames.unflatten(1, (-1, rollout.fields)).flatten(0, 1), fixed
        self.length, self.moved, self.taken = frames.shape[1] // rollout.fields, moved, rollout.taken
        self.each = self.length - rollout.history
        self.items, self.device = len(frames) * self.each, frames.device
        self.ahead = torch.arange(rollout.history + 1, device=self.device)

    def predict(self, model: Model, indices: Tensor) -> Answer:
        first = indices // self.each * self.length + indices % self.each  # row of the window's first frame
        rows = self.rows.index_select(0, (first[:, None] + self.ahead).flatten())  # (b (history + 1), fields, *grid)
        frames = rows.unflatten(0, (-1, len(self.ahead))).flatten(1, 2)
        window, *fixed = self.moved(frames, *_rows(indices // self.each, self.fixed))
        return Answer(model(beside(window[:, : self.taken], *fixed)), window[:, self.taken :])


class FreeRunning:
    """A batch of trajectories, (n, t fields, *grid), rolled out from their first frames."""

    def __init__(self, frames: Tensor, rollout: Rollout, moved: Moved = unmoved, fixed: Tensor | None = None) -> None:
        self.frames, self.rollout, self.fields = frames, rollout, rollout.fields
        self.items, self.device, self.moved, self.fixed = len(frames), frames.device, moved, fixed

    def predict(self, model: Model, indices: Tensor) -> Answer:
        chosen, *fixed = self.moved(*_rows(indices, self.frames, self.fixed))
        first, target = chosen[:, : self.rollout.taken], chosen[:, self.rollout.taken :]
        steps = target.shape[1] // self.fields
        predicted = roll_out(model, beside(first, *fixed), steps, self.rollout.fixed)
        by_frame = (part.unflatten(1, (-1, self.fields)).flatten(0, 1) for part in (predicted, target))
        return Answer(*by_frame)


def _rows(indices: Tensor, *parts: Tensor | None) -> list[Tensor]:
    """The samples of a batch, of the parts that there are."""
    return [part.index_select(0, indices) for part in parts if part is not None]


def beside(frames: Tensor, fixed: Tensor | None = None) -> Tensor:
    """What a model is given: fixed fields, then the frames of windows, which go one trajectory after the other."""
    if fixed is None:
        return frames
    each = fixed[:, None].expand(-1, len(frames) // len(fixed), *fixed.shape[1:])
    return torch.cat((each.flatten(0, 1), frames), 1)


def windows(frames: Tensor, history: int) -> Tensor:
    """Every `history` frames with a next one, (b, t, fields, *grid) -> (b (t - history), history fields, *grid)."""
    return frames[:, :-1].unfold(1, history, 1).movedim(-1, 2).flatten(0, 1).flatten(1, 2)


def _fit(u: Values, spec: TrainSpec, mask: Tensor | None) -> Normaliser:
    if u.shape[1] == 0:
        return ChannelNormaliser.identity(0)
    if spec.normaliser == "channel":
        return ChannelNormaliser.fit(u, mask)
    return PointwiseNormaliser.fit(u, spec.normaliser)


def normalisers(data: Dataset, spec: TrainSpec) -> tuple[Normaliser, Normaliser]:
    """Of inputs and of targets. A field of a trajectory has one mean and deviation in all frames; fixed ones too."""
    split, same = data.train.parts, ChannelNormaliser.identity
    if data.rollout is None:
        inputs = _fit(split.x, spec, split.mask) if spec.normalise_inputs else same(split.x.shape[1])
        targets = _fit(split.y, spec, split.mask) if spec.normalise_targets else same(split.y.shape[1])
        return inputs, targets
    fields, (first, fixed) = data.rollout.fields, _frames_and_fixed(split.x, data.rollout)
    if not spec.normalise_inputs:
        return same(split.x.shape[1]), same(fields)
    one = ChannelNormaliser.fit_frames(first, split.y, fields=fields)
    inputs = one.repeated(data.rollout.history)
    return inputs if fixed is None else ChannelNormaliser.fit(fixed).joined(inputs), one


def _frames_and_fixed(x: Values, rollout: Rollout) -> tuple[Values, Values | None]:
    """What inputs of a model in time are made of."""
    if rollout.fixed == 0:
        return x, None
    return channels_of(x, rollout.fixed, x.shape[1]), channels_of(x, 0, rollout.fixed)


def inputs_all_alike(data: Dataset, spec: TrainSpec) -> bool:
    """Whether samples differ so little, beside how each varies over its points, that standardised they look the same.

    Coordinates of meshes do: around a foil they reach to the far field, and what tells one foil from another is small.
    """
    x = data.train.parts.x
    whole = spec.normalise_inputs and spec.normaliser == "channel" and data.rollout is None
    if not whole or isinstance(data.grid, Points) or x.shape[0] < 2 or x.shape[1] == 0:
        return False
    some = x[:64].double()
    across = some.var(0).flatten(1).mean(1)  # (c,), between samples
    over = some.movedim(1, 0).flatten(1).var(1)
    return bool((across < ALIKE**2 * over).all())


@dataclass(frozen=True)
class Column:
    """One argument of a task: what it is made of, and how physical numbers are standardised."""

    values: Values
    encode: Callable[[Tensor], Tensor]
    in_time: bool = False  # channels are frames, of which a window has some

    def on(self, device: torch.device) -> Tensor:
        """All of it on the device, standardised there some samples at a time."""
        whole = torch.empty(self.values.shape, dtype=self.dtype, device=device)
        for rows in ranges(self.values.shape):
            whole[rows] = self.encode(self.values[rows].to(device))
        return whole

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype if isinstance(self.values, Tensor) else torch.float32


def columns(data: Dataset, inputs: Normaliser, targets: Normaliser) -> list[Column]:
    """What the task of a dataset is given, in physical units and where it lies."""
    x, y, coords, mask = data.train.parts
    if data.rollout is not None:
        assert isinstance(inputs, ChannelNormaliser)
        assert isinstance(targets, ChannelNormaliser)
        first, fixed = _frames_and_fixed(x, data.rollout)
        frames = Column(JoinedArray((first, y)), targets.encode_frames, in_time=True)  # (n, t fields, *grid)
        return [frames, *([] if fixed is None else [Column(fixed, inputs.first(data.rollout.fixed).encode)])]
    found = [Column(x, inputs.encode), Column(y, targets.encode)]
    if isinstance(data.grid, Points):
        assert coords is not None
        found.append(Column(coords, data.grid.to_unit))
        found += [] if mask is None else [Column(mask, lambda part: part)]
    return found


def task_over(data: Dataset, spec: TrainSpec, parts: Sequence[Tensor], inputs: Normaliser, targets: Normaliser) -> Task:
    """The task of a dataset over samples of it that these have standardised, one tensor for each of its columns."""
    moved: Moved = unmoved
    if spec.augment:
        moved = augmentation(data, inputs, targets, parts[0].device)
    if isinstance(data.grid, Points):
        return Clouds(*parts[:3], mask=parts[3] if len(parts) > 3 else None, moved=moved)
    if data.rollout is None:
        return Pairs(*parts, moved=moved)
    kinds = {
        ("teacher", "trajectories"): TeacherForced,
        ("teacher", "windows"): SingleWindows,
        ("free", "trajectories"): FreeRunning,
    }
    return kinds[spec.forcing, spec.batch_of](parts[0], data.rollout, moved, *parts[1:])


def make_task(data: Dataset, spec: TrainSpec, inputs: Normaliser, targets: Normaliser, device: torch.device) -> Task:
    """The task of a dataset, all of it standardised and on the device."""
    inputs, targets = inputs.to(device), targets.to(device)
    parts = [column.on(device) for column in columns(data, inputs, targets)]
    return task_over(data, spec, parts, inputs, targets)


def check_task(data: Dataset, spec: TrainSpec) -> None:
    """Refuse settings that the data do not have or that contradict each other."""
    check_settings(spec, data.rollout is not None, data.grid, data.symmetry)
    if len(data.train) == 0:
        raise DataError("there are no training samples; give at least one, better hundreds")
    if len(data.valid) == 0 and spec.select == "best":
        raise SpecError("train.select='best' needs validation samples and there are none; use select='last'")


def check_settings(spec: TrainSpec, in_time: bool, grid: Geometry, symmetry: Symmetry | None) -> None:
    """Refuse a way of training that means nothing for the problem."""
    if coarse_grids(spec):
        check_coarser(spec, grid)
    if spec.augment:
        check_augment(symmetry, grid, spec.normaliser)
    elif spec.symmetric:
        raise SpecError(
            "train.symmetric=true predicts from moved samples too, which only training with train.augment=true has "
            "seen; set that too, or leave symmetric out"
        )
    if isinstance(grid, Sphere | Surface) and spec.loss == "rel_l2_gradient":
        raise SpecError(
            f"train.loss='rel_l2_gradient' takes differences on a plane, and these data are on a {kind_of(grid)}; use "
            "'rel_l2'"
        )
    if isinstance(grid, Points) and (spec.loss == "rel_l2_gradient" or spec.normaliser != "channel"):
        name = "loss" if spec.loss == "rel_l2_gradient" else "normaliser"
        raise SpecError(
            f"train.{name}={getattr(spec, name)!r} is for grids, and these data are at points; use "
            f"{TrainSpec.model_fields[name].default!r}"
        )
    if not in_time:
        for name in ("forcing", "batch_of"):
            if name in spec.model_fields_set and getattr(spec, name) != TrainSpec.model_fields[name].default:
                raise SpecError(
                    f"train.{name}={getattr(spec, name)!r} is for trajectories, and these data are pairs; leave it out"
                )
        return
    if spec.normaliser != "channel":
        raise SpecError(f"frames of a trajectory have train.normaliser='channel'; got {spec.normaliser!r}")
    if spec.normalise_inputs != spec.normalise_targets:
        raise SpecError(
            "predicted frames become inputs: set train.normalise_inputs and train.normalise_targets alike; got "
            f"{spec.normalise_inputs} and {spec.normalise_targets}"
        )
    if spec.forcing == "free" and spec.batch_of == "windows":
        raise SpecError("train.forcing='free' rolls whole trajectories out; use train.batch_of='trajectories'")


def check_fit(model: nn.Module, data: Dataset, device: torch.device, grids: Sequence[tuple[str, Stride]] = ()) -> None:
    """One forward pass of one sample on each grid: a model that does not fit fails before anything is written."""
    split, out_channels = data.train[:1], data.out_channels
    if not any(weight.requires_grad for weight in model.parameters()):
        raise SpecError(
            f"{type(model).__name__} has no weights to train; give a model with some, or thaw them: "
            "model.requires_grad_(True)"
        )
    if type(model) in MODELS.values():
        for kind in {weight.dtype for weight in model.parameters()} - {torch.float32}:
            raise SpecError(f"fields are float32, and the weights of the model are {kind}; give model.float()")
        check_geometry(model_name(model), data.grid)
        check_nodes(model, data.grid)
    places = () if split.coords is None or not isinstance(data.grid, Points) else (data.grid.to_unit(split.coords),)
    places = places if split.mask is None else (*places, split.mask)
    training = model.training
    model.eval()  # a look at it changes nothing: no running means, no random numbers
    expected = (1, out_channels, *split.y.shape[2:])
    try:
        with torch.no_grad():
            out = model(split.x.to(device), *(part.to(device) for part in places))
            if not isinstance(out, Tensor):
                raise ShapeError(
                    f"a model gives one tensor; {type(model).__name__} gives a {type(out).__name__}; let it give one"
                )
            if out.shape != expected:
                raise ShapeError(
                    f"the model gives {tuple(out.shape[1:])} for each sample and the targets are {expected[1:]}; "
                    f"set out_channels={out_channels} and give targets on the grid of the inputs"
                )
            check_coarse(model, split.x.to(device), out_channels, grids)
    finally:
        model.train(training)
