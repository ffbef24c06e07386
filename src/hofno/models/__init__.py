"""Neural operators: plain modules, and the registry that knows them all."""

from hofno.models.deeponet import DeepONet, PointDeepONet
from hofno.models.dsfno import DSFNO
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
from hofno.models.registry import MODELS, build, parameter_counts
from hofno.models.resnet import ResNet
from hofno.models.sfno import HOSFNO, SFNO
from hofno.models.spectral import FNO, HOFNO
from hofno.models.swin import Swin
from hofno.models.transolver import Transolver
from hofno.models.transolver_plus import TransolverPlus
from hofno.models.ufno import UFNO
from hofno.models.unet import UNet
from hofno.models.uno import UNO

__all__ = [
    "DSFNO",
    "FFNO",
    "FNO",
    "GNOT",
    "HOFNO",
    "HONORM",
    "HOSFNO",
    "LSM",
    "MODELS",
    "MSPT",
    "MWT",
    "NORM",
    "ONO",
    "SFNO",
    "UFNO",
    "UNO",
    "DeepONet",
    "Erwin",
    "FactFormer",
    "GalerkinTransformer",
    "GeoFNO",
    "HTNet",
    "LaMO",
    "OFormer",
    "PatchLaMO",
    "PointDeepONet",
    "PointHO",
    "ResNet",
    "Swin",
    "Transolver",
    "TransolverPlus",
    "UNet",
    "build",
    "parameter_counts",
]
