"""AdamW for a GPU: one kernel for the weights of all tensors, many programs for each tensor.

PyTorch's fused AdamW gives 65536 weights to a program. A network of a few million weights then keeps a third of a large
GPU busy, and waits for memory. Here moments lie in two flat tensors, and a program takes a thousand weights
(`hofno.train.adamw_kernel`). A step can be captured in a CUDA graph, if one like it was taken before.

The kernel finds gradients by their addresses. Those are arguments of the launch that writes them to the GPU, so that a
graph has its own, and nothing is copied from the host.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from hofno.errors import HofnoError
from hofno.layers.kernels.trial import runs
from hofno.triton_use import kernels_run_on


class _Flat:
    """The state of a group of parameters, one after another, and the tables of where their weights are."""

    def __init__(self, params: list[nn.Parameter]) -> None:
        self.params = params
        sizes = [p.numel() for p in params]
        *self.places, total = accumulate(sizes, initial=0)
        first = params[0].detach()
        self.average, self.square = first.new_zeros(total), first.new_zeros(total)
        self.steps = first.new_zeros(len(params))
        self.gradients = first.new_zeros(len(params), dtype=torch.int64)
        self.slots = self.gradients.unbind()
        self.addresses: tuple[int, ...] = ()
        self.table = self.counted = first.new_zeros(0)
        self.recorded: list[tuple[Tensor, Tensor]] = []

    def views(self, index: int) -> dict[str, Tensor]:
        """The state of one parameter, named as in `torch.optim.AdamW`."""
        p, start = self.params[index], self.places[index]
        return {
            "step": self.steps[index],
            "exp_avg": self.average[start : start + p.numel()].view(p.shape),
            "exp_avg_sq": self.square[start : start + p.numel()].view(p.shape),
        }

    def find_weights(self, learning: list[int]) -> None:
        """Set `table`, and `counted`, which is 1 for those that learn: anew if those are others, or have moved."""
        capturing = self.average.is_cuda and torch.cuda.is_current_stream_capturing()
        addresses = tuple(number for i in learning for number in (i, self.params[i].data_ptr()))
        if addresses != self.addresses:
            if capturing:
                raise HofnoError(
                    "AdamW is to be captured for parameters it has not found yet; take a step for the same ones before"
                )
            self._tabulate(learning)
            self.addresses = addresses
        if capturing:  # the graph reads these again
            self.recorded.append((self.table, self.counted))

    def find_gradients(self, gradients: dict[int, Tensor]) -> None:
        """Set the addresses of gradients."""
        self.gradients.zero_()
        slots, addresses = [self.slots[i] for i in gradients], [gradient.data_ptr() for gradient in gradients.values()]
        torch._foreach_add_(slots, addresses)  # pyright: ignore[reportPrivateImportUsage]

    def _tabulate(self, learning: list[int]) -> None:
        from hofno.train.adamw_kernel import table_of

        params: list[Tensor] = [self.params[i].detach() for i in learning]
        for p in params:
            if not _fits(p, self.average.device):
                raise HofnoError(
                    f"expected contiguous float32 weights on {self.average.device}, got {tuple(p.shape)}, {p.dtype} "
                    f"on {p.device}; make a new optimiser after changing a model"
                )
        self.table = table_of(params, [self.places[i] for i in learning], learning)
        counted = torch.zeros(len(self.params), dtype=torch.float32)
        counted[learning] = 1.0
        self.counted = counted.to(self.average.device)


class FlatAdamW(torch.optim.Optimizer):
    """AdamW as `torch.optim.AdamW` defines it, for contiguous float32 parameters that live together.

    The state is there from the start; that of a parameter is part of a flat tensor, to be changed in place only.
    Parameters without a gradient are left alone, and each counts its own steps.
    """

    def __init__(
        self,
        params: list[nn.Parameter],
        lr: float | Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        self._flats: list[_Flat] = []
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self._lay_out()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What `load_state_dict` or a copy brings is put where the flat state is."""
        super().__setstate__(state)
        self.__dict__.setdefault("_flats", [])
        self._lay_out()

    def _lay_out(self) -> None:
        """Make all of the state part of flat tensors, with the values it has."""
        for group in self.param_groups[len(self._flats) :]:
            self._flats.append(_Flat(group["params"]))
        for flat in self._flats:
            for index, p in enumerate(flat.params):
                views = flat.views(index)
                for key, value in self.state[p].items():
                    views[key].copy_(value)
                self.state[p] = views

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        from hofno.train.adamw_kernel import adamw_step

        for group, flat in zip(self.param_groups, self._flats, strict=True):
            gradients = {i: _dense(p.grad) for i, p in enumerate(flat.params) if p.grad is not None}
            if not gradients:
                continue
            flat.find_weights(list(gradients))
            flat.find_gradients(gradients)
            flat.steps.add_(flat.counted)
            rate, place = group["lr"], flat.average.device
            lr = (rate if isinstance(rate, Tensor) else torch.full((), rate, device=place)).to(place, torch.float32)
            options = group["betas"], group["eps"], group["weight_decay"]
            adamw_step(flat.table, flat.gradients, flat.average, flat.square, flat.steps, lr, *options)
            for index in gradients:
                increment_version(flat.params[index])


def flat_adamw_runs(params: list[nn.Parameter]) -> bool:
    """Whether these are parameters on a GPU that `FlatAdamW` takes, and its kernel was tried and runs there."""
    if not params or not params[0].is_cuda or not kernels_run_on(params[0]):
        return False
    device = params[0].device
    with torch.no_grad():
        return all(_fits(p, device) for p in params) and runs(flat_adamw_step, torch.zeros(1, device=device))


def flat_adamw_step(weights: Tensor) -> Tensor:
    """Weights after a step with gradients of one, and a rate of one."""
    p = nn.Parameter(weights.detach().clone())
    p.grad = torch.ones_like(p)
    FlatAdamW([p], 1.0).step()
    return p.detach()


def _fits(p: Tensor, device: torch.device) -> bool:
    return p.dtype == torch.float32 and p.device == device and p.is_contiguous()


def _dense(gradient: Tensor) -> Tensor:
    """As the kernel reads it."""
    return gradient.float().resolve_neg().contiguous()
