"""A trained operator as one file that runs without hofno: raw fields in, raw fields out, normalisers inside.

    FILE.onnx    for ONNX Runtime and what else reads ONNX; needs the extra `export`
    FILE.pt2     for PyTorch alone: torch.export.load(FILE).module()

Inputs are those of `Surrogate.predict`: x (n, c, *grid), on a mesh with its coordinates among the channels and in time
with fixed fields before the frames; at points x (n, c, N) and coords (n, d, N), of which x is left out where places are
the only input, and mask (n, N) if it is asked for. The number of samples is free unless it is given, the grid is not.
What was written is run once more and compared with the operator before it counts.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hofno import storage
from hofno.data.passes import roll_out
from hofno.data.views import Views
from hofno.errors import HofnoError, SpecError
from hofno.exact import is_whole
from hofno.geometry import Points, describe_geometry, kind_of
from hofno.models.registry import MODELS, model_name
from hofno.storage.files import one_line
from hofno.surrogate import Surrogate, surrogate_of
from hofno.versions import versions

FORMS = (".onnx", ".pt2")
NEEDED = ("onnx", "onnxscript", "onnxruntime")
AGREES = 1e-4  # largest difference from the operator, see `difference`; rounding is 100 times less
LARGEST = 2**31 - 1  # bytes of an ONNX file
SAMPLES, OTHER = 2, 3  # of the example that is recorded, and of the one that is compared where their number is free
SHARE = 0.7  # of the points that are there, where a mask says so


class Deployed(nn.Module):
    """An operator as one module; subclasses say what it is called with."""

    def __init__(self, surrogate: Surrogate, shape: tuple[int, ...], steps: int) -> None:
        super().__init__()
        self.model, self.steps, self.operator = surrogate.model, steps, surrogate
        self.views: Views | None = None
        if surrogate.symmetry is not None:
            self.views = Views(surrogate.symmetry, shape, torch.device("cpu"), surrogate.rollout)

    def predicted(self, x: Tensor, coords: Tensor | None, mask: Tensor | None = None) -> Tensor:
        if mask is not None and coords is not None:  # whatever stands where no point is
            x, coords = (part.masked_fill(~mask[:, None], 0.0) for part in (x, coords))
        apply, rollout = self.operator.applied(self.views, coords, mask), self.operator.rollout
        found = apply(x) if rollout is None else roll_out(apply, x, self.steps, rollout.fixed)
        return found if mask is None else found.masked_fill(~mask[:, None], 0.0)


class OnGrid(Deployed):
    """An operator on a grid or a mesh."""

    def forward(self, x: Tensor) -> Tensor:
        return self.predicted(x, None)


class AtPoints(Deployed):
    """An operator at points."""

    def forward(self, x: Tensor, coords: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.predicted(x, coords, mask)


class FromPlaces(Deployed):
    """An operator whose only input is where the points are."""

    def forward(self, coords: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.predicted(coords[:, :0], coords, mask)


def export(
    operator: Surrogate | object,
    path: str | Path,
    *,
    batch: int | None = None,
    shape: tuple[int, ...] | None = None,
    steps: int | None = None,
    mask: bool = False,
) -> float:
    """Write an operator to a file of its own, FILE.onnx or FILE.pt2.

    Args:
        operator: what `hofno.fit` or `hofno.load` returns.
        path: the file; one that is there is replaced, whole or not at all.
        batch: samples of every call; any number of them if left out, which some networks cannot.
        shape: the grid, or the number of points; that of training if left out.
        steps: of a model in time, the frames that a call predicts; one if left out.
        mask: at points, whether a call also takes which points are there, (n, N) of booleans: clouds of up to N points.

    Returns the largest difference from the operator on random inputs, as a part of what a field varies by.
    """
    path = Path(path)
    surrogate = surrogate_of(operator, "export")
    if path.suffix not in FORMS:
        raise SpecError(f"a file to export to ends in {' or '.join(FORMS)}; got {path}")
    if path.suffix == ".onnx" and (missing := [name for name in NEEDED if find_spec(name) is None]):
        raise SpecError(f"ONNX files need {', '.join(missing)}: pip install 'hofno[export]'; or export to FILE.pt2")
    for name, value in (("batch", batch), ("steps", steps)):
        if value is not None and (not is_whole(value) or value < 1):
            raise SpecError(f"{name} is a whole number of at least 1; got {value!r}")
    if steps is not None and surrogate.rollout is None:
        raise SpecError("steps counts predicted frames, and the model was not trained on trajectories; leave it out")
    if mask and not isinstance(surrogate.grid, Points):
        raise SpecError(f"a mask is for points, and the model was trained on a {kind_of(surrogate.grid)}; leave it out")
    grid = _grid(surrogate, shape)
    held = copy.copy(surrogate)
    held.model = copy.deepcopy(surrogate.model).cpu().float().eval()
    held.inputs, held.targets = (one.to(torch.device("cpu")) for one in (surrogate.inputs, surrogate.targets))
    shown, other = (_inputs(held, grid, batch or n, seed, mask) for seed, n in enumerate((SAMPLES, OTHER)))
    expected = _expected(held, other, steps or 1)  # refuses a grid that the model or its statistics do not take
    kind = (AtPoints if "x" in shown else FromPlaces) if isinstance(surrogate.grid, Points) else OnGrid
    module = kind(held, grid, steps or 1)
    with _quiet():
        program = _recorded(module, shown, batch)
        made = _onnx_bytes(program, module, shown) if path.suffix == ".onnx" else _pt2_bytes(program)
        found = (_run_onnx if path.suffix == ".onnx" else _run_pt2)(made, other)
    off = difference(found, expected)
    if not off <= AGREES:
        raise HofnoError(
            f"the exported file would be off by {off:.1e} of what a field varies by, where at most {AGREES:.0e} is "
            "rounding; nothing was written; try the other form, .onnx or .pt2, and please report it"
        )
    storage.write_bytes(path, made)
    return off


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference of (n, c, ..) in any channel, over what that channel varies by.

    A hundredth of its size counts as variation: fields may vary less than they are rounded.
    """
    off, channels = (part.movedim(1, 0).flatten(1) for part in (found - expected, expected))  # (c, all)
    varies = (channels - channels.mean(1, keepdim=True)).abs().amax(1) + 0.01 * channels.abs().amax(1)
    return float((off.abs().amax(1) / varies.clamp_min(torch.finfo(torch.float32).tiny)).max())


def _grid(surrogate: Surrogate, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    own = tuple(surrogate.grid.shape)
    if shape is None:
        return own
    given = tuple(shape) if isinstance(shape, Iterable) else ()
    if len(given) != len(own) or not all(is_whole(n) and int(n) >= 1 for n in given):
        raise SpecError(f"shape must be {len(own)} numbers of points, as {' x '.join(map(str, own))} is; got {shape!r}")
    return tuple(int(n) for n in given)


def _inputs(
    surrogate: Surrogate, shape: tuple[int, ...], samples: int, seed: int, mask: bool = False
) -> dict[str, Tensor]:
    """Random inputs by name, of about the size of those of training; with a mask, of fewer points."""
    generator = torch.Generator().manual_seed(seed)
    channels, grid = surrogate.inputs.mean.shape[0], surrogate.grid
    given = {}
    if channels > 0:
        given["x"] = surrogate.inputs.decode(
            torch.randn(samples, channels, *shape, generator=generator, dtype=torch.float32)
        )
    if isinstance(grid, Points):
        given["coords"] = grid.from_unit(
            torch.rand(samples, grid.dim, *shape, generator=generator, dtype=torch.float32)
        )
    if mask:
        given["mask"] = torch.rand(samples, *shape, generator=generator) < SHARE
        given["mask"][:, 0] = True
    return given


def _expected(surrogate: Surrogate, inputs: dict[str, Tensor], steps: int) -> Tensor:
    coords = inputs.get("coords")
    x = inputs["x"] if coords is None or "x" in inputs else coords[:, :0]
    frames = steps if surrogate.rollout is not None else None
    found = surrogate.predict_tensor(x, len(x), frames, coords=coords, mask=inputs.get("mask"))
    if not found.isfinite().all():
        raise HofnoError("the operator predicts no finite numbers from random inputs, so that nothing can be compared")
    return found


def _recorded(module: Deployed, shown: dict[str, Tensor], batch: int | None) -> torch.export.ExportedProgram:
    free = {0: torch.export.Dim("samples", min=1)}
    shapes = None if batch is not None else dict.fromkeys(shown, free)
    try:
        with torch.no_grad():
            return torch.export.export(module, (), dict(shown), dynamic_shapes=shapes, strict=False)
    except Exception as error:
        name = _name(module.model)
        if batch is None:
            raise SpecError(
                f"{name} cannot be written for any number of samples; give one: batch=1, on the command line --batch 1"
            ) from error
        raise HofnoError(f"PyTorch cannot write {name} to a file: {one_line(error)}") from error


def _name(model: nn.Module) -> str:
    """Of a network of this library as it is registered, of others that of their class."""
    return model_name(model) if type(model) in MODELS.values() else type(model).__name__


def _pt2_bytes(program: torch.export.ExportedProgram) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def _run_pt2(made: bytes, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return torch.export.load(io.BytesIO(made)).module()(**inputs)


def _onnx_bytes(program: torch.export.ExportedProgram, module: Deployed, shown: dict[str, Tensor]) -> bytes:
    name, grid = _name(module.model), describe_geometry(module.operator.grid)
    try:
        made = torch.onnx.export(program, (), input_names=list(shown), output_names=["y"], verbose=False)
        assert made is not None
        proto = made.model_proto
    except Exception as error:
        raise HofnoError(f"{name} has no ONNX form in this version of PyTorch; export to FILE.pt2 instead") from error
    told: dict[str, Any] = {
        "model": name,
        "grid": grid,  # of training
        "inputs": {name: list(value.shape[1:]) for name, value in shown.items()},
        "steps": module.steps if module.operator.rollout is not None else None,
        "units": "raw fields in and out, as hofno's predict has them",
        "versions": versions(),
    }
    _name_samples(proto.graph)
    proto.metadata_props.add(key="hofno", value=json.dumps(told, sort_keys=True))
    if proto.ByteSize() > LARGEST:
        raise HofnoError(f"{name} needs {proto.ByteSize():,} bytes, more than an ONNX file holds; export to FILE.pt2")
    return proto.SerializeToString()


def _name_samples(graph: Any) -> None:
    """Call the first axis of inputs and outputs by its name, where their number is free."""
    free = {value.type.tensor_type.shape.dim[0].dim_param for value in graph.input} - {""}
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param in free:
                axis.dim_param = "samples"


def _run_onnx(made: bytes, inputs: dict[str, Tensor]) -> Tensor:
    import onnxruntime

    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(["y"], {name: value.numpy() for name, value in inputs.items()})[0])


@contextmanager
def _quiet() -> Iterator[None]:
    """What exporters tell while they work is not for users of this library."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
