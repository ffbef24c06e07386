"""The figure of mode mixing: order 1 above, order 2 below; spectra, which modes reach which, and all responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hofno.report.drawing import GREY, INK, ORDER_COLOURS, styled
from hofno.report.mixing import KEPT, REACHED, Mixing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (12.6, 8.5)
"""Inches: the page of a talk."""

BEFORE, BEYOND = "#d3dae2", "#f4f6f8"
KINDS = {0: "#2ea043", 1: "#d98200", 2: "#8e44ad"}
"""Colour of a pair, by how many of its two modes lie above the cut."""

NAMES = {0: "both modes kept", 1: "one of them above the cut", 2: "both above the cut"}
TITLES = {
    1: ("Order 1, the FNO: each kept mode by itself", r"$\hat v(k) \,=\, R(k)\,\hat u(k)$"),
    2: (
        "Order 2, HO-FNO: all pairs of modes that add up to a kept one",
        r"$\hat v(k) \,=\, R(k) \sum_{k_1+k_2=k}\, \hat u(k_1)\,\hat u(k_2)$",
    ),
}
NOTE = (
    "Measured: layers with R = 1, applied to the signal, to each wave and to each pair of waves. "
    "Numbers in squares: the output mode."
)
MINUS = "\N{MINUS SIGN}"
HEIGHT = 3.2
"""Of the input modes above the output modes in a graph, in halves of the way from one mode to the next."""


@styled
def mode_mixing(mixing: Mixing) -> Figure:
    """What spectral convolutions of order 1 and 2 do to the modes of a signal."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE)
    grid = figure.add_gridspec(
        2, 3, left=0.062, right=0.985, top=0.872, bottom=0.155, wspace=0.11, hspace=0.66, width_ratios=(1.0, 1.65, 1.0)
    )
    alone = {k: {(k, k): float(mixing.linear[k + mixing.top])} for k in range(KEPT)}
    for row, (order, given) in enumerate({1: alone, 2: mixing.contributions}.items()):
        spectrum, graph, matrix = (figure.add_subplot(grid[row, column]) for column in range(3))
        _spectrum(spectrum, mixing, given, order)
        if order == 1:
            _single_graph(graph, mixing)
            _matrix(matrix, mixing, _single_cells(mixing), ("input mode", "output mode"))
            matrix.set_title("Which mode a wave reaches")
        else:
            _pair_graph(graph, mixing)
            _matrix(matrix, mixing, _pair_cells(mixing), ("mode k₁ of the first factor", "mode k₂ of the second"))
            matrix.set_title("Which mode two waves reach")
        _row_title(figure, spectrum, order)
    _legend(figure)
    figure.set_label(_told(mixing))
    return figure


def _row_title(figure: Figure, axis: Axes, order: int) -> None:
    """Which layer a row is of, and its formula."""
    top = axis.get_position().y1 + 0.085
    words, formula = TITLES[order]
    figure.text(0.018, top, words, fontsize=14, fontweight="bold", color=ORDER_COLOURS[order], va="center")
    figure.text(0.985, top, formula, fontsize=14, color=INK, va="center", ha="right", parse_math=True)


def _spectrum(axis: Axes, mixing: Mixing, given: dict[int, dict[tuple[int, int], float]], order: int) -> None:
    """Coefficients before, pale, and after, as sums of what each pair of modes gives."""
    top, edge = mixing.top, 1.2 if order > 1 else 0.0
    axis.bar(range(top + 1), mixing.signal[top:], width=0.78, color=BEFORE)
    for k, terms in given.items():
        level = 0.0
        for (low, high), value in terms.items():
            colour = ORDER_COLOURS[1] if order == 1 else _kind_colour(low, high)
            axis.bar(k, value, bottom=level, width=0.6, color=colour, edgecolor="white", linewidth=edge, zorder=2.5)
            if order > 1:
                axis.text(
                    k, level + value / 2, _pair(low, high, k), color="white", fontsize=9, ha="center", va="center"
                )
            level += value
    axis.axvspan(KEPT - 0.5, top + 0.6, color=BEYOND, zorder=0)
    highest = 1.15 * float(np.max(mixing.quadratic))
    axis.text((KEPT + top) / 2, 0.95 * highest, "above the cut", color=GREY, fontsize=9, ha="center", va="center")
    axis.set(xlim=(-0.6, top + 0.6), ylim=(0, highest), xlabel="mode k", ylabel="coefficient")
    axis.set_title("Spectrum before and after")
    axis.set_xticks(range(top + 1))
    axis.grid(visible=False, axis="x")


def _single_graph(axis: Axes, mixing: Mixing) -> None:
    """Arrows from each input mode to the output modes that answer to it; what reaches none ends at the cut."""
    top = mixing.top
    _frame(axis, top)
    for j in range(top + 1):
        reached = [k for k in range(top + 1) if abs(mixing.single[k + top, j + top]) > REACHED]
        for k in reached:
            _arrow(axis, (2 * j, HEIGHT), (2 * k, 0.0), ORDER_COLOURS[1])
        if not reached:
            axis.plot([2 * j, 2 * j], [HEIGHT, HEIGHT / 2], color=GREY, linewidth=1.8, zorder=1)
            axis.plot(2 * j, HEIGHT / 2, marker="x", color=GREY, ms=9, mew=2.2)
            axis.text(2 * j + 0.3, HEIGHT / 2, "lost", color=GREY, fontsize=9.5, va="center")
    _modes(axis, top)
    axis.set_title("Which modes reach which")


def _pair_graph(axis: Axes, mixing: Mixing) -> None:
    """Lines from two modes to their product, and an arrow from there to the output mode that it reaches."""
    top = mixing.top
    _frame(axis, top)
    for k, terms in mixing.contributions.items():
        for low, high in terms:
            place, colour = (low + high, 0.62 * HEIGHT), _kind_colour(low, high)
            for j in sorted({low, high}):
                axis.plot([2 * j, place[0]], [HEIGHT, place[1]], color=colour, linewidth=1.8, zorder=1)
            _arrow(axis, place, (2 * k, 0.0), colour, bend=0.008)
            axis.text(
                *place,
                _pair(low, high, k),
                color="white",
                fontsize=9,
                ha="center",
                va="center",
                zorder=4,
                bbox={"boxstyle": "round,pad=0.32", "facecolor": colour, "edgecolor": "white", "linewidth": 1.2},
            )
    _modes(axis, top)
    axis.set_title("Which pairs reach which mode")


def _frame(axis: Axes, top: int) -> None:
    """An empty panel with the modes side by side and those above the cut shaded."""
    axis.set(xlim=(-1.35, 2 * top + 0.9), ylim=(-0.5, HEIGHT + 0.5))
    axis.axvspan(2 * KEPT - 1, 2 * top + 0.9, color=BEYOND, zorder=0)
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_visible(False)
    for level, name in ((HEIGHT, "input"), (0.0, "output")):
        axis.text(-1.3, level, name, color=INK, fontsize=10, va="center", ha="left")


def _modes(axis: Axes, top: int) -> None:
    """Circles of the input modes and, below, of the output modes; those that are cut off are empty."""
    for j in range(top + 1):
        look: Any = {"boxstyle": "circle,pad=0.32", "linewidth": 1.4}
        kept: Any = {"facecolor": INK, "edgecolor": "white"}
        cut: Any = {"facecolor": "white", "edgecolor": GREY}
        above = j >= KEPT
        shown: Any = {"fontsize": 11, "ha": "center", "va": "center", "zorder": 5}
        axis.text(2 * j, HEIGHT, str(j), color=INK if above else "white", bbox=look | (cut if above else kept), **shown)
        ends = cut | {"linestyle": (0, (2, 1.5))} if above else kept
        axis.text(2 * j, 0.0, str(j), color=GREY if above else "white", bbox=look | ends, **shown)


def _arrow(axis: Axes, begin: tuple[float, float], end: tuple[float, float], colour: str, bend: float = 0.0) -> None:
    axis.annotate(
        "",
        end,
        begin,
        arrowprops={
            "arrowstyle": "-|>,head_length=0.55,head_width=0.28",
            "color": colour,
            "linewidth": 1.8,
            "shrinkA": 9.0,
            "shrinkB": 13.0,
            "connectionstyle": f"arc3,rad={bend * (end[0] - begin[0]):.3f}",
        },
        zorder=1.5,
    )


def _single_cells(mixing: Mixing) -> dict[tuple[int, int], tuple[str, str]]:
    """(j, k) -> colour and text, where output mode k answers to input mode j."""
    found = np.argwhere(np.abs(mixing.single) > REACHED) - mixing.top
    return {(int(j), int(k)): (ORDER_COLOURS[1], _signed(int(k))) for k, j in found}


def _pair_cells(mixing: Mixing) -> dict[tuple[int, int], tuple[str, str]]:
    """(j, l) -> colour and the output mode that this pair reaches."""
    found = np.argwhere(np.abs(mixing.pairs) > REACHED) - mixing.top
    return {(int(j), int(m)): (_kind_colour(abs(int(j)), abs(int(m))), _signed(int(k))) for k, j, m in found}


def _matrix(axis: Axes, mixing: Mixing, cells: dict[tuple[int, int], tuple[str, str]], names: tuple[str, str]) -> None:
    """A square for each two modes; filled ones name the output mode that is reached."""
    from matplotlib.patches import Rectangle

    for j in mixing.modes:
        for m in mixing.modes:
            colour, text = cells.get((j, m), (BEYOND, ""))
            axis.add_patch(Rectangle((j - 0.46, m - 0.46), 0.92, 0.92, facecolor=colour, edgecolor="none"))
            axis.text(j, m, text, color="white", fontsize=9, fontweight="bold", ha="center", va="center")
    inner = KEPT - 0.5
    axis.add_patch(
        Rectangle(
            (-inner, -inner), 2 * inner, 2 * inner, fill=False, edgecolor=INK, linestyle=(0, (3, 2)), linewidth=1.3
        )
    )
    reach = mixing.top + 0.55
    axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel=names[0], ylabel=names[1])
    axis.set_xticks(mixing.modes, [_signed(k) for k in mixing.modes])
    axis.set_yticks(mixing.modes, [_signed(k) for k in mixing.modes])
    axis.tick_params(length=0)
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=BEFORE, label="before"),
        Patch(facecolor=ORDER_COLOURS[1], label="a mode by itself"),
        *(Patch(facecolor=colour, label=NAMES[count]) for count, colour in KINDS.items()),
        Line2D([], [], color=INK, linestyle=(0, (3, 2)), linewidth=1.3, label=f"kept modes, |k| < {KEPT}"),
    ]
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), fontsize=10, bbox_to_anchor=(0.5, 0.036))
    figure.text(0.5, 0.022, NOTE, color=GREY, fontsize=9, ha="center", va="center")


def _kind_colour(low: int, high: int) -> str:
    return KINDS[(low >= KEPT) + (high >= KEPT)]


def _pair(low: int, high: int, k: int) -> str:
    """How two modes make mode k: as their sum or their difference."""
    return f"{low} + {high}" if low + high == k else f"{high} {MINUS} {low}"


def _signed(k: int) -> str:
    return str(k) if k >= 0 else f"{MINUS}{-k}"


def _told(mixing: Mixing) -> str:
    """The figure in words."""
    reached = "; ".join(
        f"mode {k} from {', '.join(_pair(low, high, k) for low, high in terms)}"
        for k, terms in mixing.contributions.items()
    )
    return f"Order 1 keeps modes 0 to {KEPT - 1} as they are and loses the others. Order 2 fills {reached}."
