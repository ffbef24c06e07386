"""What a benchmark is: a validated set of parameters that generates its splits, and a card that says what they are.

A steady problem maps inputs to targets. A problem in time has a `Rollout`: its model takes `history` frames to the next
one and is applied to its own predictions, `horizon` times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from hofno.checked import Checked
from hofno.geometry import Geometry, Mesh
from hofno.problems.outcomes import Outcome
from hofno.problems.quantities import Quantities
from hofno.problems.symmetry import Symmetry

SEEDS = 2**32
"""Seeds there are: a larger one takes two words of a random stream's key and so repeats samples of a smaller one."""

Origin = Literal["generated", "original", "user"]
"""Where data come from: our solvers, published files, or the user."""

Progress = Callable[[str, int, int], None]
"""Called as progress(stage, done, total) while data are generated."""


@dataclass(frozen=True)
class Rollout:
    """Frames that a model in time takes, frames it is asked to predict one after the other, and fields of a frame.

    `fixed` counts fields of a sample that do not change in time: input channels before those of the frames, given to
    the model in every step and never predicted.
    """

    history: int
    horizon: int
    fields: int = field(default=1, repr=False)  # runs are told apart by the text of this, and by shapes of data
    fixed: int = field(default=0, repr=False)  # likewise

    @property
    def taken(self) -> int:
        """Channels of the frames that a model takes; those of fixed fields come before them."""
        return self.history * self.fields


@dataclass(frozen=True)
class OneSet:
    """Samples that all splits of a problem are cut out of, by the names of its parameters.

    Attributes:
        held_by: those that name the samples; others of all of them name other samples.
        cut_by: those that say which samples are for training, for validation and for testing.
    """

    held_by: tuple[str, ...]
    cut_by: tuple[str, ...] = ("samples", "train", "valid", "test")


@dataclass(frozen=True)
class Arrays:
    """One split in physical units: x (n, c, *grid), y (n, c', *grid), float32; at points, coords (n, d, N) too."""

    x: np.ndarray
    y: np.ndarray
    coords: np.ndarray | None = None


@dataclass(frozen=True)
class Trajectories:
    """What a problem in time generates, as views of one array.

    Attributes:
        splits: x (n, history, *grid) and y (n, steps, *grid); training keeps all frames that may be trained on.
        frames: the samples of the benchmark in their order, (n, frames, *grid).
        later: test frames after the horizon, which nothing is trained on, (n, rest, *grid).

    Where frames have several fields, those of a frame are that many channels one after the other.
    """

    splits: dict[str, Arrays]
    frames: np.ndarray
    later: np.ndarray


class Problem(Checked):
    """Base of the benchmarks. The fields of a subclass are its parameters; unknown ones are refused."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    name: ClassVar[str]
    summary: ClassVar[str]
    card: ClassVar[str]
    revision: ClassVar[int] = 1
    """Raised when its solver comes to give other numbers, by more than rounding: stored ones are then made again."""
    vorticity: ClassVar[bool] = False
    """Whether the frames are vorticity of a plane flow, so that their spectrum has an energy."""
    has_other_grids: ClassVar[bool] = True
    """Whether networks that were trained at one resolution can be tried at others."""
    strided: ClassVar[bool] = False
    """Whether samples are strided values of those at resolution=solver_resolution, so that one solution gives all."""

    train: int = Field(1000, ge=1, description="training samples")
    valid: int = Field(100, ge=1, description="validation samples, from a stream of their own")
    test: int = Field(200, ge=1, description="test samples, never used for choices")
    seed: int = Field(0, ge=0, lt=SEEDS, description="seed of all random draws, below 2^32")

    @property
    def grid_geometry(self) -> Geometry:
        raise NotImplementedError

    @property
    def channels(self) -> tuple[int, int]:
        """Input and target channels of a sample."""
        raise NotImplementedError

    @property
    def quantities(self) -> Quantities:
        """What the channels are called and measured in, for tables and figures; nothing where it is not known."""
        return Quantities()

    @property
    def mesh_coordinates(self) -> int:
        """Input channels, the last ones, that are the places of the nodes of a mesh; none on other geometries."""
        return len(self.grid_geometry.shape) if isinstance(self.grid_geometry, Mesh) else 0

    @property
    def origin(self) -> Origin:
        return "generated"

    @property
    def sources(self) -> dict[str, str]:
        """Files, or a folder of them, that the data are read from, by what they hold; none if they are generated."""
        return {}

    @property
    def one_set(self) -> OneSet | None:
        """What the splits are cut out of; None where each has a random stream of its own, by split and number."""
        return None

    @property
    def rollout(self) -> Rollout | None:
        """How a problem in time is rolled out; None for a steady one."""
        return None

    @property
    def symmetry(self) -> Symmetry | None:
        """Motions that take samples to other solutions of the same equations, for `train.augment`."""
        return None

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """Numbers that one asks of a sample's fields, by name; evaluation tells how well they are predicted."""
        return {}

    @property
    def together(self) -> int:
        """Consecutive samples whose errors are taken as one."""
        return 1

    @property
    def fixed_fields(self) -> int:
        """Input channels, the first ones, that do not change in time; none for a steady problem."""
        return 0

    @property
    def windows(self) -> int:
        """Frames of a training sample that are learnt; 1 for a steady problem."""
        return 1

    def generate(self, progress: Progress) -> dict[str, Arrays]:
        """The three splits. The same parameters give the same bytes; more samples extend a split, never change it."""
        raise NotImplementedError

    def generate_on(self, device: str, progress: Progress) -> dict[str, Arrays]:
        """As `generate`, solved on `device`; problems that take seconds on the CPU are always made there."""
        return self.generate(progress)

    def simulate(self, progress: Progress, folder: Path | None, device: str, again: bool = False) -> Trajectories:
        """The trajectories of a problem in time; finished parts are kept in `folder`, verified and gone on from.

        With `again` they are made again, and take the place of those that are kept.
        """
        raise NotImplementedError

    def identity(self) -> dict[str, Any]:
        """What makes the numbers of one sample, by which stored data are found."""
        return self.parameters() | of_revision(self.solver_revision)

    @property
    def solver_revision(self) -> int:
        """The revision of what makes its numbers."""
        return self.revision

    def is_kept(self, folder: Path) -> bool:
        """Whether all data are in their folder of the store, so that nothing is left to make."""
        return folder.exists()

    def differs_at(self, resolution: int) -> str:
        """Why samples at this resolution are other functions than those at the problem's own; empty if they are not."""
        return ""

    def memory_bytes(self) -> int:
        """Bytes the finished data take, so that a run can be refused before it starts."""
        raise NotImplementedError

    def parameters(self) -> dict[str, Any]:
        return self.model_dump()


class InTime(Problem):
    """A problem whose model takes frames to the next one."""

    history: int = Field(1, ge=1, description="frames the model takes to predict the next one")
    start: int = Field(0, ge=0, description="first frame predicted in validation and test; 0: right after the history")
    horizon: int = Field(0, ge=0, description="frames predicted in validation and test; 0: all that follow start")

    @property
    def fields(self) -> int:
        """Of a frame: quantities such as height and velocity."""
        return 1

    @property
    def rollout(self) -> Rollout:
        return Rollout(self.history, self.horizon, self.fields, self.fixed_fields)

    @property
    def channels(self) -> tuple[int, int]:
        return self.rollout.taken + self.fixed_fields, self.fields

    @property
    def windows(self) -> int:
        return self.start + self.horizon - self.history


class Published(Problem):
    """A benchmark whose published files can be read in place of data that are generated."""

    of_solver: ClassVar[tuple[str, ...]] = ("seed",)
    """Parameters that say how data are generated, and nothing about files."""

    valid: int = Field(
        100, ge=0, description="validation samples, from a stream of their own; of files, 0 is for none, as published"
    )
    files: str = Field("", description="published file, or folder of the files, to read instead of generating data")

    @model_validator(mode="after")
    def _of_files(self) -> Published:
        if self.files and self.seed != 0:
            raise ValueError(
                f"seed is that of generated samples, and files hold the samples they hold; got seed={self.seed} and "
                f"files={self.files!r}; leave one of them out"
            )
        if not self.files and self.valid < 1:
            raise ValueError(
                "valid=0 is for published files (data.files); generated validation samples are none of those to train; "
                "give at least 1"
            )
        return self

    @property
    def origin(self) -> Origin:
        return "original" if self.files else "generated"

    @property
    def sources(self) -> dict[str, str]:
        return {"files": self.files} if self.files else {}

    @property
    def one_set(self) -> OneSet | None:
        return OneSet(("files",)) if self.files else None

    def parameters(self) -> dict[str, Any]:
        return self.model_dump(exclude=None if self.files else {"files"})


def of_revision(number: int) -> dict[str, int]:
    """What a solver's revision adds to that by which its data are found; the first one is not named, as ever."""
    return {} if number == 1 else {"revision": number}


def ignore_progress(stage: str, done: int, total: int) -> None:
    """The progress callback that shows nothing."""


def rising(progress: Progress, total: int) -> Callable[[int], None]:
    """What tells how many of `total` samples are done, as often as they are more; that all are is left to the end."""
    told = -1

    def tell(done: int) -> None:
        nonlocal told
        if min(done, total - 1) > told:
            told = min(done, total - 1)
            progress("generate", told, total)

    return tell
