r"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al., arXiv 2409.11321), for matrices.

With the averages L = <G G'> and R = <G' G> of a matrix's gradients G and their eigenvectors U and V, Adam runs on
U' G V, entry by entry, and its step N is taken back: U N V'. Were the entries uncorrelated in that basis, dividing them
by their root mean squares would be preconditioning by the full matrix of second moments.

The eigenvectors are followed rather than computed. Each step turns a basis Q by one Jacobi rotation of all pairs at
once, towards the nearer eigenvectors of the average S,

    A = Q' S Q,   d_ij = A_jj - A_ii,   W_ij = sign(d_ij) A_ij / (|d_ij|/2 + sqrt(d_ij^2/4 + A_ij^2)),   W' = -W
    Q <- Q (1 + W + W^2/2), orthonormal again by one Newton-Schulz step  X (3 - X'X)/2

W lowers the sum of squares off the diagonal of A to first order, and near the eigenbasis it is Newton's step. It is
shortened to a turn of half a radian at most, so that every turn is stable, also from a poor basis. All of it is matrix
products: no factorisation and no word from the device to the host, so a step can be captured in a CUDA graph.

Good values: a learning rate of 0.02. Spectral filters stay with AdamW: in a basis of their channels, or of channels and
modes, a small Poisson problem was learned no better.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

LARGEST_TURN = 0.5
TINY = 1e-30
NOISE = 1e-6


def turned(basis: Tensor, moments: Tensor) -> Tensor:
    """`basis`, (.., n, n) with orthonormal columns, turned towards the eigenvectors of `moments`, (.., n, n)."""
    a = basis.mT @ moments @ basis
    a = a / (a.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] + TINY)
    diagonal = a.diagonal(dim1=-2, dim2=-1)
    gap = diagonal.unsqueeze(-2) - diagonal.unsqueeze(-1)
    upper = (torch.where(gap < 0, -a, a) / (gap.abs() / 2 + (gap.square() / 4 + a.square()).sqrt() + NOISE)).triu(1)
    turn = upper - upper.mT
    angle = upper.norm(dim=(-2, -1), keepdim=True)  # bounds each angle of the turn
    turn = turn * (LARGEST_TURN / angle.clamp_min(LARGEST_TURN))
    x = basis + basis @ (turn + turn @ turn / 2)
    return 1.5 * x - 0.5 * x @ (x.mT @ x)


class Soap(torch.optim.Optimizer):
    """Adam in a basis that is turned at every step, for 2-D parameters.

    Matrices of equal shape step in one batch; their state is kept stacked, under the first of them. It is there from
    the start: a basis starts as the identity, where SOAP is Adam.
    """

    def __init__(
        self,
        params: list[nn.Parameter],
        lr: float | Tensor,
        betas: tuple[float, float] = (0.95, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        for group in self.param_groups:
            for stack in _of_equal_shape(group["params"]):
                first, (rows, columns) = stack[0].detach(), stack[0].shape
                self.state[stack[0]] = {
                    "step": first.new_zeros(()),
                    "average": first.new_zeros(len(stack), rows, columns),
                    "square": first.new_zeros(len(stack), rows, columns),
                    "left": first.new_zeros(len(stack), rows, rows),
                    "right": first.new_zeros(len(stack), columns, columns),
                    "left_basis": torch.eye(rows).to(first).repeat(len(stack), 1, 1),
                    "right_basis": torch.eye(columns).to(first).repeat(len(stack), 1, 1),
                }

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        with _exact_products():
            for group in self.param_groups:
                for stack in _of_equal_shape(group["params"]):
                    changes = self._changes(stack, group["betas"], group["eps"])
                    for p, change in zip(stack, changes, strict=True):
                        p.mul_(1.0 - group["lr"] * group["weight_decay"]).sub_(change * group["lr"])

    def _changes(self, stack: list[Tensor], betas: tuple[float, float], eps: float) -> Tensor:
        """Steps of the matrices, (k, r, c), for a learning rate of 1; moves the state on."""
        state, (beta1, beta2) = self.state[stack[0]], betas
        gradients = torch.stack([torch.zeros_like(p) if p.grad is None else p.grad for p in stack])
        left, right = state["left_basis"], state["right_basis"]
        state["step"].add_(1.0)
        state["average"].lerp_(gradients, 1.0 - beta1)
        rotated, average = left.mT @ torch.stack((gradients, state["average"])) @ right
        state["square"].lerp_(rotated.square(), 1.0 - beta2)
        deviation = (state["square"] / (1.0 - beta2 ** state["step"])).sqrt()
        normalised = average / (1.0 - beta1 ** state["step"]) / (deviation + eps)
        changes = left @ normalised @ right.mT
        state["left"].lerp_(gradients @ gradients.mT, 1.0 - beta2)
        state["right"].lerp_(gradients.mT @ gradients, 1.0 - beta2)
        left.copy_(turned(left, state["left"]))
        right.copy_(turned(right, state["right"]))
        return changes


def _of_equal_shape(params: list[Tensor]) -> list[list[Tensor]]:
    """Those that learn, by shape."""
    stacks: dict[torch.Size, list[Tensor]] = {}
    for p in params:
        if p.requires_grad:
            stacks.setdefault(p.shape, []).append(p)
    return list(stacks.values())


@contextmanager
def _exact_products() -> Iterator[None]:
    """Products in float32 whatever the policy of the run: a basis must stay orthonormal."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
