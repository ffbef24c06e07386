"""The published baselines of the main table: every member of their studies can be, at the size that it should have."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch

from hofno import spec as specs
from hofno.fits import check
from hofno.models import build, parameter_counts
from hofno.problems.registry import problem
from hofno.report import published
from hofno.spec import Spec

FOLDER = Path(__file__).parents[1] / "specs" / "paper"

# millions of real parameters: ours, and published ones of the benchmark where they are known
COUNTS: dict[str, dict[str, tuple[float, float | None]]] = {
    "darcy": {
        "LaMO": (1.0374, 1.15),
        "Transolver": (2.8268, 2.83),
        "Transolver++": (1.7371, None),
        "MSPT": (4.3827, 8.6),
        "ONO": (2.0292, 2.0),
        "GNOT": (1.8569, 1.9),
        "OFormer": (2.5927, 2.56),
        "FactFormer": (3.5135, 1.8),
        "Galerkin": (0.8682, 1.1),
        "HT-Net": (13.360, 13.4),
        "U-Net": (69.242, 69.0),
        "ResNet": (0.5937, None),
        "Swin": (3.2461, 7.5),
        "DeepONet": (2.3770, None),
        "WMT": (9.4147, 9.8),
        "FNO": (37.898, 38.0),
        "U-FNO": (2.6246, 11.0),
        "U-NO": (15.673, 16.0),
        "F-FNO": (7.1021, 6.4),
        "LSM": (19.192, 19.0),
    },
    "navier_stokes": {
        "LaMO": (9.8604, 10.1),
        "Transolver": (11.232, 11.2),
        "Transolver++": (1.7417, None),
        "MSPT": (4.3873, 8.6),
        "ONO": (1.1158, 1.1),
        "GNOT": (1.8615, 1.9),
        "OFormer": (1.7601, 1.85),
        "FactFormer": (3.5158, 7.1),
        "Galerkin": (4.5197, 4.4),
        "HT-Net": (1.0625, 1.06),
        "U-Net": (276.93, 277.0),
        "ResNet": (0.5989, None),
        "Swin": (3.2484, 7.5),
        "DeepONet": (3.1488, None),
        "WMT": (0.0240, 0.07),
        "FNO": (9.4797, 9.5),
        "U-FNO": (10.488, 44.0),
        "U-NO": (30.475, 30.0),
        "F-FNO": (1.0734, 1.07),
        "LSM": (19.193, 19.0),
    },
    "plasticity": {
        "LaMO": (3.7643, 3.8),
        "Transolver": (2.8116, 2.84),
        "Transolver++": (1.7384, None),
        "MSPT": (1.0948, 2.18),
        "Erwin": (1.2647, 1.26),
        "ONO": (1.1058, None),
        "GNOT": (2.8595, 2.9),
        "OFormer": (2.5932, None),
        "FactFormer": (3.5145, None),
        "Galerkin": (0.8472, 0.87),
        "HT-Net": (1.0615, None),
        "U-Net": (69.242, 69.0),
        "ResNet": (0.5945, None),
        "Swin": (3.2471, 7.5),
        "DeepONet": (1.2490, None),
        "WMT": (0.0243, 0.03),
        "FNO": (37.899, 38.0),
        "U-FNO": (41.931, 176.0),
        "U-NO": (8.1164, 160.0),
        "F-FNO": (9.4619, 11.0),
        "LSM": (4.8119, 4.8),
    },
    "airfoil": {
        "LaMO": (1.1467, 1.14),
        "Transolver": (2.8107, 2.81),
        "Transolver++": (1.7366, None),
        "MSPT": (1.0939, 2.15),
        "Erwin": (1.2645, 1.26),
        "ONO": (0.8371, None),
        "GNOT": (2.8592, 2.9),
        "OFormer": (2.5928, None),
        "FactFormer": (3.5137, 0.10),
        "Galerkin": (0.8468, 0.83),
        "HT-Net": (1.0612, None),
        "U-Net": (4.3311, 4.3),
        "ResNet": (0.5943, None),
        "Swin": (3.2458, 7.4),
        "DeepONet": (1.0516, None),
        "WMT": (0.0239, 0.03),
        "FNO": (4.7316, 2.4),
        "U-FNO": (2.6246, 11.0),
        "U-NO": (8.1162, 21.0),
        "F-FNO": (10.248, 10.2),
        "LSM": (4.8117, 4.8),
    },
    "pipe": {
        "MSPT": (1.0939, 2.15),
        "LaMO": (4.0266, 4.0),
        "Transolver": (3.0739, 3.07),
        "Transolver++": (1.7366, None),
        "Erwin": (1.2645, 1.26),
        "ONO": (1.5983, 1.6),
        "GNOT": (4.8386, 4.9),
        "OFormer": (2.5928, None),
        "FactFormer": (3.5137, None),
        "Galerkin": (1.1437, 1.1),
        "HT-Net": (1.0612, None),
        "U-Net": (69.241, 69.0),
        "ResNet": (0.5943, None),
        "Swin": (3.2458, 7.4),
        "DeepONet": (1.0516, None),
        "WMT": (0.0239, 0.03),
        "FNO": (2.3723, 38.0),
        "U-FNO": (41.930, 176.0),
        "U-NO": (8.1162, 883.0),
        "F-FNO": (7.1022, 7.1),
        "LSM": (10.806, 4.8),
    },
    "elasticity": {
        "Erwin": (1.2643, 1.26),
        "LaMO": (1.9701, 1.95),
        "Transolver": (0.7135, 0.71),
        "Transolver++": (1.7366, None),
        "MSPT": (1.0939, 2.15),
        "ONO": (1.1049, None),
        "GNOT": (4.8375, 4.9),
        "OFormer": (2.5926, None),
        "Galerkin": (1.1432, 1.1),
        "FNO": (1.8173, 3.6),
        "DeepONet": (1.0250, 1.03),
    },
}

# why a count is more than 5 % from the published one: by label, or by benchmark and label
REASONS = {
    "MSPT": "published code has an MLP of four times the width inside of its attention",
    "Swin": "the quoted network has a third map in its MLPs",
    "FactFormer": "the quoted network is another one; this is the authors' at the size they have for Darcy",
    "U-FNO": "the quoted network has a U-Net of five scales in place of the small one",
    "WMT": "published to one digit; 4 wavenumbers there for 3 here, and the quoted network's ends are larger",
    "darcy LaMO": "published code has a learned vector for each of 44 x 44 patches",
    "darcy Galerkin": "six blocks as the authors have, eight in the quoted network",
    "darcy F-FNO": "the authors' network, on meshes; the quoted one has no feed-forward maps",
    "plasticity F-FNO": "three axes in the published network, two here",
    "plasticity U-NO": "the quoted network is a U-Net with Fourier layers beside",
    "airfoil U-NO": "the quoted network is a U-Net with Fourier layers beside",
    "pipe U-NO": "the quoted network is a U-Net with Fourier layers beside",
    "airfoil FNO": "24 x 12 modes as Geo-FNO has, 12 x 12 in the count",
    "pipe FNO": "width 32 as Geo-FNO has, 128 in the count",
    "elasticity FNO": "the ways to and from the latent grid have spectral weights in the published network",
    "pipe LSM": "width 48 as its authors have, 32 in the count",
}


@cache
def members_of(name: str) -> list[Spec]:
    return [member for member, _ in specs.load(FOLDER / f"baselines_{name}.toml").members()]


def parameters(member: Spec) -> float:
    """Millions of real numbers at full size."""
    made = problem(member.data.problem, member.data.parameters)
    channels = dict(zip(("in_channels", "out_channels"), made.channels, strict=True))
    with torch.device("meta"):
        return parameter_counts(build(member.model.name, channels | member.model.arguments))["real"] / 1e6


def test_every_benchmark_has_its_study() -> None:
    found = {path.stem.removeprefix("baselines_") for path in FOLDER.glob("baselines_*.toml")}
    assert found == set(COUNTS) == set(published.benchmarks())


@pytest.mark.parametrize("name", COUNTS)
def test_members_can_be_and_are_of_the_main_table(name: str) -> None:
    """Data are those of our own networks' study, so that both see the same samples."""
    members = members_of(name)
    for member in members:
        check(member)
    labels = [member.label for member in members]
    assert labels == list(COUNTS[name])
    table = published.main_table(name)
    anywhere = {label for benchmark in published.benchmarks() for label in published.main_table(benchmark)}
    assert set(labels) <= anywhere
    assert {member.published for member in members} == {name}
    assert table[labels[0]] == min(table[label] for label in labels if label in table), "the strongest stands first"
    own = specs.load(FOLDER / ("navier_stokes_1e-5.toml" if name == "navier_stokes" else f"{name}.toml"))
    assert {member.data_hash for member in members} == {own.data_hash}


@pytest.mark.parametrize("name", COUNTS)
def test_numbers_of_parameters(name: str) -> None:
    for member in members_of(name):
        ours, printed = COUNTS[name][member.label]
        found = parameters(member)
        assert found == pytest.approx(ours, rel=0.005), member.label
        if printed is not None:
            apart = {member.label, f"{name} {member.label}"} & set(REASONS)
            near = found == pytest.approx(printed, rel=0.05)
            assert near or apart, f"{member.label}: {found:.4g}M, published {printed}M"
            if f"{name} {member.label}" in apart:
                assert not near, f"{member.label} needs no reason"


@pytest.mark.parametrize("name", COUNTS)
def test_all_are_trained_alike_where_networks_do_not_say(name: str) -> None:
    """One precision, one seed, captured steps, one loss (DeepONet of points learns the mean square)."""
    for member in members_of(name):
        train = member.train
        assert (member.seed, train.precision, train.cuda_graph, train.optimiser) == (0, "tf32", True, "adamw")
        assert train.epochs >= 100
        assert train.loss == ("rel_l2_gradient" if name == "darcy" else "mse" if train.epochs == 1000 else "rel_l2")
