"""How far the predictions of every sample lie apart whose mean is scored, and the bounds that follow from it."""

from __future__ import annotations

import torch
from torch import Tensor

from hofno.data.dataset import Split
from hofno.data.spread import relative_spread
from hofno.evaluation.own import check_data
from hofno.surrogate import Surrogate, check_batch_size


def spreads(surrogate: Surrogate, split: Split, batch_size: int = 32) -> Tensor:
    """Relative spread of each sample of a split, or of those that belong together, (n,) in float64."""
    check_batch_size(batch_size)
    check_data(surrogate, split)
    split.refuse_broken_blocks()
    fields, found = surrogate.targets.mean.shape[0], []
    steps = None if surrogate.rollout is None else split.parts.y.shape[1] // fields
    for part in split.batches(-(-batch_size // split.together) * split.together):
        moments = surrogate.spread_tensor(part.x, batch_size, steps, coords=part.coords, mask=part.mask)
        found.append(relative_spread(*moments, split.together))
    return torch.cat(found)


def has_spread(surrogate: Surrogate) -> bool:
    """Whether its predictions are means of several."""
    return len(surrogate.variants()) > 1


def known_spreads(surrogate: Surrogate, split: Split) -> Tensor | None:
    """The spreads of a split, where the operator knows errors in units of them."""
    known = surrogate.experience
    if known is None or len(known.ratios) == 0 or not known.is_of(surrogate.symmetry) or not has_spread(surrogate):
        return None
    return spreads(surrogate, split)
