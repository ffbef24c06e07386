"""Write the tables of README.md and results/README.md from the files in results/.

python tools/tables.py            write them
python tools/tables.py --check    say whether they are up to date
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from hofno.report import published, tables
from hofno.report.digits import number

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
DEGREES = (1, 2, 3, 5)


def read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def count_of(degree: int) -> tuple[int, int]:
    """Runs measured and runs of the whole table."""
    results = read(f"paper/poisson_p{degree}")
    sweep = results["spec"]["sweep"]
    return len(results["runs"]), len(sweep["model.order"]) * len(sweep["model.depth"]) * len(sweep["seed"])


def one_layer() -> str:
    """One layer of matched order: published, ours under the published protocol, ours with our recipe."""
    header = ["degree p", "published", "ours, published protocol", "ours, our recipe", "published FNO, 16 layers"]
    rows = []
    for degree in (2, 3, 5):
        theirs = published.poisson(degree)
        ours = tables.poisson_cells(read(f"paper/poisson_p{degree}"))[(degree, 1)]["rel_l2"]
        recipe = tables.summarise(read(f"best/poisson_p{degree}")["runs"])[0].metrics["rel_l2"]
        cells = [theirs[(degree, 1)]["rel_l2"], ours, (recipe.mean, recipe.std), theirs[(1, 16)]["rel_l2"]]
        rows.append([str(degree), *(f"{number(mean)} ± {number(std or 0.0)}" for mean, std in cells)])
    return tables.markdown(header, rows)


def measured_so_far() -> str:
    parts = [f"p = {degree}: {done} of {total}" for degree in DEGREES for done, total in [count_of(degree)]]
    return "Runs of the four published tables measured so far: " + "; ".join(parts) + ".\n"


def conditions() -> str:
    results = read("paper/poisson_p2")
    versions = ", ".join(f"{name} {value}" for name, value in results["versions"].items())
    return f"Measured on {results['device']} ({versions}), three seeds, {precisions()}; data generated here.\n"


def precisions() -> str:
    """Which depths of the published tables ran in which precision."""
    depths: dict[str, set[int]] = {}
    for degree in DEGREES:
        results = read(f"paper/poisson_p{degree}")
        for run in results["runs"]:
            own = run.get("settings", {}).get("train.precision", results["spec"]["train"]["precision"])
            depths.setdefault(own, set()).add(run["cell"]["model.depth"])
    return ", ".join(
        f"depths {', '.join(map(str, sorted(found)))} with precision {name}" for name, found in sorted(depths.items())
    )


def all_tables() -> str:
    """results/README.md."""
    lines = ["# Measured results", "", "Made by `python tools/tables.py` from the JSON files beside it.", ""]
    lines += [conditions(), measured_so_far(), "## One layer of matched order, relative L2", "", one_layer()]
    for degree in DEGREES:
        lines += [f"## Published protocol, p = {degree}", ""]
        lines += [tables.poisson_depth_table(read(f"paper/poisson_p{degree}"), degree), ""]
    lines += [(RESULTS / "notes.md").read_text(encoding="utf-8")]
    lines += ["## Speed on two CPU threads against the plain rfft2 form of the same network", "", speed()]
    made = read("bench/generation_h200")
    rows = [[row["problem"], row["what"], number(row["seconds"])] for row in made["rows"]]
    lines += [f"## {made['title']}", "", tables.markdown(["problem", "what", "seconds"], rows)]
    for degree in (3, 5):
        lines += [f"## Recipes tried on validation data, p = {degree}", ""]
        lines += [recipes(f"poisson_p{degree}", "seconds (four runs sharing the GPU)")]
    lines += ["## Navier-Stokes, viscosity 1e-5, ten frames to ten", "", navier_stokes()]
    small = read("recipes/navier_stokes_small")
    lines += ["## What symmetry brings, on validation data", "", f"{small['title']}; order 2, one seed, on a CPU.", ""]
    lines += [recipes("navier_stokes_small", "seconds (a busy machine)")]
    return "\n".join(lines).rstrip() + "\n"


def navier_stokes() -> str:
    """Recipes within a minute, and what precision a prediction should have."""
    found = read("checks/navier_stokes_precision_of_prediction")["rows"]
    rows = [[str(seed), *(number(row["test_rel_l2"]) for row in found if row["seed"] == seed)] for seed in (0, 1)]
    asked = [row["precision"] for row in found if row["seed"] == 0]
    theirs = published.main_table("navier_stokes")["HO-FNO"]
    return "\n".join(
        (
            f"{read('recipes/navier_stokes')['title']}. The published network has {theirs:g} after 500 epochs.",
            "",
            recipes("navier_stokes", "seconds"),
            "Test errors of the first of them, two seeds, by the precision of prediction. A network that is trained in "
            "mixed precision makes up for its rounding, and is worse without it; hence `train.finish`, which is not "
            "measured at this size yet. They were trained two at a time, in 128 s each, while tensor cores cut "
            "operands off to TF32; now operands are rounded.",
            "",
            tables.markdown(["seed", *asked], rows),
            finished(),
        )
    )


def finished() -> str:
    """What `train.finish` does, in small."""
    rows = [
        [row["trained_in"], f"{row['finish']:g}", number(row["rel_l2_fp32"]), number(row["rel_l2_mixed"])]
        for row in read("checks/navier_stokes_finish_small")["rows"]
    ]
    table = tables.markdown(["trained in", "finish", "test, predicted in fp32", "in mixed"], rows)
    return f"The same in small, on a CPU, one seed: `specs/quick/navier_stokes.toml` with bfloat16.\n\n{table}"


def speed() -> str:
    """The bench on the CPU: median seconds of ours and the speed-up with its quartiles."""
    rows = []
    for shape, found in read("bench/cpu_two_threads")["results"].items():
        for what in ("forward", "step", "forward_after_training"):
            part = found[what]
            low, high = part["speed_up_spread"]
            rows.append(
                [
                    shape,
                    what.replace("_", " "),
                    number(part["ours_seconds"]),
                    f"{part['speed_up']:.2f} ({low:.2f} to {high:.2f})",
                ]
            )
    return tables.markdown(["shape", "what", "ours, s", "speed-up (quartiles)"], rows)


def recipes(name: str, seconds: str) -> str:
    runs = sorted(read(f"recipes/{name}")["runs"], key=lambda run: run["valid_rel_l2"])
    rows = [[run["label"], number(run["valid_rel_l2"]), number(run["seconds"])] for run in runs]
    return tables.markdown(["recipe", "validation rel. L2", seconds], rows)


def main() -> int:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, text in {"one-layer": one_layer(), "measured": measured_so_far(), "conditions": conditions()}.items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        readme = marked.sub(lambda match, text=text: match[1] + text + match[2], readme)
    wanted = {ROOT / "README.md": readme, RESULTS / "README.md": all_tables()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not up to date; run: python tools/tables.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
