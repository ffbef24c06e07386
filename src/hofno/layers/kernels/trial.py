"""Whether fused kernels run on a GPU at all: tried once for each kind of arguments, before they are relied on.

GPUs differ in how much memory a multiprocessor shares and in what their compiler takes; a kernel that asks for too much
fails when it is started. One sample goes through the block, and back where gradients are wanted; where that fails, the
plain form is used from then on, and one warning says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

_found: dict[tuple[object, ...], bool] = {}


def runs(block: Callable[..., Tensor], x: Tensor, *arguments: object) -> bool:
    """Whether `block(x, *arguments)` runs where x lives. Nothing is tried while a graph is recorded."""
    if not x.is_cuda or torch.cuda.is_current_stream_capturing():
        return True
    shapes = tuple(tuple(a.shape) if isinstance(a, Tensor) else a is None for a in arguments)
    state = torch.get_float32_matmul_precision(), torch.is_autocast_enabled(x.device.type), torch.is_grad_enabled()
    key = (block.__name__, x.device, tuple(x.shape[1:]), shapes, state)
    if key not in _found:
        _found[key] = trial(block, x[:1], *arguments)
    return _found[key]


def trial(block: Callable[..., Tensor], x: Tensor, *arguments: object) -> bool:
    """Take x through the block. Whatever fails there is a reason to warn, but for a lack of memory."""
    back = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(back):
        inputs = [_leaf(a) if isinstance(a, Tensor) else a for a in (x, *arguments)]
        try:
            value = block(*inputs).sum()
            if back:
                torch.autograd.grad(value, [a for a in inputs if isinstance(a, Tensor)])
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            warnings.warn(
                f"fused kernels do not run on {x.device} for points and channels {tuple(x.shape[1:])}: {reason}; plain "
                "PyTorch is used, which is slower",
                RuntimeWarning,
                stacklevel=2,
            )
            return False
    return True


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_()
