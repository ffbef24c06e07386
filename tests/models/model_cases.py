"""Every registered model as the tests of all models see it: where it lives, how a tiny one is built and called.

A case is a model, a kind of geometry it claims, a number of dimensions and a variant. A mesh is called as a grid is
(the positions of its points are channels), so "grid" stands for both. A sphere is called as a grid of two
axes. Models on points are given as many of them as the grids have, scattered in the unit cube. A surface is a torus
whose vertices are the points of a grid of two axes.

To add a model: register it. If it needs other arguments than those of `PLAIN` to be tiny, name them in `TINY`; if it
has forms that differ by more than a number, in `VARIANTS`; dimensions that it refuses, in `REFUSED`; a model that is
given points by number, in `NUMBERED`; and give every argument that no model had before another value in `CHANGES`. A
stack of blocks is called `blocks`; a model that is none has a `lift` and a `project`, which stay in full precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hofno.models import MODELS, build
from hofno.models.registry import GEOMETRIES, arguments_of, place
from triangulated import torus

Sizes = dict[int, tuple[int, ...]]
POINTS: Sizes = {1: (16,), 2: (9, 10), 3: (6, 7, 6)}
OTHER_POINTS: Sizes = {1: (23,), 2: (12, 8), 3: (7, 6, 8)}
MODES: Sizes = {1: (5,), 2: (3, 4), 3: (2, 3, 3)}
DIMS = {"grid": (1, 2, 3), "points": (1, 2, 3), "sphere": (2,), "surface": (2,)}
OURS = ("hofno", "fno", "hosfno", "sfno", "honorm", "norm", "geofno", "pointho")
LEADING = ("mode_set", "decoder", "details")  # arguments that matter where there is more than one axis

# what a tiny model is given of the arguments that it takes, and what some need beyond that
PLAIN: dict[str, Any] = {"in_channels": 2, "out_channels": 2, "width": 8, "depth": 2, "domain_padding": 0.25}
TINY: dict[str, dict[str, Any]] = {
    "erwin": {"heads": 4, "ball": 32, "neighbours": 4},
    "factformer": {"heads": 3, "head_width": 4, "rank": 6},
    "galerkin": {"heads": 4},
    "gnot": {"heads": 4},
    "oformer": {"heads": 2, "latent": 8, "gain": 8.0, "bandwidth": 1.0},
    "lamo": {"heads": 4, "slices": 5, "states": 3, "spread": 0.3},
    "lamo_patches": {"states": 3, "landmarks": 0, "spread": 0.3},
    "hosfno": {"degrees": 4},
    "sfno": {"degrees": 4},
    "honorm": {"functions": 12},
    "norm": {"functions": 12},
    "htnet": {"levels": 1, "window": 3, "drop_path": 0.0},
    "mspt": {"heads": 4, "patches": 5, "spread": 0.3},
    "ono": {"heads": 4, "functions": 3},
    "swin": {"heads": 4, "window": 3},
    "transolver": {"heads": 4, "slices": 5, "spread": 0.3},
    "transolver_plus": {"heads": 4, "slices": 5, "spread": 0.3, "noise": 0.0},
    "unet": {"levels": 2},
    "ufno": {"before": 1},
    "uno": {"sizes": (0.6,), "growth": (2.0,), "shares": (0.8,)},
    "lsm": {"levels": 2, "heads": 4, "waves": 4},
    "mwt": {"levels": 2, "width": 2, "order": 2},
}

# forms of a model: their arguments, and the one kind of geometry they are for where it is one; all others have "modern"
VARIANTS: dict[str, dict[str, tuple[dict[str, Any], str | None]]] = {
    "lamo": {"hydra": ({}, None), "mamba": ({"scan": "mamba", "share": False}, None)},
    "transolver": {"linear": ({}, None), "conv": ({"projection": "conv"}, "grid")},
}

# models that know their points by number: always as many of them, always in the same order
NUMBERED = ("deeponet_points",)

# models of convolutions alone, which are in float32 on three axes of a CPU (`hofno.layers.convolutions`)
EXACT_ON_THREE_AXES = ("resnet", "unet")

# numbers of dimensions in which the mathematics of a model means nothing
REFUSED: dict[str, tuple[int, ...]] = {"erwin": (1,)}

# a value for every argument other than the one a tiny model has; "model.argument" where one will not do for all
CHANGES: dict[str, Any] = {
    "in_channels": 3,
    "out_channels": 1,
    "modes": (2,),
    "width": 12,
    "depth": 1,
    "order": 3,
    "expansion": 1,
    "factors": "identity",
    "weights": "dense",
    "dealias": True,
    "domain_padding": 0.5,
    "padded_by": "length",
    "drop_path": 0.5,
    "coordinates": "periodic",
    "waves": ((1,),),
    "residual": True,
    "mode_set": "reference",
    "latent_points": (16,),
    "deformation": 0,
    "decoder": "original",
    "dims": 2,
    "tokens": 5,
    "heads": 2,
    "octaves": 1,
    "scales": (),
    "slices": 3,
    "projection": "conv",
    "transolver.expansion": 2,
    "ono.expansion": 2,
    "experts": 2,
    "head_width": 3,
    "rank": 4,
    "functions": 4,
    "covariance": "running",
    "landmarks": 2,
    "spread": 0.1,
    "noise": 1.0,
    "levels": 1,
    "norm": "instance",
    "share": True,
    "weight_norm": False,
    "readout": "update",
    "before": 0,
    "sizes": (0.8,),
    "growth": (1.0,),
    "shares": (0.5,),
    "lsm.waves": 3,
    "mixed": "first",
    "window": 4,
    "htnet.patch": 5,
    "stride": 2,
    "htnet.levels": 2,
    "ball": 16,
    "angle": 30.0,
    "neighbours": 3,
    "erwin.dims": 3,
    "erwin.levels": 2,
    "patches": 3,
    "supernodes": 2,
    "scan": "mamba",
    "states": 2,
    "groups": 1,
    "patch": 3,
    "lamo.growth": 1,
    "lamo.expansion": 2,
    "lamo.share": False,
    "lamo_patches.growth": 1,
    "latent": 12,
    "reach": 10.0,
    "gain": 4.0,
    "bandwidth": 2.0,
    "oformer.heads": 3,
    "details": "diagonal",
    "degrees": 3,
    "nodes": "gauss",
    "hosfno.coordinates": "latitude",
    "sfno.coordinates": "none",
    "honorm.coordinates": "none",
    "norm.coordinates": "none",
    "sensors": (3,),
    "points": 17,
}


@dataclass(frozen=True)
class Case:
    """A model by name, "grid", "sphere", "surface" or "points", the number of dimensions, and the form of it."""

    name: str
    kind: str
    dims: int
    variant: str

    def __str__(self) -> str:
        return f"{self.name}-{self.kind}-{self.dims}-{self.variant}"

    @property
    def arguments(self) -> dict[str, Any]:
        """What a tiny model of this case is built from."""
        taken = arguments_of(self.name)
        values = PLAIN | {"modes": MODES[self.dims], "dims": self.dims, "backbone": self.variant}
        values |= {"sensors": tuple(n + 1 for n in POINTS[self.dims]), "points": math.prod(POINTS[self.dims])}
        plain = {key: value for key, value in values.items() if key in taken}
        return plain | TINY.get(self.name, {}) | variants(self.name)[self.variant][0]

    def make(self, sizes: Sizes = POINTS, /, **changed: Any) -> nn.Module:
        torch.manual_seed(3)
        return self.built(self.arguments | changed, sizes)

    def built(self, arguments: dict[str, Any], points: Sizes = POINTS) -> nn.Module:
        """A model of these arguments; one on a surface is placed there."""
        model = build(self.name, arguments)
        if self.kind == "surface":
            rows, columns = points[2]
            place(model, torus(rows, columns))
        return model

    def batch(self, count: int = 2, points: Sizes = POINTS, channels: int = 2, dims: int = 0) -> tuple[Tensor, ...]:
        """What the model is called with: fields, and where it works on points, their places."""
        dims = dims or self.dims
        if self.kind in ("grid", "sphere"):
            return (torch.randn(count, channels, *points[dims]),)
        number = math.prod(points[dims])
        if self.kind == "surface":
            return (torch.randn(count, channels, number),)
        return torch.randn(count, channels, number), torch.rand(count, dims, number)


def variants(name: str) -> dict[str, tuple[dict[str, Any], str | None]]:
    """Forms of a model by their names."""
    if "backbone" in arguments_of(name):
        return {"modern": ({}, None), "classic": ({}, None)}
    return VARIANTS.get(name, {"modern": ({}, None)})


def kinds(name: str) -> tuple[str, ...]:
    """The ways in which a model is called."""
    claimed = GEOMETRIES[name]
    for kind in ("sphere", "surface"):
        if kind in claimed:
            return (kind,)
    return (("grid",) if {"grid", "mesh"} & set(claimed) else ()) + (("points",) if "points" in claimed else ())


CASES = [
    Case(name, kind, dims, variant)
    for name in sorted(MODELS)
    for variant, (_, only) in variants(name).items()
    for kind in kinds(name)
    for dims in DIMS[kind]
    if dims not in REFUSED.get(name, ()) and only in (None, kind)
]
ON_GRIDS = [case for case in CASES if case.kind in ("grid", "sphere")]
ON_POINTS = [case for case in CASES if case.kind == "points"]
# one of each form of a model in each way of calling it
FORMS = list({(case.name, case.kind, case.variant): case for case in CASES if case.dims <= 2}.values())
# slow tests have every case of our own models, and of the others each form once, on a plane or on the shortest of grids
OWN = [case for case in CASES if case.name in OURS]
ON_PLANES = OWN + list({(case.name, case.variant): case for case in FORMS if case.name not in OURS}.values())
ON_FEW_POINTS = OWN + list({(c.name, c.variant): c for c in reversed(CASES) if c.name not in OURS}.values())
