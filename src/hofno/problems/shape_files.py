"""Files of foils and dies: points of a foil as airfoil databases have them, and heights of dies in rows.

    NACA 0012            lines of text, or none                 # in mm, from left to right
    1.000  0.0013        from the trailing edge over the        places 0 7 13 19 25 31 37 43 50
    0.950  0.0081        upper side and back below; or the      7.6 2.2 6.8 4.5 0 4.1 5.9 4.4 7.6
    ..                   two sides, each from the nose, after   7.6 2.6 7.3 3.3 4.2 0 6.6 4.1 7.6
                         a line that counts their points

Numbers stand apart by blanks, commas or semicolons; what follows a # is not read.
"""

from __future__ import annotations

import math
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path

import numpy as np

from hofno.errors import DataError
from hofno.problems.pressed import WIDTH
from hofno.problems.shapes import LEAST_HEIGHTS, LEAST_POINTS

_PLACES = "places"
_FAR = 1.5  # chords; the two numbers of a line that counts points are above this, points are not

Line = tuple[int, list[str]]
"""Number and words of a line that has any."""


def read_foil(path: Path) -> np.ndarray:
    """Points (k, 2) of the foil in a file, from the trailing edge round to it, in chords; the file's unit is any."""
    lines = _lines(path)
    while lines and _is_text(lines[0]):
        del lines[0]
    points = np.array([_point(path, line) for line in lines]).reshape(-1, 2)
    counts = points[0] if len(points) and _counts_points(points) else None
    points = points[counts is not None :]
    if len(points) < LEAST_POINTS:
        raise DataError(
            f"{path} holds {len(points)} points, and a foil takes {LEAST_POINTS}; give a line of x and y for each"
        )
    if counts is not None:
        points = _around(path, points, *map(int, counts))
    left, chord = points[:, 0].min(), np.ptp(points[:, 0])
    return (points - [left, 0.0]) / (chord or 1.0)


def read_dies(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Heights (n, p) of the dies in a file, one in a line, and where they are, (p,), if the file says so.

    A file with one number in each line is one die, and so is one with a place and a height in each.
    """
    lines, places = _lines(path), None
    if lines and _says_places(lines[0][1]):
        places = np.array(_heights(path, (lines[0][0], lines[0][1][1:])))
        del lines[0]
    rows = [_heights(path, line) for line in lines]
    if not rows:
        raise DataError(f"{path} holds no die; give a line of heights in mm for each, from left to right")
    counts = {len(row) for row in rows}
    if counts == {1} and places is None:
        rows, counts = [[row[0] for row in rows]], {len(rows)}
    if counts == {2} and places is None and len(rows) >= LEAST_HEIGHTS:
        across, rows = np.array(rows).T
        return rows[None], across
    if len(counts) > 1:
        number = next(line[0] for line, row in zip(lines, rows, strict=True) if len(row) != len(rows[0]))
        raise DataError(
            f"{path}, line {number}: other heights than in line {lines[0][0]}, which has {len(rows[0])}; dies of other "
            "places go into a file of their own"
        )
    first = np.array(rows[0])
    if places is None and len(rows) > 1 and first[0] == 0 and first[-1] == WIDTH and (np.diff(first) > 0).all():
        raise DataError(
            f"{path}, line {lines[0][0]}: are these places, and no heights? Then begin the line with the word {_PLACES}"
        )
    if min(counts) < LEAST_HEIGHTS:
        raise DataError(
            f"{path} has {min(counts)} heights of a die, and a spline takes {LEAST_HEIGHTS}; a line is one die, from "
            "left to right"
        )
    return np.array(rows), places


def _is_text(line: Line) -> bool:
    """Whether a line is no point of a foil: a name, or a number of points; two coordinates begin what is one."""
    values = _floats(line[1][:2])
    return values is None or len(values) < 2 or (len(line[1]) > 2 and max(map(abs, values)) > _FAR)


def _point(path: Path, line: Line) -> list[float]:
    number, words = line
    values = _floats(words)
    if values is None or len(values) != 2 or not all(map(math.isfinite, values)):
        raise DataError(f"{path}, line {number}: expected x and y of a point; got {' '.join(words)}; mend the line")
    return values


def _counts_points(points: np.ndarray) -> bool:
    """Whether the first pair counts the points of both sides. In other units than chords a point may look like it."""
    first = points[0]
    looks = bool((first > _FAR).all() and (first == first.round()).all())
    return looks and (first.sum() == len(points) - 1 or np.abs(points[1:, 0]).max(initial=0) <= _FAR)


def _around(path: Path, points: np.ndarray, first: int, second: int) -> np.ndarray:
    """From two sides, each from the nose."""
    if first + second != len(points):
        raise DataError(f"{path} says that it holds {first} and {second} points, and holds {len(points)}; repair it")
    one, other = points[:first], points[first:]
    again = first > 0 and second > 0 and bool((one[0] == other[0]).all())  # the nose, which is on both sides
    return np.concatenate((one[::-1], other[again:]))


def _heights(path: Path, line: Line) -> list[float]:
    number, words = line
    values = _floats(words)
    if values is None or not all(map(math.isfinite, values)):
        wanted = (
            f"{_PLACES} stand once, before all heights"
            if _says_places(words)
            else "expected the heights of a die in mm"
        )
        raise DataError(f"{path}, line {number}: {wanted}; got {' '.join(words) or 'nothing'}; mend the line")
    return values


def _says_places(words: list[str]) -> bool:
    return bool(words) and words[0].rstrip(":").lower() == _PLACES


def _lines(path: Path) -> list[Line]:
    """The words of every line that has any, by its number."""
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        text = whole.decode("utf-16" if whole.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
    except UnicodeDecodeError:
        text = whole.decode("latin-1")  # a name with an umlaut
    if "\0" in text:
        raise DataError(f"{path} is no text; give a file of numbers in lines")
    lines = (line.partition("#")[0].replace(",", " ").replace(";", " ").split() for line in text.splitlines())
    return [(number, words) for number, words in enumerate(lines, 1) if words]


def _floats(words: list[str]) -> list[float] | None:
    """The numbers that a line holds, if it holds nothing else; Fortran writes 1.0D+00."""
    try:
        return [float(word.lower().replace("d", "e")) for word in words] or None
    except ValueError:
        return None
