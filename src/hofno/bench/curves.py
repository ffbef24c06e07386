"""How cost grows: time and memory against points and against batch, every subject a line, both axes logarithmic."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hofno.errors import HofnoError
from hofno.report.drawing import legend_below, log_ticks, panels, positive, series_styles, styled
from hofno.storage import check_writable, write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png", ".pdf")
ROWS = {"forward": ("forward_seconds", 1e3, "forward, ms"), "step": ("step_seconds", 1e3, "training step, ms")}
MEMORY = ("peak_bytes", 2**-20, "peak memory, MiB")


def check_plot(path: Path) -> None:
    """Refuse a file that cannot be drawn or written, before anything is measured."""
    if path.suffix.lower() not in FORMATS:
        raise HofnoError(f"expected a plot ending in one of {', '.join(FORMATS)}; got {path}; change its ending")
    check_writable(path)


def draw_peers(record: dict[str, Any], path: Path) -> list[Path]:
    """Write the curves of every network in a record of `run_peers`; of several, each to a file with its name added."""
    check_plot(path)
    written: list[Path] = []
    for name, result in record["results"].items():
        target = path if len(record["results"]) == 1 else path.with_stem(f"{path.stem}-{name}")
        save_figure(growth(name, result, record), target)
        written.append(target)
    return written


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the ending of the file names."""
    buffer = BytesIO()
    figure.savefig(buffer, format=path.suffix[1:].lower(), dpi=150, facecolor="white")
    write_bytes(path, buffer.getvalue())


@styled
def growth(name: str, result: dict[str, Any], record: dict[str, Any]) -> Figure:
    """Forward, training step and, where it is known, peak memory, by points of the grid (left) and batch (right)."""
    known = any(found["peak_bytes"] for case in result["cases"] for found in case["subjects"].values())
    rows = [*ROWS.values(), *([MEMORY] if known else [])]
    figure, axes = panels(len(rows), 2, height=2.7)
    styles = series_styles([subject["label"] for subject in result["subjects"].values()])
    for index, axis in enumerate(axes):
        field, unit, label = rows[index // 2]
        sweep = ("resolution", "batch")[index % 2]
        cases = [case for case in result["cases"] if sweep in case["sweeps"]]
        for key, subject in result["subjects"].items():
            run = [case for case in cases if case["subjects"].get(key, {}).get(field) is not None]
            x = [case["points"] ** 2 if sweep == "resolution" else case["batch"] for case in run]
            y = [unit * case["subjects"][key][field] for case in run]
            colour, dash, marker = styles[subject["label"]]
            axis.plot(x, positive(y), color=colour, linestyle=dash, marker=marker, ms=5, label=subject["label"])
        axis.set(xscale="log", yscale="log", ylabel=label if index % 2 == 0 else "")
        _mark(axis, cases, sweep, last=index >= len(axes) - 2)
        log_ticks(axis.yaxis)
    for axis, title in zip(axes, _titles(result["cases"]), strict=False):
        axis.set_title(title)
    figure.suptitle(f"{name} on {record['device_name']}, {record['products']}, torch {record['versions']['torch']}")
    legend_below(figure, axes[0])
    return figure


def _mark(axis: Any, cases: list[dict[str, Any]], sweep: str, last: bool) -> None:
    """Marks where something was measured, the grid by its side."""
    from matplotlib.ticker import NullLocator

    if sweep == "resolution":
        at = {case["points"] ** 2: f"{case['points']}²" for case in cases}
    else:
        at = {case["batch"]: str(case["batch"]) for case in cases}
    axis.set_xticks(list(at), list(at.values()))
    axis.xaxis.set_minor_locator(NullLocator())
    if last:
        axis.set_xlabel("points of the grid" if sweep == "resolution" else "samples in a batch")


def _titles(cases: list[dict[str, Any]]) -> tuple[str, str]:
    batch = next((case["batch"] for case in cases if "resolution" in case["sweeps"]), "-")
    points = next((case["points"] for case in cases if "batch" in case["sweeps"]), "-")
    return f"batch {batch}", f"{points} x {points} points"
