"""An operator scored on arrays that no dataset holds: the same numbers as on a split of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import hofno
from hofno.errors import DataError, ShapeError

RNG = np.random.default_rng(0)


def trained(model: torch.nn.Module, data: hofno.Dataset) -> hofno.Run:
    return hofno.fit(model, data, epochs=1, device="cpu", progress=False)


@pytest.fixture(scope="module")
def grid() -> hofno.Run:
    x = RNG.standard_normal((20, 1, 16))
    return trained(hofno.HOFNO(1, 1, (4,), width=4, depth=1), hofno.from_arrays(x, x**2))


@pytest.fixture(scope="module")
def mesh() -> hofno.Run:
    u, nodes = RNG.standard_normal((20, 1, 8, 8)), RNG.random((20, 2, 8, 8))
    return trained(hofno.HOFNO(3, 1, (3, 3), width=4, depth=1), hofno.from_arrays(u, u**2, nodes))


@pytest.fixture(scope="module")
def cloud() -> hofno.Run:
    u, places = RNG.standard_normal((20, 1, 9)), RNG.random((20, 2, 9))
    model = hofno.PointHO(1, 1, width=4, depth=1, tokens=2, heads=1)
    return trained(model, hofno.from_arrays(u, u**2, places))


def test_on_a_grid(grid: hofno.Run) -> None:
    x = RNG.standard_normal((6, 1, 24))
    expected = hofno.evaluate(grid, hofno.Split(torch.from_numpy(x).float(), torch.from_numpy(x**2).float()))
    wrong = (grid.predict(x) - x**2).reshape(6, -1)
    assert expected["rel_l2"] == pytest.approx(
        (np.linalg.norm(wrong, axis=1) / np.linalg.norm((x**2).reshape(6, -1), axis=1)).mean(), rel=1e-5
    )
    for given in ((x, x**2), [x, x**2], (torch.from_numpy(x), torch.from_numpy(x**2)), hofno.Split(x, x**2)):
        assert hofno.evaluate(grid.surrogate, given) == expected


def test_on_a_mesh(mesh: hofno.Run) -> None:
    u, nodes = RNG.standard_normal((6, 1, 8, 8)), RNG.random((6, 2, 8, 8))
    expected = hofno.evaluate(mesh, hofno.Split(np.concatenate((u, nodes), 1), u**2))
    assert hofno.evaluate(mesh, (u, u**2, nodes)) == expected
    assert hofno.evaluate(mesh, (np.concatenate((u, nodes), 1), u**2)) == expected
    shared = np.broadcast_to(nodes[:1], nodes.shape)
    assert hofno.evaluate(mesh, (u, u**2, nodes[0])) == hofno.evaluate(mesh, (u, u**2, shared))


def test_at_points(cloud: hofno.Run) -> None:
    u, places = RNG.standard_normal((6, 1, 7)), RNG.random((6, 2, 7))
    expected = hofno.evaluate(cloud, hofno.Split(u, u**2, places))
    assert hofno.evaluate(cloud, (u, u**2, places)) == expected
    assert hofno.evaluate(cloud, (list(u), list(u**2), list(places))) == expected
    mask = np.arange(7) < 5
    found = hofno.evaluate(cloud, (u, u**2, places, np.broadcast_to(mask, (6, 7))))
    assert found == pytest.approx(hofno.evaluate(cloud, (u[..., :5], (u**2)[..., :5], places[..., :5])), rel=1e-4)


def test_frames_of_several_fields() -> None:
    frames = RNG.standard_normal((10, 5, 2, 16))
    data = hofno.from_trajectories(frames, fields=True, history=2, seed=None)
    run = trained(hofno.HOFNO(4, 2, (4,), width=4, depth=1), data)
    expected = hofno.evaluate(run, data.test)
    assert hofno.evaluate(run, (frames[9:, :2], frames[9:, 2:])) == expected
    flat = frames.reshape(10, 10, 16)
    assert hofno.evaluate(run, (flat[9:, :4], flat[9:, 4:])) == expected


@pytest.mark.parametrize(
    ("which", "given", "text"),
    [
        ("grid", lambda x, c: x, "evaluate takes one split of a dataset, or arrays .*got ndarray; give data.test"),
        ("grid", lambda x, c: (x,), "got 1 parts"),
        ("grid", lambda x, c: (x, x, c), "trained on a grid; leave coords and mask out"),
        ("grid", lambda x, c: (np.concatenate((x, x), 1), x), "takes 1 channels and the inputs have 2"),
        ("grid", lambda x, c: (x, np.concatenate((x, x), 1)), "predicts 1 channels and the targets have 2"),
        ("grid", lambda x, c: (x, x[:-1]), "x has 6 samples and y has 5"),
        ("grid", lambda x, c: (x, x * np.nan), "y holds 96 values that are NaN"),
        ("grid", lambda x, c: (x[..., None], x[..., None]), "trained on a grid with 1 axes, and the inputs have 2"),
        ("mesh", lambda x, c: (x[..., None], x[..., None]), r"takes 3 channels and .*have 1 .*give \(x, y, coords\)"),
        ("cloud", lambda x, c: (x, x), r"trained at points; give their coords: \(x, y, coords\)"),
        ("cloud", lambda x, c: (x, x, np.concatenate((c, c[:, :1]), 1)), "points of 2 coordinates.* have 3"),
    ],
)
def test_what_does_not_fit(which: str, given: Callable[..., Any], text: str, request: pytest.FixtureRequest) -> None:
    x, coords = RNG.standard_normal((6, 1, 16)), RNG.random((6, 2, 16))
    with pytest.raises((ShapeError, DataError), match=text):
        hofno.evaluate(request.getfixturevalue(which), given(x, coords))
