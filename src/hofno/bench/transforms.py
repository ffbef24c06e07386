"""Matrix products against the FFT, forward and inverse, and whether `choose_method` picks the faster."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hofno.bench.measure import ParityError, bench_device, conditions, relative_difference, show_table, take_turns
from hofno.bench.plain import ModelShape
from hofno.geometry import padded_shape
from hofno.storage import write_json
from hofno.transforms import fourier

LARGEST_ERROR = 1e-4


@dataclass(frozen=True, kw_only=True)
class TransformCase:
    """A transform of `batch` fields of `channels` channels."""

    points: tuple[int, ...]
    modes: tuple[int, ...]
    domain_padding: float = 0.0
    channels: int = 32
    batch: int = 1

    @property
    def padded(self) -> tuple[int, ...]:
        return padded_shape(self.points, self.domain_padding)

    def flip_weight(self) -> float:
        """The FFT weight at which `choose_method` changes its mind."""
        return fourier.multiply_adds(self.points, self.modes, "reference") / fourier.fft_stages(self.padded)


def transform_cases() -> list[TransformCase]:
    """One to three dimensions, coarse to fine, few modes to nearly all, padded and not."""
    found: list[TransformCase] = []
    for dims, sizes, counts, batch in (
        (1, (64, 256, 1024, 4096, 16384), (8, 16, 64, 96, 128, 256), 8),
        (2, (32, 64, 85, 128, 256), (6, 12, 16, 32, 48, 64, 128), 1),
        (3, (16, 32, 64), (4, 8, 16), 1),
    ):
        for n, m in itertools.product(sizes, counts):
            if 2 * m <= n:
                found.append(TransformCase(points=(n,) * dims, modes=(m,) * dims, batch=batch))
            if 2 * m <= n and n**dims < 10**5:
                padded = TransformCase(points=(n,) * dims, modes=(m,) * dims, batch=batch, domain_padding=2 / 3)
                found.append(padded)
    return found


def model_case(shape: ModelShape) -> TransformCase:
    """The transform inside a network."""
    return TransformCase(
        points=(shape.points,) * 2,
        modes=shape.modes,
        domain_padding=shape.domain_padding,
        channels=shape.width,
        batch=shape.samples,
    )


def bench_transform(case: TransformCase, batch: int, rounds: int) -> dict[str, Any]:
    """Forward and inverse by both methods, and which one `choose_method` would take."""
    device = bench_device()
    x = torch.randn(batch * case.batch, *case.points, case.channels, device=device)

    def there_and_back(method: fourier.Method) -> Callable[[], Tensor]:
        def run() -> Tensor:
            spectrum = fourier.forward(x, case.modes, "reference", case.padded, method)
            return fourier.inverse(spectrum, case.points, case.modes, "reference", case.padded, method)

        return run

    by_products, by_fft = there_and_back("matmul"), there_and_back("fft")
    with torch.no_grad():
        error = relative_difference(by_products(), by_fft())
        if not error < LARGEST_ERROR:
            raise ParityError(f"matrix products and FFT must agree at {case}; they differ by {error:.1e}")
        products, fft = take_turns([by_products, by_fft], rounds, device)
    chosen = fourier.choose_method(case.points, case.padded, case.modes, "reference", device.type)
    seconds = {"matmul": statistics.median(products), "fft": statistics.median(fft)}
    return {
        "case": asdict(case),
        "batch": x.shape[0],
        "padded": list(case.padded),
        "rounds": rounds,
        "error": error,
        "matmul_seconds": seconds["matmul"],
        "fft_seconds": seconds["fft"],
        "speed_up": statistics.median(b / a for a, b in zip(products, fft, strict=True)),
        "chosen": chosen,
        "slowdown": seconds[chosen] / min(seconds.values()),
        "flip_weight": case.flip_weight(),
    }


def best_weight(results: list[dict[str, Any]]) -> float:
    """The FFT weight that would have lost least time, geometric mean over all cases."""

    def lost(weight: float) -> float:
        total = 0.0
        for r in results:
            took = r["matmul_seconds"] if r["flip_weight"] <= weight else r["fft_seconds"]
            total += math.log(took / min(r["matmul_seconds"], r["fft_seconds"]))
        return total

    flips = sorted(r["flip_weight"] for r in results)
    between = [math.sqrt(a * b) for a, b in itertools.pairwise(flips)]
    return min((flips[0] / 2, *between, flips[-1] * 2), key=lost)


def run_transforms(cases: list[TransformCase], batch: int, rounds: int, json_path: Path | None) -> dict[str, Any]:
    """Measure these transforms and show them."""
    state = conditions()
    results = [bench_transform(case, batch, rounds) for case in cases]
    rows = [
        (
            "x".join(map(str, case.points)),
            "x".join(map(str, case.padded)) if case.domain_padding else "",
            "x".join(map(str, case.modes)),
            f"{r['batch']} x {case.channels}",
            f"{1e3 * r['matmul_seconds']:.2f}",
            f"{1e3 * r['fft_seconds']:.2f}",
            f"{r['speed_up']:.2f}x",
            r["chosen"] + ("" if r["slowdown"] == 1.0 else f" (costs {r['slowdown']:.2f}x)"),
        )
        for case, r in zip(cases, results, strict=True)
    ]
    headings = ("grid", "padded to", "modes", "batch x channels", "products, ms", "FFT, ms", "speed-up", "chosen")
    right = sum(r["slowdown"] == 1.0 for r in results)
    mean_slowdown = math.exp(statistics.fmean(math.log(r["slowdown"]) for r in results))
    weight, best = fourier.FFT_WEIGHT[state["device"]], best_weight(results)
    show_table(headings, rows, f"Forward and inverse on {state['device']}, {state['threads']} threads, float32")
    print(
        f"the faster method was chosen in {right} of {len(results)} cases, at {mean_slowdown:.3f}x the best time on "
        f"average, with an FFT weight of {weight:g}; here {best:.0f} would have lost least"
    )
    summary = {"right": right, "mean_slowdown": mean_slowdown, "weight": weight, "best_weight": best}
    record = {"what": "transform", **state, **summary, "results": results}
    if json_path is not None:
        write_json(json_path, record)
    return record
