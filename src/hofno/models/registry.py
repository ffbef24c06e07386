"""Every model by name: what it is called in a spec, what geometries it takes, how it is built, how large it is.

A model on a grid, a mesh, a sphere or a surface is called as model(x), one on points as model(x, coords) or
model(x, coords, mask). One on a surface is placed there first. Fields on a sphere are latitudes by longitudes, so
models on a grid take them as they are; a model on a sphere takes a grid of two axes as those.
"""

from __future__ import annotations

import difflib
import inspect
from typing import Any, get_type_hints

from torch import nn

from hofno.errors import SpecError
from hofno.geometry import Geometry, Sphere, Surface, kind_of
from hofno.layers.filters import SpectralFilter
from hofno.models.deeponet import DeepONet, PointDeepONet
from hofno.models.dsfno import DSFNO
from hofno.models.ensemble import Ensemble
from hofno.models.erwin import Erwin
from hofno.models.factformer import FactFormer
from hofno.models.ffno import FFNO
from hofno.models.galerkin import GalerkinTransformer
from hofno.models.geofno import GeoFNO
from hofno.models.gnot import GNOT
from hofno.models.htnet import HTNet
from hofno.models.lamo import LaMO
from hofno.models.lamo_patches import PatchLaMO
from hofno.models.lsm import LSM
from hofno.models.mspt import MSPT
from hofno.models.mwt import MWT
from hofno.models.norm import HONORM, NORM
from hofno.models.oformer import OFormer
from hofno.models.ono import ONO
from hofno.models.pointho import PointHO
from hofno.models.resnet import ResNet
from hofno.models.sfno import HOSFNO, SFNO
from hofno.models.spectral import FNO, HOFNO
from hofno.models.swin import Swin
from hofno.models.transolver import Transolver
from hofno.models.transolver_plus import TransolverPlus
from hofno.models.ufno import UFNO
from hofno.models.unet import UNet
from hofno.models.uno import UNO

MODELS: dict[str, type[nn.Module]] = {
    "hofno": HOFNO,
    "fno": FNO,
    "hosfno": HOSFNO,
    "sfno": SFNO,
    "honorm": HONORM,
    "norm": NORM,
    "geofno": GeoFNO,
    "pointho": PointHO,
    "transolver": Transolver,
    "transolver_plus": TransolverPlus,
    "galerkin": GalerkinTransformer,
    "gnot": GNOT,
    "oformer": OFormer,
    "ono": ONO,
    "lamo": LaMO,
    "lamo_patches": PatchLaMO,
    "factformer": FactFormer,
    "unet": UNet,
    "resnet": ResNet,
    "ffno": FFNO,
    "ufno": UFNO,
    "uno": UNO,
    "lsm": LSM,
    "mwt": MWT,
    "dsfno": DSFNO,
    "swin": Swin,
    "mspt": MSPT,
    "erwin": Erwin,
    "htnet": HTNet,
    "deeponet": DeepONet,
    "deeponet_points": PointDeepONet,
}
GEOMETRIES: dict[str, tuple[str, ...]] = {
    "hofno": ("grid", "mesh"),
    "fno": ("grid", "mesh"),
    "hosfno": ("sphere", "grid"),
    "sfno": ("sphere", "grid"),
    "honorm": ("surface",),
    "norm": ("surface",),
    "geofno": ("points",),
    "pointho": ("points",),
    "transolver": ("grid", "mesh", "points"),
    "transolver_plus": ("grid", "mesh", "points"),
    "galerkin": ("grid", "mesh", "points"),
    "gnot": ("grid", "mesh", "points"),
    "oformer": ("grid", "mesh", "points"),
    "ono": ("grid", "mesh", "points"),
    "lamo": ("grid", "mesh", "points"),
    "lamo_patches": ("grid", "mesh"),
    "factformer": ("grid", "mesh"),
    "unet": ("grid", "mesh"),
    "resnet": ("grid", "mesh"),
    "ffno": ("grid", "mesh"),
    "ufno": ("grid", "mesh"),
    "uno": ("grid", "mesh"),
    "lsm": ("grid", "mesh"),
    "mwt": ("grid", "mesh"),
    "dsfno": ("grid", "mesh"),
    "swin": ("grid", "mesh"),
    "mspt": ("grid", "mesh", "points"),
    "erwin": ("grid", "mesh", "points"),
    "htnet": ("grid", "mesh"),
    "deeponet": ("grid", "mesh"),
    "deeponet_points": ("points",),
}
ENSEMBLE = "ensemble"
"""Name of several networks as one in saved folders; no spec has it."""

WHERE = {
    "grid": "on a grid",
    "mesh": "on a mesh",
    "points": "at points",
    "sphere": "on a sphere",
    "surface": "on a surface",
}


def model_class(name: str) -> type[nn.Module]:
    """The class registered under `name`."""
    if name not in MODELS:
        close = difflib.get_close_matches(name.lower(), MODELS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise SpecError(f"unknown model {name!r}; there are: {', '.join(sorted(MODELS))}{hint}")
    return MODELS[name]


def model_name(model: nn.Module) -> str:
    """The registered name of a model's class."""
    if isinstance(model, Ensemble):
        return ENSEMBLE
    for name, known in MODELS.items():
        if type(model) is known:
            return name
    raise SpecError(
        f"{type(model).__name__} is not a registered model, so it cannot be saved as a hofno folder; "
        "save its state_dict with safetensors, or add the class to hofno.models.registry.MODELS"
    )


def check_nodes(model: nn.Module, geometry: Geometry) -> None:
    """Refuse a model whose rows of a sphere lie elsewhere than those of the data."""
    nodes = getattr(model, "nodes", None)
    if isinstance(geometry, Sphere) and nodes is not None and nodes != geometry.nodes:
        raise SpecError(
            f"the rows of these data are {geometry.nodes!r} nodes of the sphere and the model has nodes={nodes!r}; set "
            f"nodes={geometry.nodes!r}"
        )


def place(model: nn.Module, geometry: Geometry, *, filled: bool = True) -> None:
    """Put a model that lives on a surface on that of its data.

    With filled=False there is only room for what is computed of the surface: that of a trained model comes with its
    weights, and shapes need none.
    """
    for network in networks_of(model):
        if isinstance(geometry, Surface) and isinstance(network, HONORM):
            (network.place if filled else network.reserve)(geometry)


def networks_of(model: nn.Module) -> list[nn.Module]:
    """Those whose mean it is, or itself alone."""
    return list(model.members) if isinstance(model, Ensemble) else [model]


def arguments_of_model(model: nn.Module) -> dict[str, Any]:
    """What `build` takes to build a model again, as plain values."""
    if isinstance(model, Ensemble):
        members = [{"model": model_name(one), "arguments": arguments_of_model(one)} for one in model.members]
        return {"members": members}
    return getattr(model, "config")  # noqa: B009


def check_geometry(name: str, geometry: Geometry) -> None:
    """Refuse a model that does not live where the data do, and name those that do."""
    model_class(name)
    kind = kind_of(geometry)
    like = {kind, "grid"} if kind == "sphere" else {kind}
    if not like & set(GEOMETRIES[name]):
        others = ", ".join(sorted(other for other, kinds in GEOMETRIES.items() if like & set(kinds)))
        taken = " or ".join(WHERE[known] for known in GEOMETRIES[name])
        raise SpecError(f"model {name!r} takes fields {taken}, and these are {WHERE[kind]}; use: {others}")


def check_axes(arguments: dict[str, Any], axes: int, *, trained: bool = False) -> None:
    """Refuse arguments that are for another number of axes, or coordinates of a point, than the data have.

    `trained`: the model is there, and other data are what can be given.
    """
    for key in ("modes", "sensors", "dims"):
        if key in arguments:
            value = arguments[key]
            asked = value if isinstance(value, int) else len(value)
            if asked != axes:
                remedy = f"set model.dims={axes}" if key == "dims" else f"give {axes} number{'s' * (axes > 1)}"
                remedy = "a trained run takes data like its own: leave out what changes them" if trained else remedy
                asks = f"asks for {asked} spatial {'axis' if asked == 1 else 'axes'}"
                raise SpecError(f"model.{key}={value} {asks}; the data have {axes}; {remedy}")


def arguments_of(name: str) -> frozenset[str]:
    """The names of what a model's constructor takes."""
    return frozenset(inspect.signature(model_class(name)).parameters)


def build(name: str, arguments: dict[str, Any]) -> nn.Module:
    """Build a model from plain values, checking names and types first."""
    if name == ENSEMBLE:
        return Ensemble([build(member["model"], member["arguments"]) for member in arguments["members"]])
    return model_class(name)(**check_arguments(name, arguments))


def check_arguments(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the model's constructor, converted to their types; unknown names and wrong types are errors."""
    from pydantic import ValidationError, create_model

    from hofno.checked import Checked

    constructor = model_class(name).__init__
    hints = get_type_hints(constructor)
    fields: dict[str, Any] = {}
    for key, parameter in inspect.signature(constructor).parameters.items():
        if key == "self":
            continue
        required = parameter.default is inspect.Parameter.empty
        fields[key] = (hints[key], ... if required else parameter.default)
    schema = create_model(f"{name} arguments", __base__=Checked, **fields)
    try:
        return schema(**arguments).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            close = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes: {', '.join(fields)}"
            raise SpecError(f"model {name!r} has no argument {key!r}; {hint}") from None
        if first["type"] == "missing":
            example = ", one number for each axis, such as [12, 12]" if key == "modes" else ""
            raise SpecError(f"model {name!r} needs {key}; set model.{key}{example}") from None
        value = first.get("input")
        if first["type"] == "tuple_type" and isinstance(value, int | float):
            raise SpecError(f"model.{key} is a list, such as [{value}, {value}]; got {value}") from None
        raise SpecError(f"model.{key}: {first['msg'].lower()}; got {value!r}") from None


def parameter_counts(model: nn.Module) -> dict[str, int]:
    """Number of parameters, as real numbers and with each complex spectral weight counted once."""
    real = sum(p.numel() for p in model.parameters())
    pairs = sum(p.numel() for m in model.modules() if isinstance(m, SpectralFilter) for p in m.parameters())
    return {"real": real, "complex_once": real - pairs // 2}
