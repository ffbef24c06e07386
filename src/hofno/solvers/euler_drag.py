r"""Where drag comes from: the entropy that is made in the flow (Oswatitsch).

    D U = T integral rho s U.n  over all outflow,        s = c_v log(p / rho^gamma), 0 in the free stream

To first order in s, the drag of a body in steady adiabatic flow is the entropy that leaves with its wake, and entropy
is made in shocks, or by the error of a scheme. What is made around the nodes of a shock, added up, is the wave drag;
what is made at the nose, where the flow is smooth, is the drag of the mesh.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hofno.solvers.euler import GAMMA, Euler, primitive


def entropy_drag(flow: Euler, state: Tensor) -> Tensor:
    """Drag coefficients (chord 1) of the entropy made around every node; on the cut, both places hold their own side.

    (b, 4, I, J) -> (b, I, J)
    """
    rho, u, v, p = primitive(state).unbind(1)
    far_rho, far_u, far_v, far_p = flow.exterior[:, :, 0, -1].unbind(1)
    far = torch.log(far_p / far_rho**GAMMA)
    entropy = (torch.log(p / rho**GAMMA) - far[:, None, None]) / (GAMMA - 1)
    carried = rho * entropy * torch.stack((u, v))  # (2, b, I, J)
    on_i = (0.5 * (carried[..., 1:, :] + carried[..., :-1, :]) * flow.normal_i.transpose(0, 1)).sum(0)
    on_j = (0.5 * (carried[..., 1:] + carried[..., :-1]) * flow.normal_j.transpose(0, 1)).sum(0)
    made = torch.zeros_like(rho)
    made[:, :-1] += on_i
    made[:, 1:] -= on_i
    made[..., :-1] += on_j
    made[..., 1:] -= on_j
    speed_squared = far_u**2 + far_v**2
    scale = far_p / far_rho / (0.5 * far_rho * speed_squared * speed_squared.sqrt())
    return made * scale[:, None, None]
