"""A kernel that shows what `nearest_tf32` makes of its numbers; imported by a test once Triton may be."""

# The kernel language is not Python to a type checker:
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false

import triton
import triton.language as tl

from hofno.layers.kernels._common import nearest_tf32


@triton.jit
def nearest_kernel(x_pointer, out_pointer, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out_pointer + at, nearest_tf32(tl.load(x_pointer + at)))
