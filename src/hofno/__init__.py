"""hofno: learn the solution operators of nonlinear PDEs with higher-order Fourier neural operators.

    data  = hofno.generate("poisson", degree=2)
    model = hofno.HOFNO(in_channels=2, out_channels=1, modes=(16, 16), width=64, depth=1, order=2)
    run   = hofno.fit(model, data, epochs=100)
    print(hofno.evaluate(run, data.test))

Names are imported when they are first used, so that `import hofno` costs little more than `import torch`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hofno import convert as convert
    from hofno import models as models
    from hofno.data import Dataset, Rollout, Split, from_arrays, from_trajectories, generate, read
    from hofno.deploy import export
    from hofno.errors import HofnoError
    from hofno.evaluation import evaluate
    from hofno.layers import HigherOrderSpectralConv
    from hofno.models import FNO, HOFNO, HONORM, HOSFNO, NORM, SFNO, GeoFNO, PointHO, parameter_counts
    from hofno.saved import load
    from hofno.surface import Surface
    from hofno.surrogate import Surrogate
    from hofno.train import Interrupted, Run, combine, fit

__version__ = "0.1.0"

_HOMES = {
    "Dataset": "hofno.data",
    "FNO": "hofno.models",
    "GeoFNO": "hofno.models",
    "HOFNO": "hofno.models",
    "HONORM": "hofno.models",
    "HOSFNO": "hofno.models",
    "HigherOrderSpectralConv": "hofno.layers",
    "HofnoError": "hofno.errors",
    "Interrupted": "hofno.train",
    "NORM": "hofno.models",
    "PointHO": "hofno.models",
    "Rollout": "hofno.data",
    "Run": "hofno.train",
    "SFNO": "hofno.models",
    "Split": "hofno.data",
    "Surface": "hofno.surface",
    "Surrogate": "hofno.surrogate",
    "combine": "hofno.train",
    "convert": "hofno.convert",
    "evaluate": "hofno.evaluation",
    "export": "hofno.deploy",
    "fit": "hofno.train",
    "from_arrays": "hofno.data",
    "from_trajectories": "hofno.data",
    "generate": "hofno.data",
    "load": "hofno.saved",
    "models": "hofno.models",
    "parameter_counts": "hofno.models",
    "read": "hofno.data",
}

__all__ = [
    "FNO",
    "HOFNO",
    "HONORM",
    "HOSFNO",
    "NORM",
    "SFNO",
    "Dataset",
    "GeoFNO",
    "HigherOrderSpectralConv",
    "HofnoError",
    "Interrupted",
    "PointHO",
    "Rollout",
    "Run",
    "Split",
    "Surface",
    "Surrogate",
    "combine",
    "convert",
    "evaluate",
    "export",
    "fit",
    "from_arrays",
    "from_trajectories",
    "generate",
    "load",
    "models",
    "parameter_counts",
    "read",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'hofno' has no attribute {name!r}")
    module = import_module(home)
    value = module if home == f"hofno.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({"__version__", *_HOMES})
