"""A kernel that shows what `_nearest` makes of its numbers; imported by a test once Triton may be."""

# The kernel language is not Python to a type checker:
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false

import triton
import triton.language as tl

from hofno.layers.kernels._common import _nearest


@triton.jit
def nearest_kernel(x_pointer, out_pointer, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out_pointer + at, _nearest(tl.load(x_pointer + at), "tf32"))
