"""Training on coarser grids: with every n-th point of each sample.

Beside the whole grid (`train.coarser`), for networks that are to serve several grids; in place of it for most of the
epochs (`train.coarse_first`), which then cost a quarter on a plane: most of what is to be learnt shows on either grid.

A spectral network can be evaluated on any grid. What it has learnt on one holds on another as far as its inputs are
resolved on both: of a coefficient that jumps, a coarser grid shows something else, which can be learnt as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from hofno.errors import HofnoError, ShapeError, SpecError
from hofno.geometry import Geometry, Grid, Mesh, kind_of
from hofno.spec import TrainSpec

Stride = int | tuple[int, ...]
"""Of which points every n-th is taken: along each axis, or along each its own."""


def every(fields: Tensor, stride: Stride) -> Tensor:
    """Every n-th point along each axis, from the first on. (b, c, *grid) -> (b, c, *coarser)"""
    if stride == 1:
        return fields
    steps = (stride,) * (fields.ndim - 2) if isinstance(stride, int) else stride
    return fields[(..., *(slice(None, None, step) for step in steps))]


def on_every(model: Callable[..., Tensor], stride: Stride) -> Callable[..., Tensor]:
    """The model on every n-th point of what it is given."""
    return model if stride == 1 else lambda x: model(every(x, stride))


def coarse_grids(spec: TrainSpec) -> list[tuple[str, Stride]]:
    """The coarser grids that a run learns from: the key that asks for one, and of which points it has every n-th."""
    first = [("coarse_by", spec.coarse_by)] if spec.coarse_first > 0.0 else []
    return [*(("coarser", stride) for stride in spec.coarser), *first]


def check_coarser(spec: TrainSpec, grid: Geometry) -> None:
    """Refuse strides that do not lead from the first to the last point, and what knows only one grid."""
    name = "coarser" if spec.coarser else "coarse_first"
    if not isinstance(grid, Grid | Mesh):
        raise SpecError(
            f"train.{name} is for grids and meshes; the geometry of these data is {kind_of(grid)!r}; leave it out"
        )
    if spec.coarser and spec.normaliser != "channel":
        raise SpecError(
            f"train.normaliser={spec.normaliser!r} has statistics of places, which know only their own grid; with "
            "train.coarser use 'channel'"
        )
    if spec.forcing == "free":
        raise SpecError(f"train.forcing='free' feeds predictions back on one grid; with train.{name} use 'teacher'")
    if len(set(spec.coarser)) < len(spec.coarser):
        raise SpecError(f"train.coarser={list(spec.coarser)} names a grid twice; name each once")
    steps = [n if isinstance(grid, Grid) and grid.periodic else n - 1 for n in grid.shape]
    for key, stride in coarse_grids(spec):
        along = (stride,) * len(steps) if isinstance(stride, int) else stride
        if len(along) != len(steps) or max(along) == 1:
            raise SpecError(
                f"train.{key}={list(along)} has a number for each axis, not all of them 1; this grid has {len(steps)} "
                f"ax{'i' if len(steps) == 1 else 'e'}s; give as many, such as {[2] * len(steps)}"
            )
        if any(count % step for count, step in zip(steps, along, strict=True)):
            raise SpecError(
                f"train.{key}={_told(stride)} does not divide the steps of a grid of {_by(grid.shape)} points "
                f"({', '.join(map(str, steps))}), so that another domain would be left; {_fitting(key, steps)}"
            )
        if any(1 < step > count // 2 for count, step in zip(steps, along, strict=True)):
            raise SpecError(
                f"train.{key}={_told(stride)} leaves a single step along an axis of {_by(grid.shape)} points; "
                f"{_fitting(key, steps)}"
            )


def _fitting(key: str, steps: Sequence[int]) -> str:
    """What to do instead of a stride that does not suit a grid."""
    each = [[n for n in range(2, count // 2 + 1) if count % n == 0] for count in steps]
    if alike := [n for n in each[0] if all(n in divisors for divisors in each)]:
        return f"take {'some' if key == 'coarser' else 'one'} of {', '.join(map(str, alike))}"
    if key == "coarser" or not any(each):
        return "leave it out: this grid has no such number"
    return f"give each axis its own, such as {[min(divisors, default=1) for divisors in each]}"


def check_coarse(
    model: Callable[..., Tensor], x: Tensor, out_channels: int, grids: Sequence[tuple[str, Stride]]
) -> None:
    """Refuse a model that cannot be given one of the coarser grids, such as one with more modes than it holds."""
    for key, stride in grids:
        where, coarse = f"on the coarser grid of train.{key}={_told(stride)}", every(x, stride)
        remedy = "; or leave out train." + ("coarser" if key == "coarser" else "coarse_first")
        try:
            found = model(coarse)
        except HofnoError as error:
            raise type(error)(f"{where}: {error}{remedy}") from None
        wanted = (len(x), out_channels, *coarse.shape[2:])
        if found.shape != wanted:
            raise ShapeError(f"{where} the model gives {tuple(found.shape[1:])} and not {wanted[1:]}{remedy}")


def _told(stride: Stride) -> str:
    return str(stride if isinstance(stride, int) else list(stride))


def _by(points: Sequence[int]) -> str:
    return " x ".join(map(str, points))
