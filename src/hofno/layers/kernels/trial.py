"""Whether fused kernels run on a GPU at all: tried once for each kind of arguments, before they are relied on.

GPUs differ in how much memory a multiprocessor shares and in what their compiler takes; a kernel that asks for too much
fails when it is started. The block is called once, and its gradients where they are wanted; where that fails, the plain
form is used from then on, and one warning says so. After a fault inside of a kernel a process can no longer use its
GPU: that is an error, which names the way to start without kernels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from hofno.errors import HofnoError
from hofno.triton_use import SWITCH

_FAULTS = ("illegal memory access", "misaligned address", "launch failure", "illegal instruction")
_found: dict[tuple[object, ...], bool] = {}


def runs(block: Callable[..., Tensor], x: Tensor, *arguments: object) -> bool:
    """Whether `block(x, *arguments)` runs where x lives. Nothing is tried while a graph is recorded.

    Tensors that stand for others, and forward-mode derivatives, are for the plain form.
    """
    tensors = [a for a in (x, *arguments) if isinstance(a, Tensor)]
    if type(x) is not Tensor or any(unpack_dual(a).tangent is not None for a in tensors):
        return False
    if not x.is_cuda:
        return True
    kinds = tuple((tuple(a.shape), a.dtype) if isinstance(a, Tensor) else isinstance(a, bool) and a for a in arguments)
    state = torch.get_float32_matmul_precision(), torch.is_autocast_enabled(x.device.type), torch.is_grad_enabled()
    key = (block.__name__, x.device, tuple(x.shape), kinds, state)
    if torch.cuda.is_current_stream_capturing():
        return _found.get(key, True)
    if key not in _found:
        reason = trial(block, x, *arguments)
        _found[key] = not reason
        if reason:
            warnings.warn(
                f"{block.__name__}: fused kernels do not run on {x.device} for a tensor of {tuple(x.shape)}: {reason}; "
                "plain PyTorch is used, which is slower",
                RuntimeWarning,
                stacklevel=3,
            )
    return _found[key]


def trial(block: Callable[..., Tensor], x: Tensor, *arguments: object) -> str:
    """Why `block(x, *arguments)` or its gradients fail; "" if they do not.

    Wrong arguments and a lack of memory are no fault of the kernels, and raised.
    """
    back = torch.is_grad_enabled()
    untouched = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)  # whatever the caller does to them
    with torch.inference_mode(False), torch.set_grad_enabled(back), untouched:
        inputs = [_leaf(a) if isinstance(a, Tensor) else a for a in (x, *arguments)]
        try:
            value = block(*inputs).sum()
            if back:
                torch.autograd.grad(value, [a for a in inputs if isinstance(a, Tensor)], allow_unused=True)
            if x.device.type == "cuda":
                torch.cuda.synchronize(x.device)  # a fault shows when the kernel is done
        except (HofnoError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if "out of memory" in str(error).lower() or "ALLOC_FAILED" in str(error):
                raise
            reason = (str(error) or type(error).__name__).splitlines()[0]
            if any(fault in reason for fault in _FAULTS):
                raise HofnoError(
                    f"{block.__name__}: a kernel failed on {x.device} for a tensor of {tuple(x.shape)}: {reason}; "
                    f"start again with {SWITCH}=off in the environment, which runs everything in plain PyTorch"
                ) from error
            return reason
    return ""


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_()
