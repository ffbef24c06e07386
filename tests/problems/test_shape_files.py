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

X = np.array([0, 0.1, 0.3, 0.5, 0.7, 0.9, 1])
UPPER = np.stack((X, 0.3 * X * (1.01 - X)), 1)
LOWER = np.stack((X, -0.2 * X * (1.01 - X)), 1)
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
        "two lines\nof words\n13\n" + rows(AROUND),
        "23012 12 by hand\n" + rows(AROUND),
        "\ufeff# by hand\nfoil; mine\n" + rows(AROUND, ";") + "# end\n",
        f"RAE\n 7. 7.\n\n{rows(UPPER)}\n{rows(LOWER)}",
        f"7, 7\n{rows(UPPER)}{rows(LOWER)}",
        rows(AROUND).replace("\n", "\r\n"),
        rows(AROUND).replace("0.5 ", "5.0D-01 "),
    ],
)
def test_foils_in_all_their_forms(tmp_path: Path, text: str) -> None:
    np.testing.assert_array_equal(read_foil(written(tmp_path, text)), AROUND)


@pytest.mark.parametrize("code", ["utf-8", "latin-1", "utf-16"])
def test_names_in_other_codes(tmp_path: Path, code: str) -> None:
    (tmp_path / "foil.dat").write_bytes(("Göttingen 398\n" + rows(AROUND)).encode(code))
    np.testing.assert_array_equal(read_foil(tmp_path / "foil.dat"), AROUND)


@pytest.mark.parametrize("unit", [100, 1.005, 250.4, 1e-3])
def test_other_units_of_length(tmp_path: Path, unit: float) -> None:
    for text in (
        rows(unit * AROUND),
        f"7 7\n{rows(unit * UPPER)}{rows(unit * LOWER)}",
        rows(unit * (AROUND + np.array([0.2, 0]))),
    ):
        np.testing.assert_allclose(read_foil(written(tmp_path, text)), AROUND, rtol=0, atol=1e-12)


def test_two_sides_whose_noses_differ_keep_both(tmp_path: Path) -> None:
    lower = LOWER - [0, 1e-3]
    found = read_foil(written(tmp_path, f"blunt\n7 7\n{rows(UPPER)}{rows(lower)}"))
    np.testing.assert_array_equal(found, np.concatenate((UPPER[::-1], lower)))


@given(
    st.lists(st.tuples(*[st.floats(-1.4, 1.4)] * 2), min_size=12, max_size=40).filter(
        lambda one: np.ptp(one, 0)[0] > 0.1
    ),
    st.booleans(),
)
def test_any_points_are_read_as_they_are_written(
    tmp_path_factory: pytest.TempPathFactory, points: list[tuple[float, float]], named: bool
) -> None:
    array = np.array(points)
    found = read_foil(written(tmp_path_factory.mktemp("foil"), "a name\n" * named + rows(array)))
    np.testing.assert_allclose(found * np.ptp(array[:, 0]) + [array[:, 0].min(), 0], array, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds 0 points, and a foil takes 12"),
        ("NACA 0012\n", "holds 0 points"),
        (rows(AROUND[:11]), "holds 11 points"),
        ("a name\n1 0\n0.5 0.1 0.2\n", "line 3: expected x and y of a point; got 0.5 0.1 0.2"),
        ("1 0 TE\n" + rows(AROUND), "line 1: expected x and y of a point; got 1 0 TE"),
        ("a name\n1 0\nand a remark\n", "line 3: expected x and y of a point; got and a remark"),
        ("1 nan\n" + rows(AROUND), "line 1: expected x and y"),
        (f"RAE\n 8. 7.\n{rows(UPPER)}{rows(LOWER)}", "holds 8 and 7 points, and holds 14"),
    ],
)
def test_what_is_no_foil_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_foil(written(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.dat").write_bytes(b"\x89PNG\x00\x00")
    for file, says in (("none.dat", "No such file"), ("binary.dat", "is no text"), ("", "directory")):
        for read in (read_foil, read_dies):
            with pytest.raises(DataError, match=says):
                read(tmp_path / file)


def test_dies_with_and_without_places(tmp_path: Path) -> None:
    text = "7.6 2 0 5 7.6  # the first\n\n7.6, 3, 0, 4, 7.6\n"
    heights, places = read_dies(written(tmp_path, text))
    np.testing.assert_array_equal(heights, [[7.6, 2, 0, 5, 7.6], [7.6, 3, 0, 4, 7.6]])
    assert places is None
    for one in (written(tmp_path, "7.6\n2\n0\n5\n7.6D0\n"), written(tmp_path, "7.6 2 0 5 7.6")):
        np.testing.assert_array_equal(read_dies(one)[0], heights[:1])
    across, places = read_dies(written(tmp_path, "0 7.6\n10 2\n25 0\n40 5\n50 7.6\n"))
    np.testing.assert_array_equal(across, heights[:1])
    np.testing.assert_array_equal(places, [0, 10, 25, 40, 50])
    for word in ("places", "Places:"):
        again, places = read_dies(written(tmp_path, f"{word} 0 10 25 40 50\n{text}"))
        np.testing.assert_array_equal(again, heights)
        np.testing.assert_array_equal(places, [0, 10, 25, 40, 50])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# nothing\n", "holds no die"),
        ("places 0 20 30 50\n", "holds no die"),
        ("7.6 0 5 7.6\n7.6 0 7.6\n", "line 2: other heights than in line 1, which has 4"),
        ("7.6 0 5 7.6\nplaces 0 20 30 50\n", "line 2: places stand once, before all heights"),
        ("0 20 30 50\n7.6 0 5 7.6\n", "line 1: are these places, and no heights"),
        ("7.6 0 5 nan\n", "line 1: expected the heights of a die"),
        ("7.6 0 5\n", "has 3 heights of a die, and a spline takes 4"),
        ("7.6\n0\n5\n", "has 3 heights of a die"),
        ("places 0 20 30 50\nplaces 0 20 30 50\n7.6 0 5 7.6\n", "line 2: places stand once"),
        ("a die\n", "line 1: expected the heights of a die in mm; got a die"),
        ("places\n7.6 0 5 7.6\n", "line 1: .*; got nothing"),
    ],
)
def test_what_is_no_die_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError, match=f"{re.escape('shape.dat')}.*{says}"):
        read_dies(written(tmp_path, text))
