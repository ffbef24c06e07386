"""Samples that a GPU solved beside the same ones solved on a CPU: results/checks/devices.json.

    SMALL="--set data.train=2 --set data.valid=2 --set data.test=4"
    hofno generate paper/airfoil $SMALL
    hofno generate paper/plasticity $SMALL
    hofno generate paper/plasticity $SMALL --set data.refine=2

on both machines, each into a store of its own (HOFNO_DATA), by this commit; then, on that without a GPU,

    python tools/device_checks.py NAME_OF_THE_GPU ITS_STORE STORE_OF_THE_CPU
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from records import write_check

from hofno import storage
from hofno.problems.kept_samples import KeptSamples, Sample
from hofno.train.state import device_name

FIELDS = {"airfoil": "fields", "plasticity": "frames"}
TOLD = ("problem", "refine", "coarsen", "mach", "tolerance", "seed")


def rows(one: Path, other: Path) -> Iterator[dict[str, Any]]:
    for folder in sorted(one.glob("*-samples-*")):
        parts = [storage.read_manifest(part)["meta"] for part in sorted(folder.glob("part-*"))]
        wanted: list[Sample] = [(split, number) for part in parts for split, number in part["samples"]]
        solution, key = parts[0]["solution"], FIELDS[parts[0]["solution"]["problem"]]
        a, b = (field(store / folder.name, solution, wanted, key) for store in (one, other))
        errors = np.linalg.norm((a - b).reshape(len(a), -1), axis=1) / np.linalg.norm(b.reshape(len(b), -1), axis=1)
        settings = {name: solution[name] for name in TOLD if name in solution}
        yield {
            "problem": solution["problem"],
            "settings": settings,
            "samples": len(wanted),
            "largest_rel_l2": float(errors.max()),
            "largest_difference": float(np.abs(a - b).max()),
        }


def field(folder: Path, solution: dict[str, Any], wanted: list[Sample], key: str) -> np.ndarray:
    kept = KeptSamples(folder, solution)
    if kept.missing(wanted):
        raise SystemExit(f"{folder} lacks samples that the other store has")
    found: dict[int, np.ndarray] = {}
    for places, arrays in kept.read(wanted):
        found |= dict(zip(places, arrays[key].astype(np.float64), strict=True))
    return np.stack([found[place] for place in range(len(wanted))])


def main(gpu: str, of_gpu: str, of_cpu: str) -> None:
    part = next(Path(of_gpu).glob("*-samples-*/part-*"))
    write_check(
        "devices",
        "The same samples on a GPU and on a CPU",
        f"{gpu} (Triton) and {device_name(torch.device('cpu'))} (compiled C)",
        "Largest relative L2 difference of a sample, and of a value, in the units of the solver. Flows are "
        "converged to 1e-6 of the first residual and kept as float32.",
        versions_gpu=storage.read_manifest(part)["meta"]["versions"],
        rows=list(rows(Path(of_gpu), Path(of_cpu))),
    )


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
