"""The house style of figures: colours of the paper, markers that repeat them, no global state.

The paper draws FNO red, order 2 green, order 3 blue and order 5 purple. Models of the same order have shades of its
colour. Markers and dashes repeat what the colours say, so that no reading depends on colour alone.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from hofno.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Arguments = ParamSpec("Arguments")

ORDER_COLOURS = {1: "#dc4b3c", 2: "#2ea043", 3: "#1e88e5", 5: "#8e44ad"}
ORDER_MARKERS = {1: "o", 2: "s", 3: "^", 5: "D"}
OTHER_COLOURS = ("#e69f00", "#56b4e9", "#6b7280", "#cc79a7", "#8c6d31", "#009e9e")
DASHES = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
SHADES = (0.0, -0.45, 0.45)
"""Of the models of one colour, in turn: how far it is mixed with black (below zero) or white."""

INK, GREY, GRID = "#1f2933", "#66707c", "#e3e7ec"
TRUTH: Any = {"color": "#c3cbd5", "linewidth": 6.0, "solid_capstyle": "round", "zorder": 1.8}
"""The truth among predictions: broad and pale, so that it shows on both sides of a curve that lies on it."""

WIDTH = 8.6
"""Inches: the column of the page. Ten-point text stays ten-point text there."""

LEGEND_ROWS, LEGEND_ROW = 2, 0.2
"""Rows of a legend that the height of a figure has room for, and inches for each one more."""

STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.8,
    "text.color": INK,
    "text.parse_math": False,
}


@contextmanager
def in_any_script() -> Iterator[None]:
    """Draw text of any script: a letter that the font lacks is a box in the picture, and no warning for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s)Glyph .* missing from font", UserWarning)
        yield


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Run a drawing function under the house style and leave Matplotlib's own settings as they were."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        import matplotlib

        with matplotlib.rc_context(STYLE), in_any_script():
            return draw(*args, **kwargs)

    return drawn


def series_styles(labels: Sequence[str]) -> dict[str, tuple[str, Any, str]]:
    """Colour, dash and marker per label: by order where the label names one, else from a safe list.

    Labels of the same order have shades of one colour, and other dashes.
    """
    styles: dict[str, tuple[str, Any, str]] = {}
    used: dict[str, int] = {}
    others = 0
    for label in labels:
        named = re.search(r"\border (\d+)\b", label)
        order = int(named[1]) if named else 1 if re.match(r"FNO\b", label) else 0
        colour = ORDER_COLOURS.get(order)
        if colour is None:
            colour, others = OTHER_COLOURS[others % len(OTHER_COLOURS)], others + 1
        repeat = used[colour] = used.get(colour, -1) + 1
        styles[label] = (
            _shade(colour, SHADES[repeat % len(SHADES)]),
            DASHES[repeat % len(DASHES)],
            ORDER_MARKERS.get(order, "v"),
        )
    return styles


def _shade(colour: str, amount: float) -> str:
    """A colour "#rrggbb" mixed with white, or with black for a negative amount."""
    end, parts = 255 * (amount > 0), (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + abs(amount) * (end - part)):02x}" for part in parts)


def panels(rows: int, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    """A page-wide figure of rows x columns panels, each row `height` inches; axes in reading order."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(WIDTH, rows * height), layout=ConstrainedLayoutEngine(h_pad=0.09, w_pad=0.06))
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def draw_curve(
    axis: Axes,
    places: Iterable[float],
    means: Sequence[float],
    deviations: Sequence[float | None],
    styles: Mapping[str, tuple[str, Any, str]],
    label: str,
) -> np.ndarray:
    """A line with markers, and a band of one deviation where there are some; the means as they can be drawn."""
    x, mean = np.array([*places], dtype=float), positive(means)
    colour, dash, marker = styles[label]
    axis.plot(x, mean, color=colour, linestyle=dash, marker=marker, ms=5.5, label=label)
    if any(deviation is not None for deviation in deviations):
        std = np.array([deviation or 0.0 for deviation in deviations])
        axis.fill_between(x, np.maximum(mean - std, mean / 10), mean + std, color=colour, alpha=0.18, lw=0)
    return mean


def legend_below(figure: Figure, axis: Axes, others: Sequence[Any] = ()) -> None:
    """One legend for the whole figure, with as many columns as its longest entry leaves room for.

    `others` are handles with labels of their own, after those of the axis. Labels may begin with "_": Matplotlib, which
    would leave them out, is not asked which there are. Panels keep their height beside a legend of many rows.
    """
    drawn = [artist for artist in (*axis.lines, *axis.containers) if not _unnamed(artist)]
    handles = [*drawn, *others]
    labels = [str(handle.get_label()) for handle in handles]
    longest = max(map(len, labels), default=0)
    columns = max(1, min(3 if longest < 30 else 2 if longest < 50 else 1, len(labels)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
    figure.set_figheight(figure.get_figheight() + LEGEND_ROW * max(0, -(-len(labels) // columns) - LEGEND_ROWS))


def _unnamed(artist: Any) -> bool:
    """Whether the label of something drawn is Matplotlib's own, not one that was given."""
    return re.fullmatch(r"_(nolegend_|child\d+|container\d+)?", str(artist.get_label())) is not None


def log_ticks(axis: Axis) -> None:
    """Marks on a logarithmic axis as plain numbers: 1, 2, 5 per decade over a short range, else decades.

    Decades of which one would be written 1e-05 or 1e+06 are all powers of ten. A range so short that fewer than two of
    these lie in it has evenly spaced marks.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    subs = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
    marks = LogLocator(base=10, subs=subs, numticks=12)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = sum(low <= sub * 10.0**decade <= high for sub in subs for decade in decades)
    axis.set_major_locator(marks if inside > 1 else MaxNLocator(nbins=5, steps=[1, 2, 5, 10], min_n_ticks=3))
    axis.set_minor_locator(NullLocator())
    powers = len(subs) == 1 and (low <= 1e-5 or high >= 1e6)
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: f"$10^{{{round(math.log10(value))}}}$" if powers else f"{value:g}")
    )


def positive(values: Any) -> np.ndarray:
    """Values that a logarithmic axis can show; the others become gaps."""
    array = np.asarray(values, dtype=float)
    return np.where(np.isfinite(array) & (array > 0), array, np.nan)


ARROW = ((0, 1), (0.6, 0.2), (0.18, 0.2), (0.18, -1), (-0.18, -1), (-0.18, 0.2), (-0.6, 0.2), (0, 1))
"""The outline of a mark that points upwards."""

LEAVES, ENDS = "leaves the picture", "not finite from there on"
"""What the marks of `mark_leaving` mean."""

MARK: Any = {"linestyle": "none", "markersize": 11, "markeredgewidth": 0.8}


def mark_leaving(axis: Axes, x: Any, values: Any, colour: str) -> set[str]:
    """Mark where a curve leaves a logarithmic panel whose limits are set: `LEAVES`, `ENDS`, or nothing.

    An arrow stands on the edge that is crossed. A cross stands where the last value before one that is not finite is.
    """
    low, high = axis.get_ylim()
    curve, found = np.array([np.nan if value is None else value for value in values], dtype=float), set()
    seen = np.isfinite(curve) & (curve >= low) & (curve <= high)
    for index in range(len(curve)):
        if seen[index] or (index > 0 and not seen[index - 1]):
            continue
        before, here = max(index - 1, 0), curve[index]
        place, level, mark = x[before], curve[before] if index > 0 else low, "x"
        if np.isfinite(here):
            up = here > high
            place, level, mark = x[index], high if up else low, np.array(ARROW) * (1 if up else -1)
            if index > 0 and here > 0:
                way = np.log(level / curve[before]) / np.log(here / curve[before])
                place = x[before] + way * (x[index] - x[before])
        found.add(LEAVES if np.isfinite(here) else ENDS)
        axis.plot(place, level, color=colour, marker=mark, clip_on=False, zorder=5, **MARK)
    return found


def leaving_handles(found: set[str]) -> list[Any]:
    """What the marks that were found mean, for a legend."""
    from matplotlib.lines import Line2D

    marks: dict[str, Any] = {LEAVES: np.array(ARROW), ENDS: "x"}
    return [Line2D([], [], color=GREY, marker=marks[name], label=name, **MARK) for name in marks if name in found]


def expect_some(things: Any, name: str) -> None:
    if len(things) == 0:
        raise DataError(f"expected at least one {name} to draw, got none; run the stage that makes it first")
