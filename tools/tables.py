"""Write the tables of README.md, docs/paper.md and results/README.md from the files in results/.

python tools/tables.py            write them
python tools/tables.py --check    say whether they are up to date
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from hofno.report import published, tables
from hofno.report.digits import number, plus_minus
from hofno.report.resolution import curves_of, records_of, resolution_rows

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
DEGREES = (1, 2, 3, 5)
ALL_ABOVE = 0.185  # chance that three draws of a normal law all exceed the mean of three others


def read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def notes(name: str) -> str:
    """What is to be said about numbers and does not follow from them."""
    return (RESULTS / "notes" / f"{name}.md").read_text(encoding="utf-8")


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
    lines += ["## Our recipes on the main table's problems, relative L2", "", records()]
    lines += ["## Published protocol on the main table's problems, relative L2", "", protocol()]
    lines += ["## Published protocol on Navier-Stokes, one frame to the next", "", one_frame()]
    lines += ["## Darcy on other grids than that of training, relative L2", "", on_other_grids()]
    for degree in DEGREES:
        lines += [f"## Published protocol, p = {degree}", ""]
        lines += [tables.poisson_depth_table(read(f"paper/poisson_p{degree}"), degree), ""]
    lines += [notes("poisson"), against_published()]
    lines += ["## Speed on two CPU threads against the plain rfft2 form of the same network", "", speed()]
    engine = read("bench/engine_h200")
    lines += [f"## Training step of the published Navier-Stokes network on {engine['device_name']}", "", steps(engine)]
    hidden = read("checks/hidden_activations")
    lines += [f"## {hidden['title']}", "", f"{hidden['device']}, commit {hidden['commit']}. {hidden['remark']}", ""]
    lines += [hidden_activations(hidden["rows"])]
    for faster in map(read, ("checks/step_times", "checks/step_times_small")):
        commits = f"commits {faster['commit_before']} and {faster['commit']}"
        lines += [f"## {faster['title']}", "", f"{faster['device']}, {commits}. {faster['remark']}", ""]
        lines += [step_times(faster["rows"])]
    spread = read("checks/spread")
    lines += [f"## {spread['title']}", "", f"{spread['remark']} {spread['spec']}.", "", bounds(spread["rows"])]
    remarks = " ".join(results["remark"] for results in map(read, COARSE_FIRST) if results.get("remark"))
    lines += ["## Most epochs on a coarser grid, relative L2", "", f"In small. {remarks}", "", coarse_first()]
    coarse = read("checks/coarse_first_steps")
    lines += [f"## {coarse['title']}", "", f"{coarse['device']}, commit {coarse['commit']}. {coarse['remark']}", ""]
    rows = [[row["spec"], row["points"], row["modes"], number(row["milliseconds"])] for row in coarse["rows"]]
    lines += [tables.markdown(["spec", "points", "modes", "ms"], rows)]
    first = read("recipes/steady")
    lines += [f"## {first['title']}", "", "Validation errors; nothing of this has seen test data.", ""]
    lines += [recipes("steady", "seconds (four runs sharing the GPU)", ranked=False)]
    mesh = read("checks/plasticity_mesh")
    lines += [f"## {mesh['title']}", "", f"{mesh['device']}, commit {mesh['commit']}. {mesh['remark']}", ""]
    halvings = ("half_to_1", "1_to_2", "2_to_4")
    rows = [[row["die"], number(row["curvature"]), *(f"{row[way]:.1%}" for way in halvings)] for row in mesh["rows"]]
    lines += [tables.markdown(["die", "curvature, 1/mm", "refine 1/2 to 1", "1 to 2", "2 to 4"], rows)]
    made = read("bench/generation_h200")
    rows = [[row["problem"], row["what"], number(row["seconds"])] for row in made["rows"]]
    lines += [f"## {made['title']}", "", tables.markdown(["problem", "what", "seconds"], rows)]
    made = read("bench/generation_cpu")
    lines += [f"## {made['title']}", "", f"{made['device']}, commit {made['commit']}. {made['remark']}", ""]
    rows = [[row["problem"], row["what"], number(row["seconds"])] for row in made["rows"]]
    lines += [tables.markdown(["problem", "what", "seconds"], rows), ""]
    ways = ("ns_per_element", "ns_per_element_plain")
    rows = [[" x ".join(map(str, row["cells"])), *(number(row[way]) for way in ways)] for row in made["steps"]]
    lines += [tables.markdown(["elements of a block", "ns, compiled", "ns, plain PyTorch"], rows), ""]
    ways = ("seconds", "seconds_plain")
    rows = [[" x ".join(map(str, row["nodes"])), *(number(row[way]) for way in ways)] for row in made["flows"]]
    lines += [tables.markdown(["nodes of a flow", "s, compiled", "s, plain PyTorch"], rows)]
    both = read("checks/devices")
    lines += [f"## {both['title']}", "", f"{both['device']}, commit {both['commit']}. {both['remark']}", ""]
    rows = [
        [
            row["problem"] + (f", refine={row['settings']['refine']}" if "refine" in row["settings"] else ""),
            str(row["samples"]),
            *(number(row[way], 2) for way in ("largest_rel_l2", "largest_difference")),
        ]
        for row in both["rows"]
    ]
    lines += [tables.markdown(["problem", "samples", "relative L2", "of a value"], rows), ""]
    foils = read("checks/foils")
    lines += [f"## {foils['title']}", "", f"{foils['device']}, commit {foils['commit']}. {foils['remark']}", ""]
    rows = [
        [" x ".join(map(str, row["nodes"])), *(number(row[way]) for way in ("lift", "of_thin_foil"))]
        for row in foils["lift"]
    ]
    lines += [tables.markdown(["nodes", "lift", "of that of a thin foil"], rows), ""]
    strange = foils["strangeness"]
    rows = [[row["section"], number(row["strangeness"]), number(row["error"])] for row in strange["rows"]]
    rows += [["test foils, largest", number(strange["test"]["largest"]), f"{number(strange['bound'])} (bound of 90 %)"]]
    lines += [tables.markdown(["section", "strangeness", "error"], rows)]
    for degree in (3, 5):
        lines += [f"## Recipes tried on validation data, p = {degree}", ""]
        lines += [recipes(f"poisson_p{degree}", "seconds (four runs sharing the GPU)")]
    lines += ["## Navier-Stokes, viscosity 1e-5, ten frames to ten", "", navier_stokes()]
    small = read("recipes/navier_stokes_small")
    lines += ["## What symmetry brings, on validation data", "", f"{small['title']}; order 2, one seed, on a CPU.", ""]
    lines += [recipes("navier_stokes_small", "seconds (a busy machine)")]
    for study in ("darcy_small", "elasticity_small", "airfoil_small", "plasticity_inputs", "plasticity_small"):
        small = read(f"recipes/{study}")
        told = ". ".join([small["title"], *([small["remark"]] if "remark" in small else [])]).removesuffix(".")
        first = "What the network is given on" if study == "plasticity_inputs" else "What helps on"
        lines += [f"## {first} {small['problem'].capitalize()}, on validation data", "", f"{told}.", ""]
        lines += [generalisation(small["runs"])]
    return "\n".join(lines).rstrip() + "\n"


def bounds(rows: list[dict[str, Any]]) -> str:
    """Error bounds by validation samples: one for all predictions, and one for each."""
    header = ["predictions", "error", "bound", "within", "bounds of each", "within", "correlation"]
    cells = []
    for row in rows:
        bound, each = row["bound"], row["bound"]["each"]
        own = f"{number(each['lowest'])} to {number(each['highest'])}"
        shares = [f"{share:.0%}" for share in (bound["kept"], each["kept"])]
        line = [row["what"], number(row["rel_l2"]), number(bound["rel_l2"]), shares[0], own, shares[1]]
        cells.append([*line, f"{each['correlation']:.2f}"])
    return tables.markdown(header, cells)


def against_published() -> str:
    """Cells whose order is at least the degree, together: how far measured errors are from the published ones.

    Order 1 is left out: the published FNO is another network.
    """
    cells = []
    for degree in DEGREES:
        theirs = published.poisson(degree)
        for found in tables.grouped(read(f"paper/poisson_p{degree}")["runs"]):
            order, depth = found[0]["cell"]["model.order"], found[0]["cell"]["model.depth"]
            if order >= max(2, degree):
                mean, spread = theirs[(order, depth)]["mse"]
                cells.append(([run["metrics"]["mse_standardised"] / mean for run in found], spread / mean))
    logs = [math.log(statistics.geometric_mean(ratios)) for ratios, _ in cells]
    middle, error = math.exp(statistics.mean(logs)), statistics.stdev(logs) / math.sqrt(len(logs))
    ours = statistics.median(statistics.stdev(math.log(r) for r in ratios) for ratios, _ in cells)
    published_spread = statistics.median(spread for _, spread in cells)
    above, below = sum(min(ratios) > 1 for ratios, _ in cells), sum(max(ratios) < 1 for ratios, _ in cells)
    return (
        f"The {len(cells)} cells whose order is at least p and 2 together: measured over published MSE is {middle:.2f} "
        f"(geometric mean, times or over {math.exp(error):.2f}). All three seeds lie above the published mean in "
        f"{above} cells and below it in {below}; of equal distributions one expects {ALL_ABOVE * len(cells):.0f} each. "
        f"Seeds differ by {ours:.2f} of the value here and by {published_spread:.2f} in the published tables "
        "(medians), so that single cells leave the published mean plus one spread both ways.\n"
    )


def records() -> str:
    """Our recipes on the test sets of the main table: published networks and ours, and under which conditions."""
    return records_table() + "\n" + "".join(records_remarks())


def records_table() -> str:
    """The numbers, and what they are of."""
    header = ["problem", "published HO-FNO", "best published", "ours", *MEASURED]
    rows = []
    for problem, results in of_main_table("best"):
        theirs = published.main_table(problem)
        best = next(iter(theirs))
        published_ones = [f"{theirs['HO-FNO']:g}", f"{theirs[best]:g} ({best})"]
        rows += [[called(problem), *published_ones, *row] for row in measured_rows(results)]
    told = (
        "Errors are of float32 predictions, mean and spread over seeds, on data of our own solvers; published ones are "
        "on the published files. Seconds are those of training one network, data in memory.\n"
    )
    return f"{tables.markdown(header, rows)}\n{told}"


def records_remarks() -> list[str]:
    """What is to be known of each row."""
    return [line for problem, results in of_main_table("best") for line in remark(problem, results)]


def protocol() -> str:
    """The published networks, trained as published, on the test sets of the main table."""
    rows, remarks = [], []
    for problem, results in of_main_table("paper"):
        theirs = published.main_table(problem)
        for row in measured_rows(results):
            name = "FNO with modern backbone" if row[0].split(",")[0] == "FNO" else "HO-FNO"
            rows.append([called(problem), row[0], f"{theirs[name]:g}", *row[1:]])
        remarks += remark(problem, results)
    return f"{tables.markdown(['problem', 'network', 'published', *MEASURED], rows)}\n" + "".join(remarks)


def orders() -> str:
    """FNO and HO-FNO of order 2 by the published protocols, side by side, published values before measured ones."""
    header = ["problem", "FNO, published", "FNO", "HO-FNO, published", "HO-FNO order 2", "seeds"]
    rows = []
    for problem, results in of_main_table("paper"):
        theirs = published.main_table(problem)
        found = {one.label: one for one in tables.summarise(results["runs"])}
        for label, plain in found.items():
            name, _, change = label.partition(", ")
            higher = found.get(label.replace("FNO", "HO-FNO order 2", 1))
            if name == "FNO" and higher is not None:
                errors = [plus_minus(one.metrics["rel_l2"].mean, one.metrics["rel_l2"].std) for one in (plain, higher)]
                printed = [f"{theirs[key]:g}" for key in ("FNO with modern backbone", "HO-FNO")]
                pairs = [printed[0], errors[0], printed[1], errors[1]]
                seeds = str(min(len(plain.seeds), len(higher.seeds)))
                rows.append([", ".join(filter(None, (called(problem), change))), *pairs, seeds])
    return tables.markdown(header, rows)


def one_frame() -> str:
    """Table 1: networks with the classic backbone at three viscosities, published values beside measured ones."""
    header = ["viscosity", "network", "epochs"]
    header += [name for what in ("MSE", "nRMSE", "rollout") for name in (f"{what}, published", what)]
    rows, remarks = [], []
    for viscosity in published.NAVIER_STOKES_VISCOSITIES:
        power = f"1e{round(math.log10(viscosity))}"
        results = read(f"paper/ns_table1_{power}")
        found = {run["label"]: run for run in results["runs"]}
        for theirs in published.navier_stokes_one_frame(viscosity):
            if (run := found.get(theirs["label"])) is None:
                continue
            measured = [run["metrics"][key] for key in ("one_step_mse", "one_step_rel_l2", "rollout")]
            printed = [theirs[key] for key in ("mse", "rel_l2", "rollout")]
            pairs = [number(value, 2) for pair in zip(printed, measured, strict=True) for value in pair]
            rows.append([power, run["label"], str(run["epochs"]), *pairs])
        remarks.append(f"{power}: {results['remark']} {seconds_of(results)}\n")
    return f"{tables.markdown(header, rows)}\n" + "".join(remarks) + "\n" + notes("one_frame")


OTHER_GRIDS = ("paper/darcy_resolution", "checks/darcy_resolution_by_points", "checks/padding", "checks/coarser")


def on_other_grids() -> str:
    """Studies that were evaluated on other grids: a table and a remark for each."""
    parts = []
    for name in OTHER_GRIDS:
        if (RESULTS / f"{name}.json").exists():
            results = read(name)
            table = tables.markdown(*resolution_rows(*curves_of(records_of(results))))
            parts.append(f"{results['title']}. {results['remark']}\n\n{table}")
    return "\n".join(parts)


COARSE_FIRST = ("checks/coarse_first_darcy", "checks/coarse_first_pipe")


def coarse_first() -> str:
    """Small studies of what most epochs on a coarser grid are worth."""
    header = ["problem", "epochs", "test error", "seconds of training", "seeds"]
    rows = []
    for results in map(read, COARSE_FIRST):
        for label, error, _, seconds, seeds in measured_rows(results):
            rows.append([called(results["problem"]), label, error, seconds, seeds])
    return tables.markdown(header, rows)


def seconds_of(results: dict[str, Any]) -> str:
    """How long the runs of a study took, and beside what."""
    seconds = [run["seconds"] for run in results["runs"]]
    (beside,) = {run["beside"] for run in results["runs"]}
    return f"{number(min(seconds))} to {number(max(seconds))} s a run, {beside}."


def steps(engine: dict[str, Any]) -> str:
    """Seconds and memory of a training step by form and precision."""
    (found,) = engine["results"].values()
    rows = []
    for way in found["ways"]:
        how = [way["policy"], *(["compiled"] if way["compiled"] else []), *(["CUDA graph"] if way["graph"] else [])]
        peak, error = way["peak_bytes"] / 2**30, way["output_error"]
        rows.append([way["form"], ", ".join(how), number(1e3 * way["median"]), number(peak), f"{error:.0e}"])
    shape = found["shape"]
    told = (
        f"Width {shape['width']}, depth {shape['depth']}, modes {shape['modes'][0]} x {shape['modes'][1]}, batch "
        f"{found['batch']} (8 trajectories of 10 windows), {shape['points']} x {shape['points']} points; forward, "
        "backward and optimiser, medians of `hofno bench engine --shape ns --batch 80`. plain: with rfft2.\n"
    )
    table = tables.markdown(["form", "precision", "ms", "peak GiB", "output off by"], rows)
    return f"{told}\n{table}\n{notes('step')}"


def hidden_activations(rows: list[dict[str, Any]]) -> str:
    """Milliseconds and memory of a step, for each problem and way."""
    header = ["problem", "hidden activations", "ms", "peak GiB"]
    cells = [[row["problem"], row["hidden"], number(row["milliseconds"]), number(row["peak_gib"])] for row in rows]
    return tables.markdown(header, sorted(cells))


def step_times(rows: list[dict[str, Any]]) -> str:
    """Milliseconds of a step before and after, for each spec and network."""
    header = ["spec", "network", "ms before", "ms", "peak GiB"]
    times = [
        ["" if row[key] is None else number(row[key]) for key in ("milliseconds_before", "milliseconds")]
        for row in rows
    ]
    cells = [
        [row["spec"], row["network"], *time, number(row["peak_gib"])] for row, time in zip(rows, times, strict=True)
    ]
    return tables.markdown(header, cells)


MEASURED = ["error", "parameters", "seconds", "seeds"]


def of_main_table(folder: str) -> list[tuple[str, dict[str, Any]]]:
    """What has been measured of the main table's problems, in its order."""
    there = [problem for problem in published.benchmarks() if (RESULTS / folder / f"{problem}.json").exists()]
    return [(problem, read(f"{folder}/{problem}")) for problem in there]


def measured_rows(results: dict[str, Any]) -> list[list[str]]:
    """Label, error, parameters, seconds and how they were measured, seeds."""
    rows = []
    for found in tables.summarise(results["runs"]):
        error = found.metrics["rel_l2"]
        parameters = f"{found.parameters['real'] / 1e6:.2f}M"
        seconds, seeds = tables.seconds_cell(found), str(len(found.seeds))
        rows.append([found.label, plus_minus(error.mean, error.std), parameters, seconds, seeds])
    return rows


def called(problem: str) -> str:
    return problem.replace("_", " ")


def remark(problem: str, results: dict[str, Any]) -> list[str]:
    return [f"- {called(problem)}: {results['remark']}\n"] if "remark" in results else []


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
            "mixed precision makes up for its rounding, and is worse without it; hence `train.finish`: with operands "
            "rounded and the last tenth of the epochs in float32 the same 20 epochs end at 0.0211 in float32 (above). "
            "These here were trained two at a time, in 128 s each, while tensor cores cut operands off to TF32.",
            "",
            tables.markdown(["seed", *asked], rows),
            finished(),
            training_precision(),
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


def training_precision() -> str:
    """Three seeds by precision of training."""
    results = read("checks/navier_stokes_training_precision")
    runs: dict[str, dict[int, float]] = {}
    for run in results["runs"]:
        runs.setdefault(run["label"], {})[run["seed"]] = run["metrics"]["rel_l2"]
    rows = [[label, *(number(found[seed]) for seed in (0, 1, 2))] for label, found in sorted(runs.items())]
    told = f"{results['title']} (`specs/checks/precision.toml`), test errors of three seeds. {results['remark']}"
    return f"{told}\n\n{tables.markdown(['trained in', 'seed 0', 'seed 1', 'seed 2'], rows)}"


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


def recipes(name: str, seconds: str, ranked: bool = True) -> str:
    runs = read(f"recipes/{name}")["runs"]
    runs = sorted(runs, key=lambda run: run["valid_rel_l2"]) if ranked else runs
    rows = [[run["label"], number(run["valid_rel_l2"]), number(run["seconds"])] for run in runs]
    return tables.markdown(["recipe", "validation rel. L2", seconds], rows)


def generalisation(runs: list[dict[str, Any]]) -> str:
    """Errors in training and on validation data; with the mean over a sample and its mirror image where measured."""
    header = ["changed", "seed", "train loss", "validation rel. L2", "mean with mirror image"]
    rows = [
        [
            run["label"],
            str(run["seed"]),
            number(run["train_loss"]),
            number(run["valid_rel_l2"]),
            number(run["valid_rel_l2_mean_with_mirror_image"]) if "valid_rel_l2_mean_with_mirror_image" in run else "",
        ]
        for run in sorted(runs, key=lambda run: run["valid_rel_l2"])
    ]
    return tables.markdown(header, rows)


PAGES = (ROOT / "README.md", ROOT / "docs" / "paper.md", ROOT / "docs" / "training.md")


def main() -> int:
    pages = {path: path.read_text(encoding="utf-8") for path in PAGES}
    parts = {
        "one-layer": one_layer(),
        "records": records_table(),
        "orders": orders(),
        "coarse-first": coarse_first(),
        "remarks": "".join(records_remarks()),
        "measured": measured_so_far(),
        "conditions": conditions(),
    }
    for name, text in parts.items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not any(marked.search(page) for page in pages.values()):
            print(f"no page has a part marked <!-- {name} -->")
            return 1
        for path, page in pages.items():
            pages[path] = marked.sub(lambda match, text=text: match[1] + text + match[2], page)
    wanted = {**pages, RESULTS / "README.md": all_tables()}
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
