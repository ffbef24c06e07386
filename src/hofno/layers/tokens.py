r"""The order-m convolution in a learned basis, for functions known at scattered points.

    z_i   = (A_1 v_i)(A_2 v_i)...(A_m v_i)               product of the factors, at the points
    t_j   = sum_i a_ij z_i,      a = softmax_i (K v)      analysis: coefficients, here called tokens
    t'_j  = R_j t_j                                       filter: one number for each token and channel
    y_i   = W (G v_i)(sum_j s_ij t'_j),   s = softmax_j (S v)   synthesis, times one more factor of the point itself

It is the spectral convolution of `hofno.layers.spectral` with other functions in place of plane waves: what analyses
and what synthesises is made from the features of the points, so it can follow the shape of the domain. Channels come in
`heads`, each with a basis of its own. One factor more stays outside of the sums, so that what is far away multiplies
what is here.

The columns of a sum to 1, so each token is a mean of the product over some region: whatever the number and density of
the points, constants have constant tokens, and the quadrature weights that Fourier sums over scattered points need are
learned with the basis. The rows of s sum to 1, so equal tokens give back a constant. Work and memory grow as points
times tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hofno.errors import SpecError
from hofno.layers.factors import parse_factors, pointwise_factors
from hofno.layers.fields import at_least
from hofno.layers.token_blocks import check_heads, merge_heads, split_heads


class TokenConv(nn.Module):
    """Order-m convolution in a learned basis, (b, N, width) -> (b, N, width).

    Args:
        width: number of channels, in and out.
        tokens: basis functions of each head.
        heads: groups of channels with a basis of their own; a divisor of `width`.
        order: number of factors m inside the sums, at least 1.
        factors: the structure of the A_i, see `hofno.layers.factors`; any but "spectral".
    """

    def __init__(self, width: int, tokens: int, heads: int, order: int = 2, factors: str = "dense") -> None:
        super().__init__()
        at_least(1, tokens=tokens, order=order)
        check_heads(width, heads)
        kind = parse_factors(factors)
        if kind.name == "spectral":
            raise SpecError(
                "factors='spectral' are Fourier multipliers, which scattered points have none of; use dense"
            )
        self.width, self.tokens, self.heads, self.order = width, tokens, heads, order
        self.factors = pointwise_factors(kind, width, order)
        self.analysis = nn.Linear(width, heads * tokens)
        self.synthesis = nn.Linear(width, heads * tokens)
        # unequal from the start: tokens that begin alike and are scaled alike would long stay alike
        self.filter = nn.Parameter(1 + 0.5 * torch.randn(heads, tokens, width // heads))
        self.gate = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def extra_repr(self) -> str:
        return f"width={self.width}, tokens={self.tokens}, heads={self.heads}, order={self.order}"

    def forward(self, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Apply the layer to (b, N, width); points that `mask` (b, N) lacks are given values and give none."""
        z = split_heads(self.factors(v), self.heads)  # (b, h, N, c)
        weigh = split_heads(self.analysis(v), self.heads).mT.contiguous()  # (b, h, M, N): sums along memory
        if mask is not None:
            weigh = weigh.masked_fill(~mask[:, None, None, :], torch.finfo(weigh.dtype).min)
        tokens = torch.matmul(weigh.softmax(-1).to(z.dtype), z) * self.filter.to(z.dtype)  # (b, h, M, c)
        share = split_heads(self.synthesis(v), self.heads).softmax(-1).to(z.dtype)  # (b, h, N, M)
        gathered = merge_heads(torch.matmul(share, tokens))  # (b, N, width)
        return self.out(gathered * self.gate(v))
