"""The table of `hofno bench study`, and what a reader of it must know."""

from __future__ import annotations

import statistics
from typing import Any

from hofno.bench.measure import digits, quartiles, show_table
from hofno.report import published

GIB, MIB = 2**30, 2**20
PUBLISHED = {"training": "", "prediction": "", "memory": " GB"}
"""Published costs and the units that they do not share with the column they stand in."""


def show_studies(results: list[dict[str, Any]], state: dict[str, Any]) -> None:
    """A table and notes for each study, and where the published values come from."""
    where, threads = state["device_name"], state["threads"]
    if state["device"] == "cpu":
        where += f", {threads} thread{'s' * (threads > 1)}"
    for result in results:
        headings, rows = study_rows(result)
        show_table(headings, rows, f"{result['title']}: medians on {where}")
        for note in notes(result, state["device"]):
            print(f"- {note}")
    if any(result["published"] for result in results):
        print(f"published: {published.source('efficiency')}")


def study_rows(result: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and a row for each network; below it, where there are any, its published values in the same columns."""
    unit, name = memory_unit([result])
    headings = ["network", "real parameters", "training, s an epoch", "prediction, s", f"peak memory, {name}"]
    rows: list[tuple[str, ...]] = []
    for member in result["members"]:
        by = member["relative"]
        cells = [member["label"], f"{member['parameters']['real']:,}{_times(by['parameters'])}"]
        if "left_out" in member:
            cells += [member["left_out"], "-", "-"]
        else:
            for field, scale in (("epoch_seconds", 1), ("predict_seconds", 1), ("peak_bytes", unit)):
                value = member[field]
                cells.append("-" if value is None else f"{digits(value / scale)}{_times(by[field])}")
        rows.append(tuple(cells))
        if found := result["published"].get(member["label"]):
            theirs = result["published"].get(result["reference"], {})
            rows.append((f"  {published.efficiency_device()}, published", "", *_published_cells(found, theirs)))
    return tuple(headings), rows


def memory_unit(results: list[dict[str, Any]]) -> tuple[int, str]:
    """Bytes of a unit in which peaks are told, and its name; large ones, and those beside published ones, in GiB."""
    peaks = [member.get("peak_bytes") or 0 for result in results for member in result["members"]]
    large = max(peaks) >= GIB or any(result["published"] for result in results)
    return (GIB, "GiB") if large else (MIB, "MiB")


def _published_cells(found: dict[str, float], reference: dict[str, float]) -> list[str]:
    """As printed, and relative to the published value of the reference."""
    return [
        f"{found[what]:g}{unit}{_times(found[what] / reference[what] if reference else None)}"
        for what, unit in PUBLISHED.items()
    ]


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f" ({ratio:.2f}x)"


def notes(result: dict[str, Any], device: str) -> list[str]:
    """What a reader of the table must know."""
    ways = {member["label"]: _way(member) for member in result["members"]}
    told = set(ways.values())
    found = [f"in brackets: relative to {result['reference']}; random numbers stand in for data"]
    found += list(told) if len(told) == 1 else [f"{label}: {way}" for label, way in ways.items()]
    if spreads := [_spread(rounds) for member in result["members"] for rounds in _rounds(member)]:
        found.append(f"rounds of one network differ by up to {max(spreads):.0%} between their quartiles")
    if device == "cuda":
        found.append("peak memory: what PyTorch allocated at most while training, one batch of data in it")
    else:
        found.append(
            "peak memory: growth of the high-water mark of a process of its own while training, libraries loaded "
            "before, one batch of data in it"
        )
    some = any(member.get("coarse") for member in result["members"])
    coarse = ", or with epochs on a coarser grid" if some else ""
    if some:
        found.append("training: an epoch on the whole grid; those of train.coarse_first on a coarser one cost less")
    for member in result["members"]:
        if member["also"]:
            found.append(
                f"{member['label']} stands for {', '.join(member['also'])} too, of another length or seed{coarse}"
            )
    return found


def _way(member: dict[str, Any]) -> str:
    graph = ", CUDA graph" if member["cuda_graph"] else ""
    return (
        f"training in {member['precision']}{graph}, {member['batches']} steps an epoch, batch {member['batch_size']}; "
        f"prediction of {member['test_samples']} sample{'s' * (member['test_samples'] > 1)} in fp32"
    )


def _rounds(member: dict[str, Any]) -> list[list[float]]:
    return [] if "left_out" in member else [member["step_rounds"], *member["predict_rounds"].values()]


def _spread(rounds: list[float]) -> float:
    low, high = quartiles(rounds)
    return (high - low) / statistics.median(rounds)
