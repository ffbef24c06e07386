"""Files of foils and dies: what they say is what is read, in each of their forms, and others are refused by line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hofno.errors import DataError
from hofno.problems.shape_files import read_dies, read_foil

UPPER = np.array([[0.0, 0.0], [0.1, 0.05], [0.5, 0.06], [1.0, 0.001]])
LOWER = np.array([[0.0, 0.0], [0.2, -0.04], [1.0, -0.001]])
AROUND = np.concatenate((UPPER[::-1], LOWER[1:]))


def rows(points: np.ndarray, gap: str = "  ") -> str:
    return "".join(gap.join(map(repr, point.tolist())) + "\n" for point in points)


def written(folder: Path, text: str) -> Path:
    (folder / "shape.dat").write_text(text, encoding="utf-8")
    return folder / "shape.dat"


@pytest.mark.parametrize(
    "text",
    [
        rows(AROUND),
        "NACA 0012\n" + rows(AROUND),
        "2412\n\n" + rows(AROUND, ", "),
        "\ufeff# by hand\nfoil; mine\n" + rows(AROUND, ";") + "# end\n",
        f"RAE\n 4. 3.\n\n{rows(UPPER)}\n{rows(LOWER)}",
        f"4, 3\n{rows(UPPER)}{rows(LOWER)}",
        rows(AROUND).replace("\n", "\r\n"),
    ],
)
def test_foils_in_all_their_forms(tmp_path: Path, text: str) -> None:
    np.testing.assert_array_equal(read_foil(written(tmp_path, text)), AROUND)


def test_two_sides_whose_noses_differ_keep_both(tmp_path: Path) -> None:
    lower = LOWER.copy()
    lower[0] = 1e-4, -1e-3
    found = read_foil(written(tmp_path, f"blunt\n4 3\n{rows(UPPER)}{rows(lower)}"))
    np.testing.assert_array_equal(found, np.concatenate((UPPER[::-1], lower)))


@given(st.lists(st.tuples(*[st.floats(-1.5, 1.5)] * 2), min_size=1, max_size=40), st.booleans())
def test_any_points_are_read_as_they_are_written(
    tmp_path_factory: pytest.TempPathFactory, points: list[tuple[float, float]], named: bool
) -> None:
    file = written(tmp_path_factory.mktemp("foil"), "a name\n" * named + rows(np.array(points)))
    np.testing.assert_array_equal(read_foil(file), np.array(points))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no points of a foil"),
        ("NACA 0012\n", "holds no points of a foil"),
        ("a name\n1 0\n0.5 0.1 0.2\n", "line 3: expected x and y of a point; got 0.5 0.1 0.2"),
        ("a name\nand a remark\n1 0\n", "line 2: expected x and y of a point; got and a remark"),
        (f"RAE\n 5. 3.\n{rows(UPPER)}{rows(LOWER)}", "holds 5 and 3 points, and holds 7"),
    ],
)
def test_what_is_no_foil_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_foil(written(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.dat").write_bytes(b"\xff\xfe\x00\x80")
    for file, says in (("none.dat", "No such file"), ("binary.dat", "is no text"), ("", "directory")):
        for read in (read_foil, read_dies):
            with pytest.raises(DataError, match=says):
                read(tmp_path / file)


def test_dies_with_and_without_places(tmp_path: Path) -> None:
    text = "7.6 2 0 5 7.6  # the first\n\n7.6, 3, 0, 4, 7.6\n"
    heights, places = read_dies(written(tmp_path, text))
    np.testing.assert_array_equal(heights, [[7.6, 2, 0, 5, 7.6], [7.6, 3, 0, 4, 7.6]])
    assert places is None
    for word in ("places", "Places:"):
        again, places = read_dies(written(tmp_path, f"{word} 0 10 25 40 50\n{text}"))
        np.testing.assert_array_equal(again, heights)
        np.testing.assert_array_equal(places, [0, 10, 25, 40, 50])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# nothing\n", "holds no die"),
        ("places 0 20 30 50\n", "holds no die"),
        ("7.6 0 5 7.6\n7.6 0 7.6\n", "line 2: 3 heights, and 4 in lines before"),
        ("7.6 0 5 7.6\nplaces 0 20 30 50\n", "line 2: places stand once, before all heights"),
        ("places 0 20 30 50\nplaces 0 20 30 50\n7.6 0 5 7.6\n", "line 2: places stand once"),
        ("a die\n", "line 1: expected the heights of a die, .* got a die"),
        ("places\n7.6 0 5 7.6\n", "line 1: expected the heights"),
    ],
)
def test_what_is_no_die_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError, match=f"{re.escape('shape.dat')}.*{says}"):
        read_dies(written(tmp_path, text))
