"""Neural operators: plain modules, and the registry that knows them all."""

from hofno.models.geofno import GeoFNO
from hofno.models.pointho import PointHO
from hofno.models.registry import MODELS, build, parameter_counts
from hofno.models.spectral import FNO, HOFNO

__all__ = ["FNO", "HOFNO", "MODELS", "GeoFNO", "PointHO", "build", "parameter_counts"]
