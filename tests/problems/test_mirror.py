"""Mirror images: what our solvers make of a mirrored foil, pipe, void or die is the image of what they made of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from few_frames import few_frames
from torch import Tensor

from hofno.errors import SpecError
from hofno.geometry import Grid, Mesh, Points
from hofno.problems.airfoil import Airfoil
from hofno.problems.base import Arrays, ignore_progress
from hofno.problems.dies import KNOTS
from hofno.problems.elasticity import TRACTION, Elasticity, published_theta, void_radius
from hofno.problems.pipe import Pipe
from hofno.problems.plasticity import Plasticity
from hofno.problems.registry import PROBLEMS, problem
from hofno.problems.symmetry import Channels, Motion, Symmetry, mirror, square
from hofno.problems.unit_cell import CellMesh, unit_cell, with_void
from hofno.solvers.elasticity import von_mises
from reference import image_of


def image(sample: Arrays, symmetry: Symmetry) -> Arrays:
    """What the last motion makes of samples on a grid or mesh."""
    motion = symmetry.motions[-1]
    return Arrays(image_of(sample.x, motion, motion.inputs), image_of(sample.y, motion, motion.targets))


def gap(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b.astype(np.float64)))


def assert_image(found: Arrays, sample: Arrays, symmetry: Symmetry, tolerance: float) -> None:
    expected = image(sample, symmetry)
    for c in range(sample.x.shape[1]):
        assert gap(found.x[:, c], expected.x[:, c]) < tolerance
    for c in range(sample.y.shape[1]):
        assert gap(found.y[:, c], expected.y[:, c]) < tolerance
        assert gap(sample.y[:, c], expected.y[:, c]) > 100 * tolerance


def test_the_flow_around_a_mirrored_foil(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Airfoil(coarsen=10, pressure=True)  # pyright: ignore[reportCallIssue]
    designs = made.designs("train", 0, 2)

    def sample() -> Arrays:
        flows = made.flows("train", 2, "cpu")
        return Arrays(flows.nodes, flows.fields[:, [4, 3]])

    straight = sample()
    monkeypatch.setattr(Airfoil, "designs", lambda *_: -designs.flip(1))
    assert_image(sample(), straight, made.symmetry, 1e-5)


def test_the_flow_around_a_mirrored_foil_in_streams_from_the_other_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """The angle of attack is an input that changes its sign."""
    counts = {"train": 2, "valid": 1, "test": 1, "coarsen": 10}
    made = Airfoil(mach_range=0.1, incidence_range=3, **counts)  # pyright: ignore[reportCallIssue, reportArgumentType]
    designs, streams = made.designs("train", 0, 2), made.streams("train", 0, 2)
    straight = made.generate(ignore_progress, "cpu")["train"]
    turned = streams * torch.tensor([1, -1])
    monkeypatch.setattr(Airfoil, "designs", lambda *which: -designs.flip(1)[: which[3] - which[2]])
    monkeypatch.setattr(Airfoil, "streams", lambda *which: turned[: which[3] - which[2]])
    assert_image(made.generate(ignore_progress, "cpu")["train"], straight, made.symmetry, 1e-5)


def test_the_flow_through_a_mirrored_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Pipe(train=2, valid=1, test=1, resolution=9, cells=16, modes=10)  # pyright: ignore[reportCallIssue]
    straight = made.generate(ignore_progress)["train"]
    draws = Pipe.draws
    monkeypatch.setattr(Pipe, "draws", lambda *which: -draws(*which))
    assert_image(made.generate(ignore_progress)["train"], straight, made.symmetry, 1e-6)


@pytest.mark.parametrize(("form", "aligned"), [("volume", False), ("frames", True)])
def test_a_block_under_a_mirrored_die(monkeypatch: pytest.MonkeyPatch, form: str, aligned: bool) -> None:
    few_frames(monkeypatch, 3)
    settings: dict[str, Any] = {"train": 2, "valid": 1, "test": 1, "coarsen": 10, "refine": 1}
    made = Plasticity(form=form, aligned=aligned, **settings)  # pyright: ignore[reportArgumentType]
    straight = made.generate(ignore_progress)["train"]
    heights = Plasticity.die_heights
    monkeypatch.setattr(Plasticity, "die_heights", lambda *which: heights(*which)[::-1].copy())
    mirrored = made.generate(ignore_progress)["train"]
    expected = image(straight, made.symmetry)
    assert np.abs(mirrored.x - expected.x).max() < 1e-5
    assert np.abs(mirrored.y - expected.y).max() < 1e-5  # mm
    assert np.abs(straight.y - expected.y).max() > 0.1


def test_dies_are_as_likely_as_their_images() -> None:
    assert np.array_equal(KNOTS, 50 - KNOTS[::-1])
    made = Plasticity()  # pyright: ignore[reportCallIssue]
    heights = np.stack([made.die_heights("train", k) for k in range(400)])
    spread = heights.std(0, ddof=1) / math.sqrt(400)
    assert (np.abs(heights.mean(0) - heights.mean(0)[::-1]) <= 5 * np.hypot(spread, spread[::-1]) + 1e-12).all()


def reflected(theta: Tensor) -> Tensor:
    """Numbers of the void r(pi - phi): cosines of odd waves and sines of even ones change their sign."""
    wave = torch.arange(1, 6)
    sign = 1.0 - 2 * (wave % 2)
    return theta * torch.stack((sign, -sign), 1).flatten().double()


@pytest.mark.parametrize("strain", ["linear", "finite"])
def test_the_stress_around_a_mirrored_void(strain: str) -> None:
    """On the mirrored mesh: the published one is not its own image, whose points lie 0.01 away on average."""
    made = Elasticity(strain=strain)  # pyright: ignore
    theta, mesh = torch.from_numpy(published_theta()[:2]), unit_cell()
    opposite = mesh.nodes * torch.tensor([-1.0, 1.0]) + torch.tensor([1.0, 0.0])
    turned = CellMesh(opposite, mesh.elements[:, [1, 0, 3, 2, 4, 7, 6, 5, 8]], mesh.bottom, mesh.top[:, [1, 0, 2]])

    def solved(numbers: Tensor, on: CellMesh) -> tuple[Tensor, Tensor]:
        solver = made.solver(on)
        angle = torch.atan2(on.nodes[:, 1] - 0.5, on.nodes[:, 0] - 0.5)
        nodes = with_void(on.nodes, void_radius(numbers, angle))
        return solver.points(nodes), von_mises(solver.stress(nodes, solver.solve(nodes, TRACTION)))

    points, stress = solved(theta, mesh)
    signs, offsets = made.symmetry.motions[-1].coords.of(2)
    moved = points * torch.tensor(signs) + torch.tensor(offsets)

    def distance(others: Tensor) -> tuple[Tensor, Tensor]:
        away = torch.cdist(moved, others, compute_mode="donot_use_mm_for_euclid_dist")
        return away.amin(2), away.argmin(2)

    there, expected = solved(reflected(theta), turned)
    away, match = distance(there)
    assert float(away.max()) < 1e-12
    torch.testing.assert_close(stress, expected.gather(1, match), rtol=1e-9, atol=1e-9)
    assert float(distance(solved(reflected(theta), mesh)[0])[0].mean()) > 0.005


def test_voids_and_pipes_are_as_likely_as_their_images() -> None:
    phi = torch.linspace(0, 6, 30, dtype=torch.float64)
    theta = torch.randn(3, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 16
    torch.testing.assert_close(void_radius(reflected(theta), phi), void_radius(theta, math.pi - phi))
    made = Pipe()  # pyright: ignore[reportCallIssue]
    draws = np.stack([made.draws(0, k) for k in range(1000)]) / np.repeat((1, 2), (4, 5))
    assert np.abs(draws.mean(0)).max() < 5 / math.sqrt(3 * 1000)


def test_symmetries_of_problems_fit_their_samples() -> None:
    known = set()
    for name in set(PROBLEMS) - {"arrays", "trajectories"}:  # those of the user's own are files
        forms = [{"form": "volume"}, {"form": "frames"}] if name == "plasticity" else [{}]
        for made in (problem(name, form) for form in forms):
            if made.symmetry is not None:
                known.add(name)
                grid = made.grid_geometry
                made.symmetry.check_places(grid)
                made.symmetry.check(grid.shape)
                made.symmetry.check_channels(*made.channels, grid.dim if isinstance(grid, Points) else 0)
    assert known == {"airfoil", "darcy", "elasticity", "navier_stokes", "pipe", "plasticity"}


def test_symmetries_that_do_not_fit() -> None:
    flip = Channels(signs=(1, -1))
    mesh, cloud = Mesh(shape=(5, 4)), Points(count=7, low=(0.0, 0.0), high=(1.0, 1.0))
    for symmetry, places, message in (
        (square(), mesh, "say what becomes of them"),
        (square(), cloud, "keep their order"),
        (mirror(0, inputs=flip), cloud, "keep their order"),
        (mirror(0), Grid(shape=(4, 4, 4)), "of 2 axes; got 3"),
        (Symmetry(motions=(Motion(),), slide=(1, 0)), mesh, "regular grids"),
    ):
        with pytest.raises(SpecError, match=message) as caught:
            symmetry.check_places(places)
        assert "\n" not in str(caught.value)
    for symmetry in (
        mirror(inputs=Channels(signs=(1, -1, 1))),
        mirror(targets=Channels(offsets=(1.0, 2.0))),
        mirror(coords=Channels(signs=(1,))),
    ):
        with pytest.raises(SpecError, match="give one for each"):
            symmetry.check_channels(2, 1, 2)
    with pytest.raises(SpecError, match="1 or -1"):
        Channels(signs=(1, 0))
    with pytest.raises(SpecError, match="axes 0 to 1"):
        mirror(2)
    with pytest.raises(SpecError, match="one 1 or -1 in each row"):
        Motion(matrix=((1, 0), (1, 0)))
    mirror(0, inputs=flip).check_places(mesh)
    mirror(0, inputs=flip).check((5, 4))
    mirror(coords=flip).check_places(cloud)
