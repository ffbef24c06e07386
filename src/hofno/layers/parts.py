r"""The small parts of a block: RMSNorm, DropPath, MLP. All on channel-last tensors (b, *n, c).

On the CPU an elementwise pass over a wide tensor, with the memory asked of the system for its result, costs a good part
of the matrix product beside it. RMSNorm and MLP therefore have a forward and a backward of their own there, equal to
the plain formula up to rounding: RMSNorm takes few passes and keeps its input and one number for each point; the MLP
runs over tiles of rows and uses one tile's room for what is wide again and again, and a norm before it can run inside
the tiles. `lean` says where they may run; elsewhere, and for derivatives of derivatives, the plain formula does. On a
GPU an MLP of few channels and outputs runs through a fused kernel (`hofno.layers.kernels`).
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
from hofno.layers import kernels
from hofno.layers.kernels.trial import runs

EPSILON = 1e-6
TILE = 2**21  # numbers in the widest tensor of one tile: 8 MiB of float32


def lean(x: Tensor, *weights: Tensor) -> bool:
    """Whether `x` and `weights` are plain CPU tensors of one type that nothing is tracing, casting or transforming."""
    return (
        x.device.type == "cpu"
        and type(x) is Tensor
        and x.dtype in (torch.float32, torch.float64)
        and all(weight.dtype == x.dtype for weight in weights)
        and not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
        and all(unpack_dual(part).tangent is None for part in (x, *weights))
    )


def differentiated(*tensors: Tensor | None) -> bool:
    """Whether a gradient with respect to one of these may be asked for."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def tile_rows(width: int) -> int:
    """How many rows make a tile where the widest tensor has `width` columns."""
    return max(1, TILE // width)


def tiles(rows: int, step: int) -> Iterator[slice]:
    """Slices of `step` consecutive rows; the last one may be shorter."""
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def scratch(like: Tensor, step: int, width: int) -> Tensor:
    """Room for `width` numbers in every row of any tile of `like`."""
    return like.new_empty(min(like.shape[0], step), width)


def plain_backward(
    formula: Callable[..., Tensor], inputs: tuple[Tensor | None, ...], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of `formula`, where gradients are enabled as functions that can be differentiated again.

    It is given every input under another name: what one was made of, maybe of another one, is not its business.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        named = [x.view_as(x) if x is not None and x.requires_grad else x for x in inputs]
        wanted = [x for x in named if x is not None and x.requires_grad]
        found = iter(torch.autograd.grad(formula(*named), wanted, grad, create_graph=again))
    return tuple(next(found) if x is not None and x.requires_grad else None for x in inputs)


def _rms_norm(v: Tensor, gain: Tensor, eps: float) -> Tensor:
    return F.rms_norm(v, (v.shape[-1],), gain, eps)


def _inverse_rms(v: Tensor, eps: float) -> Tensor:
    """1 / sqrt(mean_c v^2 + eps), (..., 1)."""
    mean_square = torch.linalg.vector_norm(v, dim=-1, keepdim=True).square_().div_(v.shape[-1])
    return mean_square.add_(eps).rsqrt_()


class _LeanNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, gain: Tensor, eps: float) -> Tensor:
        inverse = _inverse_rms(v, eps)
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


class UnitRows:
    """The rows u of v (rows, c) over their root mean square, a tile at a time, for the linear map after a norm.

    W (gain * u) = (W gain) u: the gain goes into the weight once, and every row is scaled by one number, before the
    product or after it. That number, `inverse`, is all that the backward pass needs besides v. Without a gain there is
    no norm, and the rows are those of v.
    """

    def __init__(self, v: Tensor, gain: Tensor | None, eps: float, step: int, inverse: Tensor | None = None) -> None:
        self.v, self.gain = v, gain
        self.inverse = _inverse_rms(v, eps) if inverse is None and gain is not None else inverse  # (rows, 1)
        self.step = step
        self.room: Tensor | None = None

    def __getitem__(self, part: slice) -> Tensor:
        """The rows of one tile, until the next tile is asked for."""
        if self.inverse is None:
            return self.v[part]
        if self.room is None:
            self.room = scratch(self.v, self.step, self.v.shape[1])
        return torch.mul(self.v[part], self.inverse[part], out=self.room[: part.stop - part.start])

    def linear(self, part: slice, folded: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        """u W^T + bias of one tile; the scale comes after the product, in the pass that adds the bias."""
        torch.mm(self.v[part], folded.T, out=out)
        return out.add_(bias) if self.inverse is None else torch.addcmul(bias, out, self.inverse[part], out=out)

    def fold(self, weight: Tensor) -> Tensor:
        """The weight for these rows."""
        return weight if self.gain is None else weight * self.gain

    def unfold(self, d_folded: Tensor, weight: Tensor) -> tuple[Tensor, Tensor | None]:
        """Gradients of the weight and of the gain, from that of the folded weight."""
        if self.gain is None:
            return d_folded, None
        return d_folded * self.gain, (d_folded * weight).sum(0)

    def backward_(self, d: Tensor, unit: Tensor, part: slice, add: Tensor | None = None) -> None:
        """Turn `d`, the gradient of the rows `unit` of a tile, into the gradient of the same rows of v, plus `add`."""
        if self.inverse is None:
            return
        along = (d * unit).sum(1, keepdim=True).div_(-d.shape[1])
        d.addcmul_(unit, along)
        if add is None:
            d.mul_(self.inverse[part])
        else:
            torch.addcmul(add, d, self.inverse[part], out=d)


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


def check_drop_path(rate: float) -> None:
    """Refuse what is no probability."""
    if not 0.0 <= rate < 1.0:
        raise SpecError(f"drop_path is a probability of at least 0 and below 1; got {rate}")


class DropPath(nn.Module):
    """In training, drop the whole branch of a sample with probability `rate` and scale the others to match."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        check_drop_path(rate)
        self.rate = rate

    @property
    def drops(self) -> bool:
        return self.training and self.rate > 0.0

    def scales(self, *shape: int, like: Tensor) -> Tensor:
        """Drawn for each branch of a sample: 0 where it is dropped, 1 / (1 - rate) elsewhere."""
        return torch.empty(shape, device=like.device, dtype=like.dtype).bernoulli_(1.0 - self.rate) / (1.0 - self.rate)

    def forward(self, v: Tensor) -> Tensor:
        return v * self.scales(len(v), *(1,) * (v.ndim - 1), like=v) if self.drops else v


def _mlp(
    v: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, gain: Tensor | None, eps: float
) -> Tensor:
    """MLP(v), or where a gain is given v + MLP(norm v)."""
    h = v if gain is None else _rms_norm(v, gain, eps)
    out = F.linear(F.gelu(F.linear(h, up, up_bias)), down, down_bias)
    return out if gain is None else v + out


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
        gain: Tensor | None,
        eps: float,
        keep: bool,
        overwrite: bool,
    ) -> Tensor:
        rows, hidden = v.shape[0], up.shape[0]
        step = tile_rows(hidden)
        units = UnitRows(v, gain, eps, step)
        weight = units.fold(up)
        active = scratch(v, step, hidden)
        kept = v.new_empty(rows, hidden) if keep else None
        out = v if overwrite else v.new_empty(rows, down.shape[0])
        for part in tiles(rows, step):
            a = active[: part.stop - part.start]
            h = a if kept is None else kept[part]
            units.linear(part, weight, up_bias, out=h)
            torch.ops.aten.gelu.out(h, out=a)
            if gain is None:
                out[part] = down_bias
            else:
                torch.add(v[part], down_bias, out=out[part])
            out[part].addmm_(a, down.T)
        if keep:
            ctx.save_for_backward(v, up, up_bias, down, down_bias, gain, units.inverse, kept)
            ctx.eps = eps
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        v, up, up_bias, down, down_bias, gain, inverse, kept = ctx.saved_tensors
        (grad,) = grads
        if torch.is_grad_enabled():
            inputs = (v, up, up_bias, down, down_bias, gain)
            return *plain_backward(partial(_mlp, eps=ctx.eps), inputs, grad), None, None, None
        step = tile_rows(up.shape[0])
        units = UnitRows(v, gain, ctx.eps, step, inverse)
        weight = units.fold(up)
        active = scratch(v, step, up.shape[0])
        d_v = torch.empty_like(v)
        d_up, d_up_bias, d_down = torch.zeros_like(up), torch.zeros_like(up_bias), torch.zeros_like(down)
        for part in tiles(v.shape[0], step):
            a, h, unit = active[: part.stop - part.start], kept[part], units[part]
            torch.ops.aten.gelu.out(h, out=a)
            d_down.addmm_(grad[part].T, a)
            torch.mm(grad[part], down, out=a)
            d = torch.ops.aten.gelu_backward.grad_input(a, h, grad_input=a)
            d_up_bias.add_(d.sum(0))
            d_up.addmm_(d.T, unit)
            torch.mm(d, weight, out=d_v[part])
            units.backward_(d_v[part], unit, part, grad[part])
        d_up, d_gain = units.unfold(d_up, up)
        return d_v, d_up, d_up_bias, d_down, grad.sum(0), d_gain, None, None, None


class MLP(nn.Module):
    """Linear, GELU, Linear.

    Where it runs as one function (on the CPU, and on a GPU with few channels), forward hooks of the parts do not fire.
    """

    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, out)

    def forward(self, v: Tensor) -> Tensor:
        maps = self._maps()
        if lean(v, *maps):
            return self._tiled(v)
        fits = not torch.compiler.is_compiling() and kernels.mlp_supported(v, self.up.weight, self.down.weight)
        if fits and runs(kernels.mlp, v, *maps):
            return kernels.mlp(v, *maps)
        return self.down(F.gelu(self.up(v)))

    def residual(self, v: Tensor, norm: RMSNorm, spent: bool = False) -> Tensor:
        """v + MLP(norm v) of (..., width); a `spent` v is overwritten where there is no gradient to be found.

        On the CPU this is one function, and hooks of the MLP and of the norm do not fire.
        """
        if lean(v, *self._maps(), norm.weight):
            return self._tiled(v, norm.weight, norm.eps, spent)
        return v + self(norm(v))

    def _maps(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.up.weight, self.up.bias, self.down.weight, self.down.bias

    def _tiled(self, v: Tensor, gain: Tensor | None = None, eps: float = 0.0, spent: bool = False) -> Tensor:
        inputs = (v.reshape(-1, v.shape[-1]), *self._maps(), gain)
        keep = differentiated(*inputs)
        out = _TiledMLP.apply(*inputs, eps, keep, spent and not keep)
        return out.view(*v.shape[:-1], out.shape[-1])
