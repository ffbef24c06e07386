"""Training on coarser grids too: with every n-th point of each sample, for networks that are to serve several grids.

A spectral network can be evaluated on any grid. What it has learnt on one holds on another as far as its inputs are
resolved on both: of a coefficient that jumps, a coarser grid shows something else, which can be learnt as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from hofno.errors import HofnoError, SpecError
from hofno.geometry import Geometry, Grid, Mesh, kind_of
from hofno.spec import TrainSpec


def every(fields: Tensor, stride: int) -> Tensor:
    """Every n-th point along each axis, from the first on. (b, c, *grid) -> (b, c, *coarser)"""
    return fields if stride == 1 else fields[(..., *(slice(None, None, stride),) * (fields.ndim - 2))]


def on_every(model: Callable[..., Tensor], stride: int) -> Callable[..., Tensor]:
    """The model on every n-th point of what it is given."""
    return model if stride == 1 else lambda x: model(every(x, stride))


def check_coarser(spec: TrainSpec, grid: Geometry) -> None:
    """Refuse strides that do not lead from the first to the last point, and what knows only one grid."""
    if not isinstance(grid, Grid | Mesh):
        raise SpecError(
            f"train.coarser is for grids and meshes; the geometry of these data is {kind_of(grid)!r}; leave it out"
        )
    if spec.normaliser != "channel":
        raise SpecError(
            f"train.normaliser={spec.normaliser!r} has statistics of places, which know only their own grid; with "
            "train.coarser use 'channel'"
        )
    if spec.forcing == "free":
        raise SpecError("train.forcing='free' feeds predictions back on one grid; with train.coarser use 'teacher'")
    if len(set(spec.coarser)) < len(spec.coarser):
        raise SpecError(f"train.coarser={list(spec.coarser)} names a grid twice; name each once")
    steps = [n if isinstance(grid, Grid) and grid.periodic else n - 1 for n in grid.shape]
    for stride in spec.coarser:
        if any(count % stride for count in steps):
            fitting = [n for n in range(2, min(steps) // 2 + 1) if not any(count % n for count in steps)]
            remedy = "leave it out: this grid has no such number"
            remedy = f"take some of {', '.join(map(str, fitting))}" if fitting else remedy
            raise SpecError(
                f"train.coarser={stride} does not divide the steps of a grid of {' x '.join(map(str, grid.shape))} "
                f"points ({', '.join(map(str, steps))}), so that another domain would be left; {remedy}"
            )


def check_coarse(model: Callable[..., Tensor], x: Tensor, strides: Sequence[int]) -> None:
    """Refuse a model that cannot be given one of the coarser grids, such as one with more modes than it holds."""
    for stride in strides:
        try:
            model(every(x, stride))
        except HofnoError as error:
            raise type(error)(f"on the coarser grid of train.coarser={stride}: {error}") from None
