"""The table of `hofno bench peers`, and what a reader of it must know."""

from __future__ import annotations

from typing import Any

from hofno.bench.measure import digits, milliseconds, show_table
from hofno.bench.plain import ModelShape

PARTS = {"forward": "forward, ms", "step": "training step, ms", "peak": "peak memory, MiB"}
MIB = 2**20


def notes(shape: ModelShape, step_limit: float, device: str) -> list[str]:
    """What a reader of the table must know."""
    found = [
        "equal work: the spectral convolution of neuraloperator and ours with its weights are the same map; its block "
        "has a 1 x 1 map beside the convolution where ours has one before it, three gelu to our one, a gate on its "
        "skip, no norm, and one hidden layer more in the projection",
        "AdamW is fused for every real parameter; the complex ones of neuraloperator take the default one",
        f"> {step_limit:g} s: left out, since a training step would take longer than that",
    ]
    if device == "cuda":
        found.append("peak memory: what PyTorch allocated at most for one network; products with TF32 inputs for all")
    else:
        found.append("peak memory: growth of the high-water mark of a process of its own, libraries loaded before")
    if shape.domain_padding:
        found.append("no domain padding: neuraloperator pads the whole network, ours only inside the convolution")
    return found


def table_rows(result: dict[str, Any], sweep: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    rivals = [key for key, subject in result["subjects"].items() if subject["rival"]]
    for case in (case for case in result["cases"] if sweep in case["sweeps"]):
        for part, heading in PARTS.items():
            cells = [_cell(case, key, part) for key in result["subjects"]]
            shares = [_ratio(case["ratios"].get(key, {}).get(part)) for key in rivals]
            rows.append((f"{case['points']} x {case['points']}", str(case["batch"]), heading, *cells, *shares))
    return rows


def _cell(case: dict[str, Any], key: str, part: str) -> str:
    if key in case["left_out"]:
        return case["left_out"][key]
    found = case["subjects"][key]
    if part != "peak":
        return milliseconds(found[f"{part}_seconds"])
    return "-" if found["peak_bytes"] is None else digits(found["peak_bytes"] / MIB)


def _ratio(found: list[float] | None) -> str:
    if found is None:
        return "-"
    return f"{found[0]:.2f}x" + (f" ({found[1]:.2f}..{found[2]:.2f})" if len(found) == 3 else "")


def show_result(name: str, result: dict[str, Any], state: dict[str, Any]) -> None:
    found = result["subjects"]
    labels = [subject["label"] for subject in found.values()]
    against = [f"{s['label'].split(',')[0]} / {found[s['rival']]['label']}" for s in found.values() if s["rival"]]
    headings = ("grid", "batch", "what", *labels, *against)
    for sweep in ("resolution", "batch"):
        title = f"{name}, over {sweep}: medians on {state['device']}, {state['threads']} threads, {state['products']}"
        show_table(headings, table_rows(result, sweep), title)
    sizes = "; ".join(f"{subject['label']}: {subject['real_parameters']:,}" for subject in found.values())
    convolution = max((c["parity"].get("convolution", 0.0) for c in result["cases"]), default=0.0)
    print(f"real parameters: {sizes}")
    print(
        f"parity: plain form {result['output_error']:.0e} in the output, {result['gradient_error']:.0e} in the "
        f"gradients; convolution of neuraloperator {convolution:.0e}"
    )
    for note in result["notes"]:
        print(f"- {note}")
