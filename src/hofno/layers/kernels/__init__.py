"""Fused kernels of both blocks on a plane and of a pointwise MLP, each beside the plain PyTorch function it equals.

A block of width C <= 64 does so little arithmetic per number that its speed is that of memory, launches and elementwise
work. `modern_block` then reads its activations along image rows, keeps what lies between in registers, and computes it
again in the backward pass (`narrow`). A wider block leaves the matrix products to the library and fuses what lies
between them (`wide`). `classic_block` does the same as a narrow one for the block of the original FNO of any few
channels (`classic`), and `mlp` for a pointwise MLP of few channels and outputs (`pointwise`). `mode_filter` multiplies
a spectrum by one complex number for each mode and channel, for every other network.

The `_plain` versions define the values and run everywhere; the fused ones take what `supported` accepts, where they run
(`trial`). Triton is imported by the first fused call, never by importing this package.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from hofno.triton_use import kernels_run_on

NARROW_CHANNELS = (16, 32, 64)
NARROW_HIDDEN = (16, 32, 64, 128, 256)
WIDE_CHANNELS = range(128, 1025, 64)
WIDE_WHOLE = 256  # channels of which a program has all at hand; of more it takes chunks, and only of short rows
WIDE_TILE = 64  # points of a short image row
WIDE_SPECTRUM = 2**14  # wavenumbers of an image row times channels that a program has at hand
LARGEST_ORDER = 8
LARGEST_AXIS = 256
LARGEST_KEPT = 128
CLASSIC_CHANNELS = range(8, 65)
MLP_CHANNELS, MLP_HIDDEN, MLP_OUT = range(8, 65), range(1, 257), range(1, 9)
MLP_POINTS = 2**12  # fewer are not worth a kernel of their own
NARROW_KEPT = 64  # wavenumbers of the last axis where a program holds its whole transform


def _lives_with_kernels(x: Tensor) -> bool:
    return kernels_run_on(x) and x.dtype == torch.float32 and x.numel() > 0


def _runs_on(x: Tensor) -> bool:
    return _lives_with_kernels(x) and x.is_contiguous()


def _untransformed(x: Tensor) -> bool:
    """Whether no functorch transform is active, and no autocast but that to bfloat16."""
    kind = x.device.type
    return not torch._C._are_functorch_transforms_active() and (
        not torch.is_autocast_enabled(kind) or torch.get_autocast_dtype(kind) == torch.bfloat16
    )


def supported(x: Tensor, order: int, hidden: int, kept: tuple[int, ...], dropping: bool = False) -> bool:
    """Whether `modern_block` takes channel-last activations `x` of a block of this order and hidden MLP width.

    `kept` counts the wavenumbers kept on each axis; `dropping`, branches of samples are scaled. bfloat16 autocast is
    taken, other casts are not.
    """
    if not _plane_supported(x, order, kept):
        return False
    return _wide(x, kept[1]) or (_narrow(x, hidden) and kept[1] <= NARROW_KEPT and not dropping)


def classic_supported(x: Tensor, order: int, kept: tuple[int, ...]) -> bool:
    """Whether `classic_block` takes channel-last activations `x` of a block of this order; `kept` as in `supported`."""
    return (
        _plane_supported(x, order, kept)
        and x.shape[-1] in CLASSIC_CHANNELS
        and kept[1] <= NARROW_KEPT
        and not (x.is_cuda and dot_precision(x) == "ieee")
    )


def _plane_supported(x: Tensor, order: int, kept: tuple[int, ...]) -> bool:
    return (
        _runs_on(x)
        and x.dim() == 4
        and max(x.shape[1:3]) <= LARGEST_AXIS
        and len(kept) == 2
        and max(kept) <= LARGEST_KEPT
        and 1 <= order <= LARGEST_ORDER
        and _untransformed(x)
    )


def mlp_supported(x: Tensor, up: Tensor, down: Tensor) -> bool:
    """Whether `mlp` takes channel-last `x` with these weights, and is worth it; elsewhere a library's products are."""
    return (
        _lives_with_kernels(x)
        and x.shape[-1] in MLP_CHANNELS
        and x.numel() >= MLP_POINTS * x.shape[-1]
        and up.dtype == down.dtype == torch.float32
        and up.shape[0] in MLP_HIDDEN
        and down.shape[0] in MLP_OUT
        and _untransformed(x)
        and torch._C._get_tracing_state() is None
        and not (x.is_cuda and dot_precision(x) == "ieee")
    )


def _narrow(x: Tensor, hidden: int) -> bool:
    return x.shape[-1] in NARROW_CHANNELS and hidden in NARROW_HIDDEN


def _wide(x: Tensor, kept: int) -> bool:
    channels = x.shape[-1]
    if channels not in WIDE_CHANNELS:
        return False
    places = 1 << (channels - 1).bit_length()
    return kept * places <= WIDE_SPECTRUM if channels <= WIDE_WHOLE else x.shape[2] <= WIDE_TILE


def dot_precision(x: Tensor) -> str:
    """Of `tl.dot`, for the user's `torch.set_float32_matmul_precision`: "tf32" where it allows that.

    Where it does not, "tf32x3": each operand as a sum of two TF32 numbers and three products of them, right to 2^-22.
    Multiplied out without tensor cores a tile does not fit into a multiprocessor's registers.
    """
    if not x.is_cuda or not _has_tf32(x.device.index):
        return "ieee"
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


@lru_cache
def _has_tf32(index: int) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(index) >= (8, 0)


def filter_supported(spectrum: Tensor) -> bool:
    """Whether the fused mode filter takes this spectrum; any shape does, in float32 on a GPU."""
    return _runs_on(spectrum)


def rms_norm_plain(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """h = x / sqrt(mean_c(x^2) + eps) * gain, over the last axis."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * gain


def modern_block(
    x: Tensor,
    gain1: Tensor,
    weight: Tensor,
    bias: Tensor,
    filter_: Tensor,
    outside: Tensor | None,
    gain2: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    down_bias: Tensor,
    matrices: tuple[Tensor, Tensor, Tensor, Tensor],
    eps: float,
    branches: Tensor | None = None,
) -> Tensor:
    """v = x + F^-1 filter F prod_i (W_i h + b_i), h = RMSNorm(x); then v + MLP(RMSNorm(v)), fused.

    Shapes: x (b, n1, n2, C), gains (C,), weight (order*C, C) with the factors stacked as `nn.Linear` stores them, bias
    (order*C,), filter (K, M, C, 2), up (H, C), down (C, H); where the domain is padded, `outside` (2, K, M) is the
    spectrum of the function that is 1 on the padding, where the product is that of its biases; it has no gradient.
    `matrices` are those of the last axis, (2M, n2) and back, (n2, 2M), then of the leading one, (2K, 2 n1) and back;
    the caller keeps them for later calls. `branches` (2, b) are numbers by which what is added to x and to v is scaled
    in each sample; they have no gradient. Under bfloat16 autocast the factors and the MLP take their operands in
    bfloat16; transforms, sums and the result stay in float32, but for spectra of wide blocks up to order 2: those lie
    in float16, and their gradients in bfloat16.
    """
    from hofno.layers.kernels.narrow import NarrowBlock
    from hofno.layers.kernels.transforms import transforms_of
    from hofno.layers.kernels.wide import WideBlock
    from hofno.layers.kernels.wide_rows import tile_for

    given = (x, gain1, weight, bias, filter_, outside, gain2, up, up_bias, down, down_bias)
    if _narrow(x, up_bias.numel()):
        assert branches is None, "narrow blocks do not scale their branches, see `supported`"
        return NarrowBlock.apply(*given, transforms_of(matrices, None), eps)  # pyright: ignore[reportReturnType]
    transforms = transforms_of(matrices, tile_for(x.shape[2], x.shape[3]))
    return WideBlock.apply(*given, branches, transforms, eps)  # pyright: ignore[reportReturnType]


def modern_block_plain(
    x: Tensor,
    gain1: Tensor,
    weight: Tensor,
    bias: Tensor,
    filter_: Tensor,
    outside: Tensor | None,
    gain2: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    down_bias: Tensor,
    matrices: tuple[Tensor, Tensor, Tensor, Tensor],
    eps: float,
    branches: Tensor | None = None,
) -> Tensor:
    """What `modern_block` computes, in plain PyTorch and any dtype."""
    first, second = (1.0, 1.0) if branches is None else branches[:, :, None, None, None]
    h = rms_norm_plain(x, gain1, eps)
    v = x + first * _filtered_product_plain(h, weight, bias, filter_, outside, matrices)
    hidden = functional.gelu(functional.linear(rms_norm_plain(v, gain2, eps), up, up_bias))  # (..., H)
    return v + second * functional.linear(hidden, down, down_bias)


def classic_block(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    filter_: Tensor,
    outside: Tensor | None,
    skip: Tensor,
    skip_bias: Tensor,
    matrices: tuple[Tensor, Tensor, Tensor, Tensor],
    gelu: bool,
) -> Tensor:
    """gelu(W x + b + F^-1 filter F prod_i (A_i x + a_i)), or the same without the gelu, fused.

    Shapes as for `modern_block`: the A_i are stacked in weight (order*C, C), the a_i in bias (order*C,), W is skip
    (C, C), b skip_bias (C,); the filter is (K, M, C, 2), or (K, M, C, C, 2) with the input channel first. Everything is
    in float32, under bfloat16 autocast too.
    """
    from hofno.layers.kernels.classic import FusedClassicBlock

    return FusedClassicBlock.apply(  # pyright: ignore[reportReturnType]
        x, weight, bias, filter_, outside, skip, skip_bias, matrices, gelu
    )


def classic_block_plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    filter_: Tensor,
    outside: Tensor | None,
    skip: Tensor,
    skip_bias: Tensor,
    matrices: tuple[Tensor, Tensor, Tensor, Tensor],
    gelu: bool,
) -> Tensor:
    """What `classic_block` computes, in plain PyTorch and any dtype."""
    filtered = _filtered_product_plain(x, weight, bias, filter_, outside, matrices)
    u = functional.linear(x, skip, skip_bias) + filtered
    return functional.gelu(u) if gelu else u


def _filtered_product_plain(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    filter_: Tensor,
    outside: Tensor | None,
    matrices: tuple[Tensor, Tensor, Tensor, Tensor],
) -> Tensor:
    """F^-1 filter F prod_i (W_i h + b_i), (b, n1, n2, C)."""
    last, last_inverse, leading, leading_inverse = (m.to(h.dtype) for m in matrices)
    batch, n1, _, channels = h.shape
    kept, m = filter_.shape[:2]
    stacked = functional.linear(h, weight, bias)  # (..., order*C)
    product = stacked.unflatten(-1, (-1, channels)).prod(dim=-2)
    s = (last @ product).reshape(batch, 2 * n1, m * channels)
    spectrum = (leading @ s).reshape(batch, 2, kept, m, channels)
    if outside is not None:
        spectrum = spectrum + outside.to(h.dtype).unsqueeze(-1) * bias.unflatten(0, (-1, channels)).prod(dim=0)
    spectrum = mode_filter_plain(spectrum, filter_) if filter_.dim() == 4 else mode_mix_plain(spectrum, filter_)
    s = leading_inverse @ spectrum.reshape(batch, 2 * kept, m * channels)
    return last_inverse @ s.reshape(batch, n1, 2 * m, channels)


def mlp(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor) -> Tensor:
    """W2 gelu(W1 x + b1) + b2 at every point, fused, without the hidden activations in memory.

    Shapes: x (..., C), up (H, C), up_bias (H,), down (out, H), down_bias (out,) -> (..., out). Everything is in
    float32, under bfloat16 autocast too.
    """
    from hofno.layers.kernels.pointwise import FusedMLP

    y = FusedMLP.apply(x.reshape(-1, x.shape[-1]), up, up_bias, down, down_bias)  # (P, out)
    return y.view(*x.shape[:-1], y.shape[-1])


def mlp_plain(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor) -> Tensor:
    """What `mlp` computes, in plain PyTorch and any dtype."""
    return functional.linear(functional.gelu(functional.linear(x, up, up_bias)), down, down_bias)


def mode_filter(spectrum: Tensor, weight: Tensor) -> Tensor:
    """Multiply every mode and channel by its own complex number, fused.

    Shapes: spectrum (B, 2, K, C) with axis 1 = (real, imaginary), weight (K, C, 2); the result is laid out as spectrum.
    """
    from hofno.layers.kernels.mode_product import ModeFilter

    return ModeFilter.apply(spectrum, weight)


def mode_filter_plain(spectrum: Tensor, weight: Tensor) -> Tensor:
    """What `mode_filter` computes, in plain PyTorch, any dtype and any number of mode axes."""
    real, imaginary = spectrum.unbind(dim=1)  # (B, K.., C) each
    weight_real, weight_imaginary = weight.unbind(dim=-1)  # (K.., C) each
    return torch.stack(
        (
            real * weight_real - imaginary * weight_imaginary,
            real * weight_imaginary + imaginary * weight_real,
        ),
        dim=1,
    )


def mode_mix_plain(spectrum: Tensor, weight: Tensor) -> Tensor:
    """Multiply every mode, (B, 2, K.., C), by a complex matrix of its own, (K.., C, C, 2) with the input first."""
    real, imaginary = spectrum.unbind(dim=1)  # (B, K.., C) each
    mixed = torch.einsum("b...c,...cor->rb...o", real, weight), torch.einsum("b...c,...cor->rb...o", imaginary, weight)
    (real_real, real_imaginary), (imaginary_real, imaginary_imaginary) = mixed
    return torch.stack((real_real - imaginary_imaginary, real_imaginary + imaginary_real), dim=1)
