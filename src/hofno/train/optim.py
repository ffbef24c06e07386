r"""Optimisers: AdamW, and Muon or SOAP (`hofno.train.soap`) for the matrices of the blocks with AdamW for the rest.

AdamW is PyTorch's, and on a GPU, where it runs, one of our own (`hofno.train.adamw`).

Muon replaces the momentum-averaged gradient M of a matrix by the nearest semi-orthogonal matrix, reached with five
steps of an odd quintic Newton-Schulz iteration X <- a X + (b XX' + c (XX')^2) X, and steps by it times
sqrt(max(1, rows/columns)). Matrices of equal shape are orthogonalised in one batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hofno.errors import CheckpointError, SpecError
from hofno.spec import TrainSpec
from hofno.train.adamw import FlatAdamW, flat_adamw_runs
from hofno.train.soap import Soap

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


def orthogonalise(gradients: Tensor) -> Tensor:
    """Approximately the semi-orthogonal factor of each matrix, (n, r, c); bfloat16 inside on CUDA."""
    a, b, c = COEFFICIENTS
    x = gradients.bfloat16() if gradients.is_cuda else gradients.float()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(STEPS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(gradients.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised, for 2-D parameters."""

    def __init__(
        self, params: list[nn.Parameter], lr: float | Tensor, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(p.shape, []).append(p)
            for shape, params in by_shape.items():
                for p in params:
                    if "momentum" not in self.state[p]:
                        self.state[p]["momentum"] = torch.zeros_like(p)
                momenta = [self.state[p]["momentum"] for p in params]
                gradients = torch.stack([p.grad for p in params if p.grad is not None])
                averages = torch.lerp(torch.stack(momenta), gradients, 1.0 - group["momentum"])
                nesterov = torch.lerp(gradients, averages, group["momentum"])
                update = orthogonalise(nesterov).contiguous() * max(1.0, shape[0] / shape[1]) ** 0.5 * group["lr"]
                torch._foreach_copy_(momenta, averages.unbind())  # pyright: ignore[reportPrivateImportUsage]
                torch._foreach_mul_(params, 1.0 - group["lr"] * group["weight_decay"])  # pyright: ignore[reportPrivateImportUsage]
                torch._foreach_sub_(params, update.unbind())  # pyright: ignore[reportPrivateImportUsage]


def is_matrix_of_a_block(name: str, p: nn.Parameter) -> bool:
    """Whether a parameter maps channels to channels inside a block.

    Biases and scales of m factors, (m, c), do not, nor do filters with a number for each mode and channel.
    """
    return p.ndim == 2 and "blocks." in name and name.endswith("weight") and not name.endswith("filter.weight")


def check_optimiser(model: nn.Module, optimiser: str) -> None:
    """Refuse an optimiser of matrices for a model that has none of them."""
    if optimiser != "adamw" and not any(is_matrix_of_a_block(name, p) for name, p in model.named_parameters()):
        raise SpecError(
            f"train.optimiser={optimiser!r} is for matrices inside of blocks, parameters called *blocks.*weight, and "
            f"{type(model).__name__} has none; use 'adamw'"
        )


class Optimisers:
    """One or two optimisers that step together; peak rates are kept, current ones follow the schedule."""

    def __init__(self, model: nn.Module, spec: TrainSpec, device: torch.device) -> None:
        check_optimiser(model, spec.optimiser)
        matrices: list[nn.Parameter] = []
        rest: list[nn.Parameter] = []
        for name, p in model.named_parameters():
            (matrices if spec.optimiser != "adamw" and is_matrix_of_a_block(name, p) else rest).append(p)
        on_gpu, real = device.type == "cuda", not any(p.is_complex() for p in rest)

        def lr(value: float) -> float | Tensor:
            return torch.tensor(value, device=device) if on_gpu else value

        self.peaks: list[float] = []
        self.each: list[torch.optim.Optimizer] = []
        if rest:
            self.peaks.append(spec.lr)
            self.each.append(
                FlatAdamW(rest, lr(spec.lr), weight_decay=spec.weight_decay)
                if flat_adamw_runs(rest)
                else torch.optim.AdamW(
                    rest, lr=lr(spec.lr), weight_decay=spec.weight_decay, fused=real, capturable=on_gpu
                )
            )
        if matrices:
            kind, peak = (Muon, spec.muon_lr) if spec.optimiser == "muon" else (Soap, spec.soap_lr)
            self.peaks.append(peak)
            self.each.append(kind(matrices, lr(peak), weight_decay=spec.weight_decay))

    def set_rate(self, fraction: float) -> None:
        for optimiser, peak in zip(self.each, self.peaks, strict=True):
            for group in optimiser.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(peak * fraction)
                else:
                    group["lr"] = peak * fraction

    def step(self) -> None:
        for optimiser in self.each:
            optimiser.step()

    def tensors(self) -> dict[str, Tensor]:
        """The state of all optimisers by name, for a checkpoint. Each is the live tensor, not a copy."""
        found: dict[str, Tensor] = {}
        for index, optimiser in enumerate(self.each):
            params = [p for group in optimiser.param_groups for p in group["params"]]
            for position, p in enumerate(params):
                for key, value in optimiser.state.get(p, {}).items():
                    found[f"{index}.{position}.{key}"] = value
        return found

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` gave, in place where there is a state already."""
        for index, optimiser in enumerate(self.each):
            params = [p for group in optimiser.param_groups for p in group["params"]]
            for position, p in enumerate(params):
                prefix = f"{index}.{position}."
                for name, value in tensors.items():
                    if name.startswith(prefix):
                        _load(optimiser.state[p], name.removeprefix(prefix), value, p)


def _load(state: dict[str, Any], key: str, value: Tensor, p: nn.Parameter) -> None:
    """Put a copy of a tensor into the state of a parameter."""
    live = state.get(key)
    if live is None:
        keep_on_cpu = key == "step" and not p.is_cuda
        state[key] = value.clone() if keep_on_cpu else value.clone().to(p.device)
    elif live.shape != value.shape:
        raise CheckpointError(
            f"expected {key} of shape {tuple(live.shape)} in the state of an optimiser, got {tuple(value.shape)}; "
            "resume with the model and the optimiser it was saved with"
        )
    else:
        live.copy_(value)
