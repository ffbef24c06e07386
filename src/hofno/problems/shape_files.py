"""Files of foils and dies: points of a foil as airfoil databases have them, and heights of dies in rows.

    NACA 0012            a name, or nothing                     # in mm, from left to right
    1.000  0.0013        from the trailing edge over the        places 0 7 13 19 25 31 37 43 50
    0.950  0.0081        upper side and back below; or the      7.6 2.2 6.8 4.5 0 4.1 5.9 4.4 7.6
    ..                   two sides, each from the nose, after   7.6 2.6 7.3 3.3 4.2 0 6.6 4.1 7.6
                         a line that counts their points

Numbers stand apart by blanks, commas or semicolons; what follows a # is not read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hofno.errors import DataError

_PLACES = "places"
_FAR = 1.5  # chords; the two numbers of a line that counts points are above this, points are not


def read_foil(path: Path) -> np.ndarray:
    """Points (k, 2) of the foil in a file, from the trailing edge over the upper side to the nose and back below."""
    lines = _lines(path)
    found = [(number, _floats(words)) for number, words in lines]
    if found and (found[0][1] is None or len(found[0][1]) != 2):
        del found[0]  # its name
    counts = found[0][1] if found and _counts_points(found[0][1]) else None
    points = []
    for number, values in found[counts is not None :]:
        if values is None or len(values) != 2:
            raise DataError(f"{path}, line {number}: expected x and y of a point; got {' '.join(dict(lines)[number])}")
        points.append(values)
    if not points:
        raise DataError(f"{path} holds no points of a foil; give a line of x and y for each, in chords")
    array = np.array(points)
    if counts is None:
        return array
    upper, lower = map(int, counts)
    if upper + lower != len(array):
        raise DataError(f"{path} says that it holds {upper} and {lower} points, and holds {len(array)}; repair it")
    again = bool((array[0] == array[upper]).all())  # the nose, which is on both sides
    return np.concatenate((array[:upper][::-1], array[upper + again :]))


def read_dies(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Heights (n, p) of the dies in a file, one in a line, and where they are, (p,), if a line of places says so."""
    places, rows = None, list[list[float]]()
    for number, words in _lines(path):
        told = words[0].rstrip(":").lower() == _PLACES
        values = _floats(words[told:])
        if values is None:
            raise DataError(
                f"{path}, line {number}: expected the heights of a die, or {_PLACES} and where they are; got "
                f"{' '.join(words)}"
            )
        if told and (rows or places is not None):
            raise DataError(f"{path}, line {number}: {_PLACES} stand once, before all heights; put them there")
        if rows and len(values) != len(rows[0]):
            raise DataError(
                f"{path}, line {number}: {len(values)} heights, and {len(rows[0])} in lines before; dies of other "
                "places go into a file of their own"
            )
        if told:
            places = np.array(values)
        else:
            rows.append(values)
    if not rows:
        raise DataError(f"{path} holds no die; give a line of heights in mm for each, from left to right")
    return np.array(rows), places


def _counts_points(values: list[float] | None) -> bool:
    return values is not None and len(values) == 2 and all(value > _FAR and value.is_integer() for value in values)


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """The words of every line that has any, by its number."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is no text; give a file of numbers in lines") from None
    lines = (line.partition("#")[0].replace(",", " ").replace(";", " ").split() for line in text.splitlines())
    return [(number, words) for number, words in enumerate(lines, 1) if words]


def _floats(words: list[str]) -> list[float] | None:
    """The numbers that a line holds, if it holds nothing else."""
    try:
        return [float(word) for word in words] or None
    except ValueError:
        return None
