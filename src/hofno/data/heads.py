"""Published files by their heads: which ones there are, what arrays they hold, and whether a spec can have them.

No numbers are read, so that gigabytes are looked at in no time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hofno.errors import DataError, SpecError
from hofno.problems import airfoil_files, darcy, elasticity, pipe, pressed, vorticity_checks
from hofno.problems.trajectories import cut_file

Shapes = dict[Path, dict[str, tuple[int, ...]]]
"""Shapes of the arrays of each file, by their names; a file of one array has it without a name."""


def published_files(problem: str, path: str | Path) -> list[Path]:
    """The files of a benchmark that are read, whether they are there or not."""
    folder = Path(path)
    if problem == "elasticity":
        return list(elasticity.published_files(folder).values())
    if problem == "plasticity":
        return [pressed.published_file(folder)]
    names = {"airfoil": airfoil_files.FILES, "darcy": darcy.FILES, "pipe": pipe.FILES}
    return [folder / name for name in names[problem]] if problem in names else [folder]


def check_count(name: str, count: int, held: int) -> None:
    """Refuse more samples than the files have for a split, and none to train or to test."""
    if not (name != "valid") <= count <= held:
        most = max(0, held)
        if most > 0:
            remedy = f"give from {int(name != 'valid')} to {most}"
        else:
            remedy = "give valid=0" if name == "valid" else "give files of more samples, or fewer of the other splits"
        raise SpecError(f"the files hold {most} samples for {name}; got {name}={count}; {remedy}")


def shapes_in(problem: str, path: str | Path, **options: int) -> Shapes:
    """The arrays of the published files of a benchmark; refused as reading them with these options would be."""
    return _LOOKS[problem](Path(path), **options)


def check_airfoil(folder: Path, samples: int, train: int = 1000, valid: int = 100, test: int = 200) -> None:
    """Refuse files of fewer samples than the published ones, and splits that they do not hold."""
    published = airfoil_files.PUBLISHED_SPLITS["test"].stop
    if samples < published:
        raise DataError(
            f"{folder}: the files hold {samples} samples, and the published ones are {published} and more; get them "
            "again"
        )
    most = {name: rows.stop - rows.start for name, rows in airfoil_files.PUBLISHED_SPLITS.items()}
    most["valid"] = samples - published
    for name, count in (("train", train), ("test", test), ("valid", valid)):
        check_count(name, count, most[name])


def _navier_stokes(path: Path, **options: int) -> Shapes:
    shape = vorticity_checks.check_published(path)
    cut_file(path, shape[0], shape[3], **options)
    return {path: {"u": shape}}


def _pipe(folder: Path, train: int = 1000, valid: int = 100, test: int = 200) -> Shapes:
    arrays = pipe.open_published(folder, train=train, valid=valid, test=test)
    return _shapes("pipe", folder, [values.shape for values in arrays])


def _airfoil(folder: Path, **counts: int) -> Shapes:
    arrays = airfoil_files.open_published(folder)
    check_airfoil(folder, len(arrays[0]), **counts)
    return _shapes("airfoil", folder, [values.shape for values in arrays])


def _elasticity(folder: Path, **counts: int) -> Shapes:
    arrays = elasticity.open_published(folder)
    for name, count in counts.items():
        check_count(name, count, elasticity.ROOM[name])
    return _shapes("elasticity", folder, [values.shape for values in arrays])


def _plasticity(folder: Path, form: str = "volume", aligned: bool = False, **counts: int) -> Shapes:
    path = pressed.published_file(folder)
    found = pressed.check_published(path)
    for name, count in counts.items():
        check_count(name, count, pressed.ROOM[name])
    return {path: found}


def _shapes(problem: str, folder: Path, shapes: list[tuple[int, ...]]) -> Shapes:
    return {path: {"": shape} for path, shape in zip(published_files(problem, folder), shapes, strict=True)}


_LOOKS: dict[str, Callable[..., Shapes]] = {
    "airfoil": _airfoil,
    "darcy": darcy.check_published,
    "elasticity": _elasticity,
    "navier_stokes": _navier_stokes,
    "pipe": _pipe,
    "plasticity": _plasticity,
}
