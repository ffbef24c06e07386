"""Samples that a GPU solved beside the same ones solved on a CPU: results/checks/devices.json.

    SMALL="--set data.train=2 --set data.valid=2 --set data.test=4"
    hofno generate paper/airfoil $SMALL
    hofno generate paper/plasticity $SMALL
    hofno generate paper/plasticity $SMALL --set data.refine=2

on both machines, each into a store of its own (HOFNO_DATA), by this commit; then, on that without a GPU,

    python tools/device_checks.py NAME_OF_THE_GPU ITS_STORE STORE_OF_THE_CPU
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hofno import storage
from hofno.problems.kept_samples import KeptSamples, Sample
from hofno.train.state import device_name
from hofno.versions import versions

RECORD = Path(__file__).resolve().parent.parent / "results" / "checks" / "devices.json"
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
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    record = {
        "name": "devices",
        "title": "The same samples on a GPU and on a CPU",
        "commit": commit.stdout.strip(),
        "created": date.today().isoformat(),
        "device": f"{gpu} (Triton) and {device_name(torch.device('cpu'))} (compiled C)",
        "remark": "Largest relative L2 difference of a sample, and of a value, in the units of the solver. Flows are "
        "converged to 1e-6 of the first residual and kept as float32.",
        "rows": list(rows(Path(of_gpu), Path(of_cpu))),
        "versions": versions(),
    }
    storage.write_json(RECORD, record)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
