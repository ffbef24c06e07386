"""Arrays of the user's own whose axes come in another order than (n, channels, *grid): what to do about them."""

from __future__ import annotations

import itertools
import warnings

FEW, SHORTER = 8, 3
"""A last axis of fewer points than the first, and so many times shorter than those before, may be one of channels."""


def warn_of_channels_last(name: str, shape: tuple[int, ...]) -> None:
    """A line where the last axis of fields looks like their channels."""
    if len(shape) > 2 and 1 < shape[-1] < min(FEW, 1 + min(shape[1:-1]) // SHORTER):
        points = " x ".join(map(str, shape[2:]))
        warnings.warn(
            f"{name} {shape} is taken for {shape[1]} channels on {points} points; if its channels come last, give "
            f"numpy.moveaxis({name}, -1, 1)",
            stacklevel=3,
        )


def first_channels(name: str, shape: tuple[int, ...]) -> str:
    """What to do about fields on a grid of which an axis has a single point; nothing where there is none."""
    if min(shape[2:], default=2) > 1:
        return ""
    return f"channels are the second axis: give numpy.moveaxis({name}, -1, 1)"


def on_one_grid(x: tuple[int, ...], y: tuple[int, ...]) -> str:
    """What gives arrays of these shapes one grid: an axis for a single channel, channels in their place, or both."""

    def readings(name: str, shape: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
        return [("", shape[2:]), (f"{name}[:, None]", shape[1:]), (f"numpy.moveaxis({name}, -1, 1)", shape[1:-1])]

    pairs = itertools.product(readings("x", x), readings("y", y))
    fitting = [[one, other] for (one, grid), (other, same) in pairs if grid == same and grid and min(grid) > 1]
    if not fitting:
        return _as_fields(x, y)
    fixes = list(filter(None, min(fitting, key=lambda names: sum(map(bool, names)))))
    why = (
        "channels are the second axis" if any("moveaxis" in fix for fix in fixes) else "a single channel needs its axis"
    )
    return f"{why}: give {' and '.join(fixes)}"


def _as_fields(x: tuple[int, ...], y: tuple[int, ...]) -> str:
    """What to do about arrays that no reading puts on one grid; one of them may be numbers, (n,) or (n, c)."""
    if (len(x) < 3) == (len(y) < 3):
        return "give both at the same points"
    name, flat, other = ("x", x, y) if len(x) < 3 else ("y", y, x)
    axes = ", ".join([":"] * len(flat) + ["None"] * (len(other) - len(flat)))
    wanted = (other[0], *flat[1:2], *(1,) * (2 - len(flat)), *other[2:])
    models = "models take fields" if name == "x" else "models predict fields, and their mean is such a number"
    return (
        f"if {name} holds numbers of whole samples, make them constant fields ({models}): "
        f"numpy.broadcast_to({name}[{axes}], {wanted}); else give both at the same points"
    )
