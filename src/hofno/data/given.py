"""What a trained operator is asked about: raw arrays of any accepted form, checked, as one batch of float32 fields."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hofno.data.clouds import is_list_of_samples, pad_samples
from hofno.data.dataset import Rollout, refuse_not_finite
from hofno.data.faint import named
from hofno.data.values import as_float32, as_mask
from hofno.errors import ShapeError, SpecError
from hofno.geometry import Geometry, Mesh, Points, kind_of


@dataclass(frozen=True)
class Given:
    """Fields (n, c, *grid); at points also places (n, d, N) and perhaps a mask (n, N). `like` is what results resemble.

    `single`: one sample was given, without n. `by_field`: frames of several fields came with an axis for these.
    `counts`: points of each sample, where a list of samples was given.
    """

    fields: Tensor
    like: Any
    coords: Tensor | None = None
    inside: Tensor | None = None
    single: bool = False
    by_field: bool = False
    counts: list[int] | None = None

    def result(self, values: Tensor, fields: int) -> Any:
        """Predictions (n, c', *grid) in the form that was given; `fields` is how many a frame has."""
        if self.counts is not None:
            rows = zip(values, self.counts, self.like, strict=True)
            return [_like(row[:, :count], sample) for row, count, sample in rows]
        values = values.unflatten(1, (-1, fields)) if self.by_field else values
        return _like(values[0] if self.single else values, self.like)

    def numbers(self, values: Tensor) -> Any:
        """One number for each sample, (n,); that number where one sample was given."""
        return float(values[0]) if self.single else _like(values, self.like)


def what_is_lost(predicted: Tensor) -> str:
    """A line on predictions (n, c, *grid) that are no numbers, as rollouts without bound end in; empty without any."""
    wrong = (~predicted.isfinite().flatten(1).all(1)).nonzero().flatten()
    if len(wrong) == 0:
        return ""
    count = f"{len(wrong)} of {len(predicted)} predictions"
    return f"NaN or infinite: {count}, by number {named(wrong)}; do not rely on them"


def given(x: Any, coords: Any, mask: Any, fixed: Any, grid: Geometry, channels: int, rollout: Rollout | None) -> Given:
    """What an operator of so many input channels on this geometry was given; what does not fit is refused."""
    if fixed is not None and (rollout is None or rollout.fixed == 0):
        raise SpecError("the model was trained without fixed fields; leave fixed out")
    if isinstance(grid, Points):
        return _at_points(x, coords, mask, grid, channels)
    if mask is not None or (coords is not None and not isinstance(grid, Mesh)):
        left = "the mask" if isinstance(grid, Mesh) else "coords and mask"
        raise SpecError(f"the model was trained on a {kind_of(grid)}; leave {left} out")
    axes = len(grid.shape)
    values = as_float32(x, "x") if coords is None else _with_coords(x, coords, axes)
    by_field = _is_by_field(values, axes, rollout)
    if rollout is not None and rollout.fields > 1 and not by_field:
        _refuse_other_frames(values, rollout, axes)
    values = values.flatten(1, 2) if by_field else values
    if rollout is not None and fixed is not None:
        values = _with_fixed(values, as_float32(fixed, "fixed"), rollout, axes)
    single = values.ndim == axes + 1
    batch = values[None] if single else values
    if batch.ndim != axes + 2 or batch.shape[1] != channels:
        where = ""
        if isinstance(grid, Mesh) and coords is None:
            where = "; places on a mesh are channels, the last ones: give coords=.., or an x that holds them"
        elif x is not None and coords is not None and batch.ndim == axes + 2:
            where = "; the last channels are coords: leave these out where x holds the places already"
        elif rollout is not None and rollout.fixed and fixed is None:
            first = "first is a fixed field" if rollout.fixed == 1 else f"first {rollout.fixed} are fixed fields"
            where = f"; the {first}: give fixed=.., or an x that holds {'it' if rollout.fixed == 1 else 'them'}"
        elif rollout is not None and not by_field and batch.ndim == axes + 2 and batch.shape[1] > channels:
            where = f"; a model in time takes the last frames: give x[:, -{rollout.history}:]" * (rollout.fields == 1)
        elif values.ndim == axes + 2 and values.shape[-1] == channels:
            where = "; channels are the second axis: give numpy.moveaxis(x, -1, 1)"
        elif channels == 1 and values.ndim in (axes, axes + 1):
            where = "; a single channel needs its axis: give x" + ("[None]" if values.ndim == axes else "[:, None]")
        raise ShapeError(
            f"expected (n, {channels}, *grid) with {axes} grid axes, or one sample without n; "
            f"got shape {tuple(values.shape)}{where}"
        )
    if batch.numel() == 0:
        raise ShapeError(f"expected at least one sample and one point; got shape {tuple(values.shape)}")
    refuse_not_finite(batch, "x")
    return Given(batch, coords if x is None else x, single=single, by_field=by_field)


def _is_by_field(values: Tensor, axes: int, rollout: Rollout | None) -> bool:
    """Whether frames of several fields come with an axis for these: (n, history, fields, *grid)."""
    if rollout is None or rollout.fields == 1 or values.ndim != axes + 3:
        return False
    return tuple(values.shape[1:3]) == (rollout.history, rollout.fields)


def _refuse_other_frames(values: Tensor, rollout: Rollout, axes: int) -> None:
    """Refuse other frames with an axis for their fields than are taken, or those of one sample.

    Of a sample with a single frame, that axis is the channels'.
    """
    history, fields, shape = rollout.history, rollout.fields, tuple(values.shape)
    one = values.ndim == axes + 2 and shape[:2] == (history, fields) and history > 1
    if one or values.ndim == axes + 3:
        last = f"give the last frames, x[:, -{history}:]" if shape[2] == fields else "give such frames"
        raise ShapeError(
            f"frames with an axis for their fields are (n, {history}, {fields}, *grid); got shape {shape}; "
            f"{'one sample is x[None]' if one else last}"
        )


def _with_coords(x: object | None, coords: object, axes: int) -> Tensor:
    """Fields on a mesh of so many axes with its coordinates as further channels."""
    places = as_float32(coords, "coords")
    if x is None:
        return places
    values = as_float32(x, "x")
    return torch.cat((values, _for_each(values, places, axes, "coords", "d")), -axes - 1)


def _with_fixed(frames: Tensor, fixed: Tensor, rollout: Rollout, axes: int) -> Tensor:
    """Fields that do not change in time, of each sample or of all, and after them the frames."""
    counts = tuple(part.shape[-axes - 1] if part.ndim > axes else 0 for part in (frames, fixed))
    if counts != (rollout.taken, rollout.fixed):
        more = counts[0] > rollout.taken and counts[1] == rollout.fixed
        remedy = "give one channel for each field"
        remedy = f"it takes the last frames: give x[:, -{rollout.taken}:]" if more else remedy
        raise ShapeError(
            f"expected frames (n, {rollout.taken}, *grid) and fixed (n, {rollout.fixed}, *grid) with {axes} grid axes; "
            f"got {tuple(frames.shape)} and {tuple(fixed.shape)}; {remedy}"
        )
    refuse_not_finite(fixed, "fixed")
    return torch.cat((_for_each(frames, fixed, axes, "fixed", "c"), frames), -axes - 1)


def _for_each(values: Tensor, more: Tensor, axes: int, name: str, count: str) -> Tensor:
    """Further channels of fields on a grid of so many axes, for every sample; they may be given once for all."""
    axis = -axes - 1
    if more.ndim == values.ndim - 1:
        more = more.expand(len(values), *more.shape)
    if more.ndim != values.ndim or more.movedim(axis, 0).shape[1:] != values.movedim(axis, 0).shape[1:]:
        raise ShapeError(
            f"{name} must be ({count}, *grid) or (n, {count}, *grid) on the grid of x; got {tuple(more.shape)} and x "
            f"{tuple(values.shape)}"
        )
    return more


def _at_points(x: Any, coords: Any, mask: Any, grid: Points, channels: int) -> Given:
    if coords is None:
        raise SpecError("the model was trained at points; give their coords: predict(x, coords)")
    like, counts = coords if x is None else x, None
    if is_list_of_samples(coords):
        filled, mask = pad_samples({"coords": coords} | ({} if x is None else {"x": x}), as_float32)
        like, counts = coords, [len(sample[0]) for sample in coords]
        x, coords = filled.get("x"), filled["coords"]
    convert = partial(as_float32, masked=mask is not None)
    places, inside = convert(coords, "coords"), None if mask is None else as_mask(mask)
    if places.ndim < 2:
        raise ShapeError(
            f"expected coords (n, {grid.dim}, N), or ({grid.dim}, N) of one sample; got shape {tuple(places.shape)}; "
            "give at least one sample, with a column for each point"
        )
    values = places[..., :0, :] if x is None else convert(x, "x")
    single = places.ndim == values.ndim == 2
    if places.ndim == 2 and values.ndim == 3:  # the same places for all samples
        places = places.expand(len(values), *places.shape)
    if single:
        places, values = places[None], values[None]
        inside = None if inside is None else inside[None]
    count = (places.shape[0], places.shape[-1])
    if (
        (places.ndim, values.ndim) != (3, 3)
        or places.numel() == 0
        or places.shape[1] != grid.dim
        or values.shape != (count[0], channels, count[1])
        or (inside is not None and inside.shape != count)
    ):
        raise ShapeError(
            f"expected x (n, {channels}, N), coords (n, {grid.dim}, N) or ({grid.dim}, N) for all, and a "
            f"mask (n, N) or none, or one sample without n; got x {None if x is None else tuple(np.shape(x))}, "
            f"coords {tuple(np.shape(coords))} and mask {None if mask is None else tuple(np.shape(mask))}"
            + "; the coordinates of a point come before it: give numpy.moveaxis(coords, -1, -2)"
            * (places.ndim > 1 and places.shape[-1] == grid.dim != places.shape[-2])
            + "; the places are the only input: leave the fields x out" * (channels == 0 and x is not None)
        )
    if inside is not None and not bool(inside.any(1).all()):
        raise ShapeError("the mask leaves a sample without a single point; leave that sample out")
    if inside is not None:
        places, values = (torch.where(inside[:, None], part, 0.0) for part in (places, values))
    refuse_not_finite(values, "x")
    refuse_not_finite(places, "coords")
    return Given(values, like, places, inside, single, counts=counts)


def _like(values: Tensor, given: Any) -> Any:
    """The values as a tensor where one was given, else as a NumPy array."""
    return values if isinstance(given, Tensor) else values.numpy()
