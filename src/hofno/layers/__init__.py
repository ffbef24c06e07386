"""The order-m spectral convolution, its factors and filters, and the blocks around it."""

from hofno.layers.blocks import ClassicBlock, ModernBlock
from hofno.layers.manifold import HigherOrderSurfaceConv
from hofno.layers.parts import MLP, DropPath, RMSNorm
from hofno.layers.spectral import HigherOrderSpectralConv
from hofno.layers.sphere import HigherOrderSphericalConv

__all__ = [
    "MLP",
    "ClassicBlock",
    "DropPath",
    "HigherOrderSpectralConv",
    "HigherOrderSphericalConv",
    "HigherOrderSurfaceConv",
    "ModernBlock",
    "RMSNorm",
]
