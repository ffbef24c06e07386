"""What is compared: our networks, the plain form, and neuraloperator; each built from one shape and one seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from hofno.bench.measure import ParityError
from hofno.bench.neuralop import build_neuraloperator
from hofno.bench.plain import ModelShape, PlainNetwork, plain_layout

SEED = 0
LARGEST_PARAMETER_DIFFERENCE = 0.05


@dataclass(frozen=True)
class Subject:
    """One side of a comparison; `rival` is the key of our network that does the same work."""

    key: str
    label: str
    rival: str | None = None


def subjects(shape: ModelShape) -> list[Subject]:
    """Our network and its plain form; our network of order 1, if that is another, and neuraloperator's FNO."""
    ours = Subject("hofno", f"hofno, order {shape.order}")
    linear = ours if shape.order == 1 else Subject("fno", "hofno, order 1")
    plain = Subject("plain", f"plain form, order {shape.order}", ours.key)
    peer = Subject("neuraloperator", "neuraloperator FNO", linear.key)
    return [ours, plain, peer] if linear is ours else [ours, plain, linear, peer]


def build(key: str, shape: ModelShape, device: torch.device) -> nn.Module:
    """The network of a subject; the plain form has the weights of ours."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        if key == "neuraloperator":
            return build_neuraloperator(shape).to(device)
        ours = replace(shape, order=1 if key == "fno" else shape.order).build()
        if key != "plain":
            return ours.to(device)
        plain = PlainNetwork(shape)
        plain.load_state_dict(plain_layout(dict(ours.state_dict())))
        return plain.to(device)


def fields(shape: ModelShape, points: int, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Inputs (b, c, n, n) and targets (b, 1, n, n), the same for every subject."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(batch, shape.in_channels, points, points, generator=generator)
    y = torch.randn(batch, 1, points, points, generator=generator)
    return x.to(device), y.to(device)


def real_parameters(model: nn.Module) -> int:
    """Learned real numbers: a complex one counts twice."""
    return sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters())


def check_parameters(counts: dict[str, int], compared: list[Subject]) -> None:
    """Refuse rivals whose sizes are further apart than a few per cent."""
    for subject in compared:
        if subject.rival is None:
            continue
        ours, theirs = counts[subject.rival], counts[subject.key]
        if abs(theirs - ours) > LARGEST_PARAMETER_DIFFERENCE * ours:
            raise ParityError(
                f"{subject.label} and {subject.rival} must have the same number of real parameters to "
                f"{LARGEST_PARAMETER_DIFFERENCE:.0%}; got {theirs} and {ours}; nothing was timed"
            )


@contextmanager
def float32_products(tf32: bool) -> Iterator[None]:
    """Products of float32 matrices, and convolutions, with TF32 inputs on a GPU or in full, for every subject alike."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
