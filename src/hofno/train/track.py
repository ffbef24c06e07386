"""Where the rows of the history go while a run trains: a JSON-lines file always, TensorBoard and W&B on request."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hofno import storage
from hofno.errors import SpecError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class Tracker(Protocol):
    def log(self, row: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class JsonLines:
    """`metrics.jsonl`: one row for each epoch. On resume it is cut back to the rows of the checkpoint."""

    def __init__(self, path: Path, history: list[dict[str, Any]]) -> None:
        self.path = path
        storage.write_bytes(path, "".join(json.dumps(row) + "\n" for row in history).encode())

    def log(self, row: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def close(self) -> None:
        pass


class TensorBoard:
    """Scalars by epoch for TensorBoard; needs the extra `hofno[tracking]`.

    On resume, points from the first new epoch on are purged: those an earlier process wrote after its last checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self.make_writer = functools.partial(_tensorboard(), str(folder / "tensorboard"))
        self.writer: SummaryWriter | None = None

    def log(self, row: dict[str, Any]) -> None:
        if self.writer is None:
            self.writer = self.make_writer(purge_step=row["epoch"])
        for key, value in row.items():
            if key != "epoch" and isinstance(value, int | float):
                self.writer.add_scalar(key, value, row["epoch"])

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class WeightsAndBiases:
    """Scalars by epoch for W&B; needs the extra `hofno[tracking]`."""

    def __init__(self, folder: Path, name: str, config: dict[str, Any]) -> None:
        self.run = _wandb().init(project="hofno", name=name, dir=str(folder), config=config)

    def log(self, row: dict[str, Any]) -> None:
        self.run.log({k: v for k, v in row.items() if v is not None}, step=row["epoch"])

    def close(self) -> None:
        self.run.finish()


def _tensorboard() -> type[SummaryWriter]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SpecError("tracking with tensorboard needs it installed: pip install 'hofno[tracking]'") from None
    return SummaryWriter


def _wandb() -> Any:
    try:
        import wandb  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise SpecError("tracking with wandb needs it installed: pip install 'hofno[tracking]'") from None
    return wandb


def check_trackers(names: tuple[str, ...], folder: Path | None) -> None:
    """Refuse trackers that are unknown, not installed, or without a folder to write to; nothing is made."""
    unknown = sorted(set(names) - {"tensorboard", "wandb"})
    if unknown:
        raise SpecError(f"unknown tracker {unknown[0]!r}; there are: tensorboard, wandb")
    if names and folder is None:
        raise SpecError("tracking needs a folder to write to; give out=...")
    for name, package in (("tensorboard", _tensorboard), ("wandb", _wandb)):
        if name in names:
            package()


def make_trackers(names: tuple[str, ...], folder: Path | None, run_name: str, config: dict[str, Any]) -> list[Tracker]:
    """Trackers by name: tensorboard, wandb."""
    check_trackers(names, folder)
    found: list[Tracker] = []
    if "tensorboard" in names and folder is not None:
        found.append(TensorBoard(folder))
    if "wandb" in names and folder is not None:
        found.append(WeightsAndBiases(folder, run_name, config))
    return found
