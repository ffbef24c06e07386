"""What is said of targets that are zero (see `hofno.data.faint`) or hardly vary, before anything is trained on them."""

from __future__ import annotations

from hofno.data.dataset import Dataset
from hofno.data.faint import faint, named, target_norms
from hofno.data.normalise import Normaliser
from hofno.errors import DataError
from hofno.spec import TrainSpec
from hofno.train.losses import RELATIVE

OFFSET = 10.0  # a mean is large beside what varies


def about_offset(targets: Normaliser) -> str | None:
    """A line about targets whose mean is much larger than what varies: relative errors of any model are small there."""
    varies, mean = float(targets.std.square().sum().sqrt()), float(targets.mean.square().sum().sqrt())
    if mean <= OFFSET * varies:
        return None
    return (
        f"targets vary by {varies / mean:.2g} of their mean, so that the mean alone has a relative error of about as "
        "much: judge by mse_standardised, which is 1 there, or train on what differs from the mean"
    )


def check_targets(data: Dataset, spec: TrainSpec) -> str | None:
    """Refuse to train a relative loss on targets without a size; a line about those of validation, if there are any."""
    if spec.loss in RELATIVE:
        fields = 0 if data.rollout is None else data.rollout.fields  # in time, each frame is a target
        wrong = faint(target_norms(data.train.parts.y, fields=fields)).nonzero()
        if len(wrong) > 0:
            place = wrong[0].tolist()
            if fields > 1:  # a frame is so many channels
                place[1] = f"{place[1] * fields}:{(place[1] + 1) * fields}"
            first = ", ".join(map(str, place))
            kind = "frames" if fields else "samples"
            raise DataError(
                f"loss={spec.loss!r} divides by the norm of each target, and {len(wrong)} {kind} of data.train are "
                f"(nearly) zero everywhere, the first data.train.y[{first}]; drop them, or use loss='mse'"
            )
    if len(data.valid) == 0:
        return None
    data.valid.refuse_broken_blocks()
    wrong = faint(target_norms(data.valid.parts.y).unflatten(0, (-1, data.valid.together)).norm(dim=1))
    if bool(wrong.all()):
        raise DataError(
            "all targets of data.valid are zero, and no relative error can be taken of them; give validation samples "
            "with other targets"
        )
    if not bool(wrong.any()):
        return None
    return (
        f"targets of data.valid are (nearly) zero everywhere, samples {named(wrong.nonzero().flatten())}: their "
        "relative error outweighs all others in valid_rel_l2; drop them"
    )
