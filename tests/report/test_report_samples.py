"""What a report shows of one test sample: figures on a mesh, curves along its wall, films of bodies that move."""

from __future__ import annotations

import numpy as np
import torch

from hofno.data.dataset import Split
from hofno.problems.airfoil_mesh import c_grid
from hofno.problems.registry import problem
from hofno.report import Page
from hofno.report.scenes import Scene, scene_of
from hofno.study_report import show_sample


def blocks() -> tuple[torch.Tensor, torch.Tensor]:
    """Die (1, 1, I, J, 20) and frames (1, 4, I, J, 20) of a block that does not move."""
    made = problem("plasticity", {"coarsen": 10})
    columns, rows, frames = made.grid_geometry.shape
    x, y = torch.meshgrid(torch.linspace(50, 0, columns), torch.linspace(15, 0, rows), indexing="ij")
    nodes = torch.stack((x, y, 0 * x, 0 * x))[None, ..., None].expand(-1, -1, -1, -1, frames)
    return torch.full((1, 1, columns, rows, frames), 15.0), nodes.clone()


def test_a_mesh_has_its_fields_and_its_wall() -> None:
    nodes = c_grid(torch.zeros(1, 8), 10, 24, 10).float()
    mach = 1 + 0.5 * torch.tanh(nodes[:, :1])
    page = Page("t", "l")
    show_sample(page, Split(nodes, mach), {"FNO": mach.numpy()}, scene_of(problem("airfoil", {})))
    text = page.markdown()
    assert "White line: Mach 1." in text
    assert "both sides of the foil; dotted: Mach 1" in text
    assert page.html().count("<img") == 2
    assert "mesh of 45 x 11 nodes" in page.html()


def test_a_grid_has_one_figure() -> None:
    field = torch.rand(1, 1, 8, 8)
    page = Page("t", "l")
    show_sample(page, Split(field, field), {"FNO": field.numpy()}, scene_of(problem("darcy", {})))
    assert page.html().count("<img") == 1
    assert "truth (solution u)" in page.html()
    assert "One test sample: inputs" in page.markdown()
    assert "have one scale" not in page.markdown(), "there is one model"


def test_the_caption_says_which_sample_and_that_errors_have_one_scale() -> None:
    field = torch.rand(1, 1, 8, 8)
    page = Page("t", "l")
    guesses = {"FNO": field.numpy() + 0.1, "U-Net": field.numpy() + 0.001}
    show_sample(page, Split(field, field), guesses, scene_of(problem("darcy", {})), "Number 3 of 20 test samples")
    assert "Number 3 of 20 test samples: inputs" in page.markdown()
    assert "The errors of all models have one scale." in page.markdown()
    assert page.html().count("colours from -0.100 to 0.100") == 2


def test_points_in_space_are_told_and_have_no_colours() -> None:
    values = torch.rand(1, 1, 9)
    for dimension, told in ((2, False), (3, True)):
        page = Page("t", "l")
        shown = Split(values, values, torch.rand(1, dimension, 9))
        show_sample(page, shown, {"PointHO": values.numpy()}, Scene())
        assert ("Points in space are drawn by their number." in page.markdown()) == told
        assert ("what lies beyond has the last one" in page.markdown()) != told


def test_a_block_is_filmed_in_both_forms_of_its_samples() -> None:
    x, y = blocks()
    pages = []
    for form in ("volume", "frames"):
        given = (x, y) if form == "volume" else (part[0].movedim(-1, 0) for part in (x, y))
        split = Split(*(part.contiguous() for part in given))
        page = Page("t", "l")
        scene = scene_of(problem("plasticity", {"form": form}))
        show_sample(page, split, {"FNO": np.asarray(split.y) + 0.1}, scene)
        pages.append(page.html())
    assert pages[0] == pages[1]
    assert pages[0].count('class="film wide"') == 1
    assert "<span>t = 1.9 ms</span>" in pages[0]
    assert "at t = 0.6 ms" in pages[0]
