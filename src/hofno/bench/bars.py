"""What the networks of studies cost, as grouped bars: training, prediction and memory, a group for each study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hofno.bench.curves import check_plot, save_figure
from hofno.bench.study_table import memory_unit
from hofno.report.drawing import GREY, legend_below, panels, series_styles, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUP = 0.84
"""Of the distance between two groups, what the bars of one take."""

NUMBER: Any = {"textcoords": "offset points", "ha": "center", "va": "bottom", "rotation": 90, "fontsize": 8}


def draw_studies(record: dict[str, Any], path: Path) -> None:
    """Write the bars of a record of `run_studies`."""
    check_plot(path)
    save_figure(bars(record), path)


@styled
def bars(record: dict[str, Any]) -> Figure:
    """Bars are what was measured; the number on each is relative to the reference of its study."""
    results = record["results"]
    labels = list(dict.fromkeys(member["label"] for result in results for member in result["members"]))
    unit, name = memory_unit(results)
    shown = {
        "epoch_seconds": (1, "training, s an epoch"),
        "predict_seconds": (1, "prediction of the test set, s"),
        "peak_bytes": (unit, f"peak memory, {name}"),
    }
    figure, axes = panels(1, len(shown), height=3.7)
    for axis, (field, (unit, title)) in zip(axes, shown.items(), strict=True):
        _panel(axis, results, labels, field, unit)
        axis.set(title=title, xlim=(-0.5, len(results) - 0.5))
        axis.set_xticks(range(len(results)), group_names(results))
        axis.grid(visible=False, axis="x")
        axis.tick_params(axis="x", length=0)
        axis.margins(y=0.25)
        axis.set_ylim(bottom=0)
    references = {result["reference"] for result in results}
    whom = references.pop() if len(references) == 1 else "the reference of each study"
    figure.suptitle(f"{record['device_name']}, torch {record['versions']['torch']}; on the bars: relative to {whom}")
    legend_below(figure, axes[0])
    return figure


def _panel(axis: Axes, results: list[dict[str, Any]], labels: list[str], field: str, unit: int) -> None:
    """A bar for each network of each study; where nothing is known, why."""
    styles = series_styles(labels)
    width = GROUP / len(labels)
    for index, label in enumerate(labels):
        shift = (index - (len(labels) - 1) / 2) * width
        found = [(group, m) for group, r in enumerate(results) for m in r["members"] if m["label"] == label]
        heights = [(member.get(field) or 0.0) / unit for _, member in found]
        places = [group + shift for group, _ in found]
        axis.bar(places, heights, 0.9 * width, color=styles[label][0], label=label)
        for place, height, (_, member) in zip(places, heights, found, strict=True):
            ratio = member["relative"][field]
            text = f"{ratio:.2f}x" if ratio is not None else member.get("left_out", "")
            axis.annotate(text, (place, height), (0, 3), color=GREY if ratio is None else None, **NUMBER)


def group_names(results: list[dict[str, Any]]) -> list[str]:
    """Studies by their problems, or by their own names where two have the same."""
    problems = [result["problem"] for result in results]
    named = problems if len(set(problems)) == len(problems) else [result["name"] for result in results]
    return [name.replace("_", " ") for name in named]
