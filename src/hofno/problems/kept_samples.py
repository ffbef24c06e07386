"""Solved samples that are kept as they are made, by split and number, for problems that solve a sample in minutes.

    part-<number>/            samples that were solved together, committed whole
        samples.safetensors   arrays with one row for each
        manifest.json         which they are, what makes them, device and versions, checksums
    begun-<first of them>/    samples that are being solved, as they were some minutes ago

The folder belongs to one process at a time (`in_turn`). Where a sample is in two parts, the later one holds.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from hofno import storage
from hofno.errors import CheckpointError, DataError
from hofno.problems.base import Arrays, Progress, Published, of_revision
from hofno.problems.kept_parts import drop, drop_temporaries, in_turn
from hofno.solvers.memory import gibibytes
from hofno.versions import versions

Sample = tuple[str, int]
"""Split and number."""

EVERY = 120.0
"""Seconds after which samples that are being solved are put aside again."""

_PART = re.compile(r"part-(\d{6,})")
_FILE = "samples.safetensors"


class KeptSamples:
    """The samples in a folder, and those that are put there; without a folder there are none and nothing is written.

    Args:
        folder: of samples that have the same `solution`.
        solution: what makes the numbers of one sample.
        device: where samples are solved, for the record.
        again: read none; what is there goes as soon as it has been made again.
    """

    def __init__(
        self,
        folder: Path | None = None,
        solution: dict[str, Any] | None = None,
        device: str = "cpu",
        again: bool = False,
    ) -> None:
        self.folder, self.solution, self.device, self.again = folder, solution, device, again
        self._places: dict[Sample, tuple[Path, int]] = {}  # part and row
        self._before: set[Path] = set()  # parts that were there
        self._next = 0
        if folder is None or not folder.is_dir():
            return
        drop_temporaries(folder)
        for place in sorted(folder.iterdir()):
            if match := _PART.fullmatch(place.name):
                self._next = int(match[1]) + 1
                self._before.add(place)
                self._places |= {sample: (place, row) for row, sample in enumerate(self._samples_of(place))}
        for place in folder.glob("begun-*"):
            if not self._is_wanted(place):
                shutil.rmtree(place, ignore_errors=True)

    def __contains__(self, sample: Sample) -> bool:
        part, _ = self._places.get(sample, (None, 0))
        return part is not None and not (self.again and part in self._before)

    def missing(self, wanted: Sequence[Sample]) -> list[int]:
        """Places in `wanted` of samples that are to be solved."""
        return [place for place, sample in enumerate(wanted) if sample not in self]

    def check_room(self, missing: int, bytes_each: int, more: int) -> None:
        """Refuse, before work begins, a disk that does not hold so many more samples and `more` bytes beside them."""
        needed = missing * bytes_each + more
        if self.folder is not None and not storage.disk_has_room(self.folder, needed):
            raise DataError(
                f"{self.folder}{' and the data made of it need' if more else ' needs'} {gibibytes(needed)} more on the "
                "disk; free some space or choose another"
            )

    def read(self, wanted: Sequence[Sample]) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
        """Places in `wanted` and the rows of the samples there, part after part, of those that are kept."""
        found: dict[Path, list[int]] = {}
        for place, sample in enumerate(wanted):
            if sample in self:
                found.setdefault(self._places[sample][0], []).append(place)
        for part, places in found.items():
            try:
                storage.verify_folder(part)
                arrays = storage.read_tensors(part / _FILE)
            except CheckpointError as error:
                raise self._unusable(part, error) from None
            rows = [self._places[wanted[place]][1] for place in places]
            yield places, {name: array.numpy()[rows] for name, array in arrays.items()}

    def write(self, samples: Sequence[Sample], arrays: Mapping[str, np.ndarray]) -> None:
        """Keep samples, one row of each array for each."""
        if self.folder is None or not samples:
            return
        part = self.folder / f"part-{self._next:06d}"
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        storage.save_folder(part, {_FILE: storage.tensor_bytes(tensors)}, self._meta(samples))
        self._next += 1
        self._places |= {sample: (part, row) for row, sample in enumerate(samples)}
        for replaced in self._before - {place for place, _ in self._places.values()}:
            drop(replaced)
            self._before.remove(replaced)

    def begun(self, samples: Sequence[Sample], way: str) -> Begun:
        """Where samples that are solved together for long are put aside; `way` tells apart how they are solved."""
        if self.folder is None:
            return Begun(None, {})
        split, number = samples[0]
        meta = self._meta(samples) | {"way": way}
        return Begun(self.folder / f"begun-{split}-{number:06d}", meta, taken=not self.again)

    def _meta(self, samples: Sequence[Sample]) -> dict[str, Any]:
        named = [[split, number] for split, number in samples]
        return {"solution": self.solution, "samples": named, "device": self.device, "versions": versions()}

    def _samples_of(self, part: Path) -> list[Sample]:
        """The samples of a part, by its manifest; a part that is made again anyway may be damaged, and then goes."""
        try:
            meta = storage.read_manifest(part)["meta"]
            if meta["solution"] != self.solution:
                raise DataError(f"{part} holds other samples than those asked for; choose another folder")
            return [(split, number) for split, number in meta["samples"]]
        except (CheckpointError, KeyError) as error:
            if not self.again:
                raise self._unusable(part, error) from None
            shutil.rmtree(part, ignore_errors=True)
            return []

    def _is_wanted(self, begun: Path) -> bool:
        """Whether not all of the samples that were put aside are solved by now."""
        try:
            samples = storage.read_manifest(begun)["meta"]["samples"]
            return any((split, number) not in self for split, number in samples)
        except (CheckpointError, KeyError):
            return False

    @staticmethod
    def _unusable(part: Path, error: Exception) -> DataError:
        return DataError(f"kept samples cannot be used: {error}; delete {part} to make them again")


def digest_of(*given: np.ndarray) -> int:
    """A number for a sample that is told by what it is solved from, in place of its number in a split."""
    return int.from_bytes(hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in given)).digest()[:7])


class KeepsSamples(Published):
    """A published benchmark whose solver takes seconds to minutes for a sample, so that solved ones are kept."""

    arranging: ClassVar[tuple[str, ...]]
    """Parameters that only say how solved samples are arranged as data."""

    def solution(self) -> dict[str, Any]:
        """What makes one solved sample: the solver, and all parameters but counts and those that arrange."""
        others = {"train", "valid", "test", "files", *self.arranging}
        return {"problem": self.name, **self.model_dump(exclude=others)} | of_revision(self.solver_revision)

    def generate(
        self, progress: Progress, device: str | torch.device = "", kept: KeptSamples | None = None
    ) -> dict[str, Arrays]:
        """The three splits, of samples that are kept or else solved on `device`, and kept."""
        raise NotImplementedError

    def generate_on(self, device: str, progress: Progress) -> dict[str, Arrays]:
        return self.generate(progress, device)

    def generate_kept(self, device: str, progress: Progress, folder: Path, again: bool = False) -> dict[str, Arrays]:
        """As `generate_on`, from the samples in a folder where their `solution` is the same; missing ones are added.

        With `again` all are solved, and take the place of those that are kept.
        """
        with in_turn(folder):
            return self.generate(progress, device, KeptSamples(folder, self.solution(), device, again))


class Begun:
    """Samples half-way, in a folder of their own: an interruption loses what came after they were last put aside."""

    def __init__(self, folder: Path | None, meta: dict[str, Any], taken: bool = True) -> None:
        self.folder, self.meta, self.taken, self._last = folder, meta, taken, time.monotonic()

    def read(self) -> dict[str, Tensor]:
        """What was put aside of the very same samples, by the same versions; nothing if that is not there and sound."""
        if self.folder is None or not self.taken or not self.folder.is_dir():
            return {}
        try:
            return storage.read_tensors(self.folder / _FILE) if storage.verify_folder(self.folder) == self.meta else {}
        except CheckpointError:
            return {}

    def keep(self, state: Callable[[], dict[str, Tensor]]) -> None:
        """Keep this state in place of the last one, if that was not just now. Where it cannot be, solving goes on."""
        if self.folder is None or time.monotonic() - self._last < EVERY:
            return
        try:
            storage.remove_damaged(self.folder)
            storage.save_folder(self.folder, {_FILE: storage.tensor_bytes(state())}, self.meta)
        except CheckpointError as error:
            warnings.warn(f"samples are solved on, but not put aside: {error}", RuntimeWarning, stacklevel=2)
        self._last = time.monotonic()

    def drop(self) -> None:
        """The samples are solved, and kept."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
