"""Trajectories that are made in groups of samples, each kept as a part of its own as soon as it is finished.

Libraries may round a sample differently in another batch. So samples are always advanced in the same groups, sample i
at place i % g of group i // g. A generation that was interrupted goes on from the parts that are kept, and more samples
extend them.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from pydantic import ConfigDict, Field

from hofno import storage
from hofno.checked import Checked
from hofno.errors import CheckpointError, DataError, SolverError
from hofno.problems.base import SEEDS, InTime, OneSet, Progress, ignore_progress, of_revision
from hofno.problems.groups import groups_in_memory
from hofno.problems.kept_parts import (
    drop_replaced,
    drop_temporaries,
    end_of,
    in_turn,
    is_complete,
    one_after_the_other,
    part_name,
    parts_in,
)
from hofno.solvers.memory import free_bytes, gibibytes, temporary_array
from hofno.storage.files import temporary_beside
from hofno.versions import versions


class Simulator(Protocol):
    """What solves a flow, some samples at a time."""

    device: torch.device

    def bytes_each(self) -> int:
        """Memory that one more sample takes while it is solved."""
        ...

    def run(self, start: int, stop: int, group: int) -> Iterator[np.ndarray | None]:
        """Yield None `hidden` times, then frames of samples start..stop-1, of one group of this size, (b, *shape)."""
        ...


class Flow(Checked):
    """A set of trajectories, given by its parameters: the same parameters give the same numbers."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    name: ClassVar[str]
    revision: ClassVar[int] = 1
    """As that of a problem."""

    samples: int = Field(1, ge=1, description="trajectories")
    frames: int = Field(1, ge=1, description="frames of a trajectory")
    seed: int = Field(0, ge=0, lt=SEEDS, description="seed of the initial fields, below 2^32")

    @property
    @abstractmethod
    def frame_shape(self) -> tuple[int, ...]:
        """Of one frame of one sample."""

    @property
    def hidden(self) -> int:
        """Frames that pass before the first one that is kept; progress counts them too."""
        return 0

    @abstractmethod
    def most_together(self, device: torch.device) -> int:
        """Samples that are advanced together, at most; a group is a power of two, and of one sample at least."""

    @abstractmethod
    def simulator(self, device: str | torch.device = "cpu") -> Simulator:
        """What solves this flow."""

    @abstractmethod
    def too_little(self, bytes_each: int, device: torch.device, free: int) -> SolverError:
        """The error for a memory of `free` bytes, which does not hold one sample."""

    def trajectories(
        self,
        device: str | torch.device = "cpu",
        progress: Progress = ignore_progress,
        folder: str | Path | None = None,
        again: bool = False,
    ) -> np.ndarray:
        """All frames, (samples, frames, *frame_shape), float32.

        Args:
            device: where to solve; memory that is too small for a group of samples makes smaller groups.
            progress: called as progress(stage, done, total), counted in frames.
            folder: where finished groups are kept; a generation that was interrupted goes on from them.
            again: make the groups that hold these samples again, although they are kept.
        """
        solver = self.simulator(device)
        place = None if folder is None else Path(folder)
        if place is None:
            frames = self._room(None)
            self._fill(frames, solver, progress, None)
            return frames
        if not again and is_complete(place, self.samples):
            frames = self._room(place)
            try:
                self._fill(frames, solver, progress, place)
                return frames
            except DataError:  # a part is damaged, or is being made again at this moment
                if not os.access(place, os.W_OK):
                    raise
        with in_turn(place):
            drop_temporaries(place)
            made = self.model_copy(update={"samples": end_of(place, self.samples)}) if again else self
            frames = made._room(place)
            made._fill(frames, solver, progress, place, again)
        return frames[: self.samples]

    def identity(self) -> dict[str, Any]:
        """What makes the numbers of one sample: the solver, and all parameters but the count of samples."""
        return {"problem": self.name, **self.model_dump(exclude={"samples"})} | of_revision(self.revision)

    def _fill(
        self, frames: np.ndarray, solver: Simulator, progress: Progress, folder: Path | None, again: bool = False
    ) -> None:
        """Put every sample into `frames`: finished parts from the folder, then the rest (or all) from the solver.

        Where something is left to solve, what is read counts as done before progress begins.
        """
        old, made = parts_in(folder), set[Path]()
        parts = {} if again else one_after_the_other(old, self.samples)
        missing = self.samples - sum(min(stop, self.samples) - start for start, (stop, _) in parts.items())
        each, done = self.hidden + self.frames, 0
        group, start, total = self._group(solver), 0, self.samples * each
        for first, (stop, part) in parts.items():
            frames[first:stop] = self._read(part, first, stop)[: self.samples - first]
            done += (min(stop, self.samples) - first) * each
            if not missing:
                progress("generate", done, total)
        while start < self.samples:
            if start in parts:
                start, _ = parts[start]
                continue
            stop = min([start - start % group + group, self.samples, *(other for other in parts if other > start)])
            try:
                for index, frame in enumerate(solver.run(start, stop, group)):
                    if frame is not None:
                        frames[start:stop, index - self.hidden] = frame
                    progress("generate", done + (stop - start) * (index + 1), total)
            except torch.OutOfMemoryError:
                if group == 1:
                    free = free_bytes(solver.device) or 0
                    raise self.too_little(solver.bytes_each(), solver.device, free) from None
                group //= 2
                continue
            if folder is not None:
                part = folder / part_name(start, stop)
                made.add(part)
                self._write(part, frames[start:stop], start, stop, solver)
            if again:
                drop_replaced(old, made, stop)
            done += (stop - start) * each
            start = stop

    def _group(self, solver: Simulator) -> int:
        """How many samples are advanced together: a power of two, fewer where memory is short."""
        most, each = self.most_together(solver.device), solver.bytes_each()
        return groups_in_memory(solver.device, most, each, lambda free: self.too_little(each, solver.device, free))[0]

    def _room(self, folder: Path | None) -> np.ndarray:
        """Room for all frames: in memory if they take at most half of what is free, else in a file by the folder."""
        shape, free = (self.samples, self.frames, *self.frame_shape), free_bytes("cpu")
        needed = 4 * math.prod(shape)
        on_disk = folder is not None and free is not None and 2 * needed > free
        if free is not None and needed > free and folder is None:
            raise DataError(
                f"these trajectories need {gibibytes(needed)} of memory and {gibibytes(free)} are free; ask for fewer "
                "samples or frames or a lower resolution, or give a folder to keep them in"
            )
        if folder is None:
            return np.empty(shape, np.float32)
        present = sum(max(0, min(stop, self.samples) - start) for start, (stop, _) in parts_in(folder).items())
        missing = max(0, needed - 4 * present * math.prod(shape[1:])) + on_disk * needed
        if not storage.disk_has_room(folder, missing):
            raise DataError(f"{folder} needs {gibibytes(missing)} more on its disk; free some space or choose another")
        return temporary_array(shape, temporary_beside(folder)) if on_disk else np.empty(shape, np.float32)

    def _write(self, part: Path, frames: np.ndarray, start: int, stop: int, solver: Simulator) -> None:
        meta = {
            "flow": self.identity(),
            "samples": [start, stop],
            "device": solver.device.type,
            "versions": versions(),
        }
        files = {"frames.safetensors": storage.tensor_bytes({"frames": torch.from_numpy(frames)})}
        storage.remove_damaged(part)
        storage.save_folder(part, files, meta)

    def _read(self, part: Path, start: int, stop: int) -> np.ndarray:
        try:
            meta = storage.verify_folder(part)
            if meta.get("flow") != self.identity() or meta.get("samples") != [start, stop]:
                raise DataError(f"{part} holds another flow than the one asked for; choose another folder")
            frames = storage.read_tensors(part / "frames.safetensors")["frames"].numpy()
        except (CheckpointError, KeyError) as error:
            raise DataError(f"a stored part cannot be used: {error}; delete {part} to make it again") from None
        if frames.shape != (stop - start, self.frames, *self.frame_shape):
            raise DataError(f"{part} holds frames of shape {frames.shape}; delete {part} to make it again")
        return frames


COUNTS = ("samples", "train", "valid", "test", "frames", "history", "start", "horizon")


class Simulated(InTime):
    """A problem in time that is made of the trajectories of a flow."""

    frames: int = Field(2, ge=2, description="frames of a trajectory")

    @property
    @abstractmethod
    def flow(self) -> Flow:
        """The trajectories this problem is made of."""

    @property
    def one_set(self) -> OneSet | None:
        """Trajectories have random streams by their number alone."""
        return super().one_set if self.sources else OneSet(("seed",))

    @classmethod
    def with_defaults(cls, given: dict[str, Any]) -> dict[str, Any] | None:
        """What is given and the defaults of the rest; None if counts are none, of which the fields themselves tell."""
        filled = {key: field.default for key, field in cls.model_fields.items()} | given
        return None if any(type(filled[key]) is not int or filled[key] < 0 for key in COUNTS) else filled

    @staticmethod
    def fill_times(filled: dict[str, Any]) -> None:
        """Scoring begins right after the history and goes to the last frame, unless something else is given."""
        filled["start"] = filled["start"] or filled["history"]
        filled["horizon"] = filled["horizon"] or max(1, filled["frames"] - filled["start"])

    def refuse_times(self) -> None:
        """Refuse to predict frames that there are not."""
        if not self.history <= self.start or self.start + self.horizon > self.frames:
            raise ValueError(
                f"history <= start and start + horizon <= frames are needed; got history={self.history}, "
                f"start={self.start}, horizon={self.horizon}, frames={self.frames}; give more frames or less history"
            )

    def memory_bytes(self) -> int:
        return 4 * self.flow.samples * self.frames * math.prod(self.flow.frame_shape)

    def identity(self) -> dict[str, Any]:
        return self.flow.model_dump(exclude={"samples"}) | of_revision(self.solver_revision)

    @property
    def solver_revision(self) -> int:
        return self.flow.revision

    def is_kept(self, folder: Path) -> bool:
        return is_complete(folder, self.flow.samples)
