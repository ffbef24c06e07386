r"""The small parts of a block: RMSNorm, DropPath, MLP. All on channel-last tensors (b, *n, c).

On the CPU an elementwise pass over a wide tensor, with the memory asked of the system for its result, costs a good part
of the matrix product beside it. RMSNorm and MLP therefore have a forward and a backward of their own there, equal to
the plain formula up to rounding: RMSNorm takes few passes and keeps its input and one number for each point; the MLP
runs over tiles of rows and uses one tile's room for what is wide again and again. `lean` says where they may run;
elsewhere, and for derivatives of derivatives, the plain formula does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual

from hofno.errors import SpecError

EPSILON = 1e-6
TILE = 2**21  # numbers in the widest tensor of one tile: 8 MiB of float32


def lean(x: Tensor, weight: Tensor) -> bool:
    """Whether `x` and `weight` are plain CPU tensors of one type that nothing is tracing, casting or transforming."""
    return (
        x.device.type == "cpu"
        and type(x) is Tensor
        and x.dtype in (torch.float32, torch.float64)
        and weight.dtype == x.dtype
        and not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
        and unpack_dual(x).tangent is None
        and unpack_dual(weight).tangent is None
    )


def differentiated(*tensors: Tensor) -> bool:
    """Whether a gradient with respect to one of these may be asked for."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def tile_rows(width: int) -> int:
    """How many rows of `width` numbers make a tile."""
    return max(1, TILE // width)


def tiles(rows: int, width: int) -> Iterator[slice]:
    """Slices of consecutive rows, a tile each."""
    step = tile_rows(width)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def scratch(like: Tensor, width: int) -> Tensor:
    """Room for one tile of rows of `width` numbers, for any tile of the rows of `like`."""
    return like.new_empty(min(like.shape[0], tile_rows(width)), width)


def plain_backward(
    formula: Callable[..., Tensor], inputs: tuple[Tensor, ...], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of `formula` as functions that can be differentiated again."""
    wanted = [x for x in inputs if x.requires_grad]
    found = iter(torch.autograd.grad(formula(*inputs), wanted, grad, create_graph=True))
    return tuple(next(found) if x.requires_grad else None for x in inputs)


def _rms_norm(v: Tensor, gain: Tensor, eps: float) -> Tensor:
    return F.rms_norm(v, (v.shape[-1],), gain, eps)


class _LeanNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, gain: Tensor, eps: float) -> Tensor:
        mean_square = torch.linalg.vector_norm(v, dim=-1, keepdim=True).square_().div_(v.shape[-1])
        inverse = mean_square.add_(eps).rsqrt_()  # (..., 1)
        ctx.save_for_backward(v, gain, inverse)
        ctx.eps = eps
        return torch.mul(v, inverse).mul_(gain)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        v, gain, inverse = ctx.saved_tensors
        (grad,) = grads
        if torch.is_grad_enabled():
            return *plain_backward(partial(_rms_norm, eps=ctx.eps), (v, gain), grad), None
        unit = v * inverse
        both = unit * grad
        rows = both.reshape(-1, v.shape[-1])
        d_gain = rows.sum(0)
        along = torch.mv(rows, gain).div_(-v.shape[-1]).view_as(inverse)
        d_v = torch.mul(grad, gain, out=both).addcmul_(unit, along).mul_(inverse)
        return d_v, d_gain, None


class RMSNorm(nn.Module):
    """v / sqrt(mean_c v^2 + eps) * weight."""

    def __init__(self, width: int, eps: float = EPSILON) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, v: Tensor) -> Tensor:
        if lean(v, self.weight):
            return _LeanNorm.apply(v, self.weight, self.eps)
        return _rms_norm(v, self.weight.to(v.dtype), self.eps)


class DropPath(nn.Module):
    """In training, drop the whole branch of a sample with probability `rate` and scale the others to match."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise SpecError(f"drop_path is a probability of at least 0 and below 1; got {rate}")
        self.rate = rate

    def forward(self, v: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return v
        keep = torch.rand((v.shape[0],) + (1,) * (v.ndim - 1), device=v.device) >= self.rate
        return v * (keep.to(v.dtype) / (1.0 - self.rate))


def _mlp(v: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, add: Tensor | None = None) -> Tensor:
    out = F.linear(F.gelu(F.linear(v, up, up_bias)), down, down_bias)
    return out if add is None else out + add


class _TiledMLP(torch.autograd.Function):
    """`_mlp` of (rows, c) in tiles of rows. In training the hidden activations before the gelu are kept."""

    @staticmethod
    def forward(
        ctx: Any,
        v: Tensor,
        up: Tensor,
        up_bias: Tensor,
        down: Tensor,
        down_bias: Tensor,
        add: Tensor | None,
        keep: bool,
    ) -> Tensor:
        rows, hidden = v.shape[0], up.shape[0]
        active = scratch(v, hidden)  # (tile, hidden)
        kept = v.new_empty(rows, hidden) if keep else None
        out = v.new_empty(rows, down.shape[0])
        for part in tiles(rows, hidden):
            a = active[: part.stop - part.start]
            h = a if kept is None else kept[part]
            torch.mm(v[part], up.T, out=h).add_(up_bias)
            torch.ops.aten.gelu.out(h, out=a)
            if add is None:
                out[part] = down_bias
            else:
                torch.add(add[part], down_bias, out=out[part])
            out[part].addmm_(a, down.T)
        ctx.save_for_backward(v, up, up_bias, down, down_bias, add, kept)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        v, up, up_bias, down, down_bias, add, kept = ctx.saved_tensors
        (grad,) = grads
        if torch.is_grad_enabled():
            inputs = (v, up, up_bias, down, down_bias)
            if add is None:
                return *plain_backward(_mlp, inputs, grad), None, None
            return *plain_backward(_mlp, (*inputs, add), grad), None
        hidden = up.shape[0]
        active, d_hidden = scratch(v, hidden), scratch(v, hidden)
        d_v = torch.empty_like(v)
        d_up, d_up_bias, d_down = torch.zeros_like(up), torch.zeros_like(up_bias), torch.zeros_like(down)
        for part in tiles(v.shape[0], hidden):
            a, d = active[: part.stop - part.start], d_hidden[: part.stop - part.start]
            torch.ops.aten.gelu.out(kept[part], out=a)
            d_down.addmm_(grad[part].T, a)
            torch.mm(grad[part], down, out=a)
            torch.ops.aten.gelu_backward.grad_input(a, kept[part], grad_input=d)
            d_up.addmm_(d.T, v[part])
            d_up_bias.add_(d.sum(0))
            torch.mm(d, up, out=d_v[part])
        return d_v, d_up, d_up_bias, d_down, grad.sum(0), None if add is None else grad, None


class MLP(nn.Module):
    """Linear, GELU, Linear."""

    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, out)

    def forward(self, v: Tensor, add: Tensor | None = None) -> Tensor:
        """The MLP of (..., width); `add`, of the shape of the result, is added to it in the same pass."""
        if lean(v, self.up.weight):
            weights = (self.up.weight, self.up.bias, self.down.weight, self.down.bias)
            rows = None if add is None else add.reshape(-1, add.shape[-1])
            keep = differentiated(v, *weights, *(() if rows is None else (rows,)))
            out = _TiledMLP.apply(v.reshape(-1, v.shape[-1]), *weights, rows, keep)
            return out.view(*v.shape[:-1], out.shape[-1])
        out = self.down(F.gelu(self.up(v)))
        return out if add is None else out + add
