"""A trained operator that takes and gives physical fields: model, normalisers and the geometry it was trained on.

Saved, it is a folder:

    model.safetensors        weights
    normalisers.safetensors  statistics of inputs and targets
    experience.safetensors   validation errors and what training inputs were like, where these are known
    model.json               which model, its arguments, the geometry, versions and the spec that made it
    manifest.json            sizes and SHA-256 of the others, written last
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hofno import storage
from hofno.data.dataset import Dataset, Rollout
from hofno.data.experience import Experience
from hofno.data.given import Given, given, what_is_lost
from hofno.data.normalise import ChannelNormaliser, Normaliser
from hofno.data.passes import by_batch, device_of, roll_out, there
from hofno.data.spread import mean_and_deviation, predicted_apart, relative_spread
from hofno.data.views import Views
from hofno.errors import ShapeError, SpecError
from hofno.exact import is_whole
from hofno.geometry import Geometry, Points, describe_geometry, kind_of
from hofno.models.registry import arguments_of_model, model_name, networks_of, parameter_counts
from hofno.problems.base import Problem
from hofno.problems.symmetry import Symmetry, describe_symmetry
from hofno.versions import versions

Field = TypeVar("Field", np.ndarray, Tensor)
Moments = tuple[Tensor, Tensor]
EXPERIENCE = "experience.safetensors"


def check_batch_size(batch_size: object) -> None:
    """Refuse what is not a number of samples."""
    if not is_whole(batch_size) or int(batch_size) < 1:
        raise SpecError(
            f"batch_size counts samples of a forward pass, 1 or more; got {batch_size!r}; give such a number"
        )


@dataclass(repr=False)
class Surrogate:
    """Model and normalisers; `predict` takes raw fields.

    With a rollout the model takes `history` frames to the next one, and predictions are fed back to it. With a symmetry
    every prediction is the mean over its motions, see `hofno.data.views`; set it to None for one pass instead.
    `experience` is what training has found out about its errors; `error_bound` and `strangeness` tell.
    """

    model: nn.Module
    inputs: Normaliser
    targets: Normaliser
    grid: Geometry
    stamp: dict[str, Any] = field(default_factory=dict)
    rollout: Rollout | None = None
    symmetry: Symmetry | None = None
    experience: Experience | None = None

    @classmethod
    def around(cls, model: nn.Module, data: Dataset) -> Surrogate:
        """A model of this library that you trained yourself, on inputs and targets in physical units.

        It can then be saved, loaded, evaluated and asked for predictions as one that `hofno.fit` has trained.
        """
        same = ChannelNormaliser.identity
        return cls(model, same(data.in_channels), same(data.out_channels), data.grid, rollout=data.rollout)

    def __repr__(self) -> str:
        points = " x ".join(map(str, self.grid.shape))
        channels = f"{self.inputs.mean.shape[0]} to {self.targets.mean.shape[0]} channels"
        return f"Surrogate({type(self.model).__name__}, {channels}, {kind_of(self.grid)} of {points})"

    @property
    def problem(self) -> Problem:
        """That which its data were generated of, with their parameters: it has names of channels, and outcomes."""
        from hofno.problems.registry import problem

        known = self.stamp.get("data", {})
        if not {"problem", "parameters"} <= known.keys():
            raise SpecError(
                "the data of this operator were not generated but read from files or arrays; where they are of a "
                "problem, build it: from hofno.problems.registry import problem; problem(name, {...})"
            )
        return problem(known["problem"], known["parameters"])

    def predict(
        self,
        x: Field | None,
        coords: Field | None = None,
        *,
        mask: Field | None = None,
        fixed: Field | None = None,
        batch_size: int = 32,
        steps: int | None = None,
    ) -> Field:
        """Predict from raw inputs (n, c, *grid) or one sample (c, *grid); NumPy gives NumPy, a tensor a tensor.

        On a mesh, `coords` (n, d, *grid) are appended to x unless x holds them. At points, x is (n, c, N), or None
        where the places are the only input, coords (n, d, N), and a mask (n, N) says which points are there; lists of
        samples (c, N_i) and (d, N_i) give a list. Predictions are 0 where no point is.

        With a rollout, x holds the last `history` frames and the result `steps` frames that follow, (n, steps, *grid);
        `steps` is the horizon of training unless given, and may go beyond it. Frames of several fields are that many
        channels each, one frame after the other; given as (n, history, fields, *grid), they come back in that form.
        Where the model was trained with fixed fields, these are put before the frames as `fixed` (n, c, *grid), or
        (c, *grid) for all samples, unless x holds them.

        Predictions that are NaN or infinite, as rollouts without bound end in, are named in a warning.
        """
        self.check_call(batch_size, steps)
        asked = self.asked(x, coords, mask, fixed)
        predicted = self.predict_tensor(asked.fields, batch_size, steps, coords=asked.coords, mask=asked.inside)
        if lost := what_is_lost(predicted):
            warnings.warn(lost, stacklevel=2)
        return asked.result(predicted, self.targets.mean.shape[0])

    def check_call(self, batch_size: int, steps: int | None = None) -> None:
        """Refuse what is no number of samples in a pass, or of frames."""
        if steps is not None and (self.rollout is None or not is_whole(steps) or steps < 1):
            why = "the model was not trained on trajectories" if self.rollout is None else "at least one is needed"
            raise SpecError(f"steps counts predicted frames; got {steps!r}, but {why}; leave it out")
        check_batch_size(batch_size)

    def variants(self) -> list[Surrogate]:
        """The operators whose mean a prediction is: each network of several, from each side of a symmetry."""
        whole = self.symmetry
        sides = [None] if whole is None else [replace(whole, motions=(motion,)) for motion in whole.motions]
        return [replace(self, model=one, symmetry=side) for one in networks_of(self.model) for side in sides]

    def spread(
        self,
        x: Field | None,
        coords: Field | None = None,
        *,
        mask: Field | None = None,
        fixed: Field | None = None,
        batch_size: int = 32,
        steps: int | None = None,
    ) -> Field:
        """How far the predictions lie apart whose mean `predict` gives: their standard deviation at each point.

        Arguments, shapes and units are those of `predict`. It is large where the operator is not sure, and no error by
        itself: `error_bound` of the same inputs says how large errors are for such a spread. In time each of them goes
        its own way, where `predict` goes on from their mean.
        """
        self.check_call(batch_size, steps)
        asked = self.asked(x, coords, mask, fixed)
        found = self.spread_tensor(asked.fields, batch_size, steps, coords=asked.coords, mask=asked.inside)[1]
        return asked.result(found.float(), self.targets.mean.shape[0])

    def spread_tensor(
        self,
        x: Tensor,
        batch_size: int = 32,
        steps: int | None = None,
        *,
        coords: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Moments:
        """Mean and deviation of the predictions of all variants, float64, for a checked float32 batch."""
        self._refuse_single()
        places = {"coords": coords, "mask": mask}
        return mean_and_deviation(one.predict_tensor(x, batch_size, steps, **places) for one in self.variants())

    def _refuse_single(self) -> None:
        """Refuse an operator whose predictions are no means."""
        if len(self.variants()) < 2:
            raise SpecError(
                "one network that predicts in one pass has no spread; train it with augment and symmetric, where the "
                "problem has a symmetry, or join several: hofno.combine([run_1, run_2], data)"
            )

    def error_bound(
        self,
        coverage: float = 0.9,
        x: Field | None = None,
        coords: Field | None = None,
        *,
        mask: Field | None = None,
        fixed: Field | None = None,
        batch_size: int = 32,
    ) -> Any:
        """A relative L2 error that predictions exceed with probability 1 - coverage at most.

        It is taken from the errors of the validation samples (split conformal prediction) and holds for inputs that are
        drawn as these were, on their grid, whatever the network: of a rollout, for all frames of its horizon together;
        where samples belong together, as the frames of a block, for these as one. Weights that were chosen by the same
        validation samples (`select="best"`) exceed it a little more often. It is infinite where so many predictions
        have no size. It says nothing about other inputs: ask `strangeness`.

        Given inputs, as `predict` takes them, it is a bound for each of them, (n,): the `spread` of its prediction
        times what the errors of validation samples were in units of theirs. So many of all inputs keep it as before,
        and it is smaller where the operator is sure. One network that predicts in one pass has none.
        """
        known = self._experienced()
        if not known.is_of(self.symmetry):
            raise SpecError(
                f"the errors were measured {'with' if known.symmetric else 'without'} a mean over symmetries, and "
                "`symmetry` was changed since; put it back, or train with the other train.symmetric"
            )
        if all(part is None for part in (x, coords, mask, fixed)):
            return known.error_bound(coverage)
        self.check_call(batch_size)
        asked = self.asked(x, coords, mask, fixed)
        return asked.numbers(self.bounds_of(asked, coverage, batch_size))

    def bounds_of(self, asked: Given, coverage: float, batch_size: int = 32, moments: Moments | None = None) -> Tensor:
        """A bound for each of these inputs, or of the blocks that they make, as a tensor; see `error_bound`.

        `moments` are those of their predictions by `spread_tensor`, where they are known already.
        """
        known = self._experienced()
        together = known.blocks_of(len(asked.fields))
        moments = moments or self.spread_tensor(asked.fields, batch_size, coords=asked.coords, mask=asked.inside)
        bounds = known.spread_bound(coverage) * relative_spread(*moments, together)
        return torch.where(bounds.isnan(), math.inf, bounds)  # of one that is infinite and another that is 0

    def strangeness(
        self, x: Field | None, coords: Field | None = None, *, mask: Field | None = None, fixed: Field | None = None
    ) -> Any:
        """How far inputs are from those of training, (n,), or one number for one sample; arguments as in `predict`.

        1 is the farthest that a validation input was; well above, the input is of another kind (other units, size, on
        grids smoothness too) than what the errors were measured on, and its own may be far larger. That it is small
        proves nothing: a few numbers of each channel are looked at, and of meshes of the size of training's how they
        differ from those, not the fields themselves.
        """
        asked = self.asked(x, coords, mask, fixed)
        return asked.numbers(self._experienced().strangeness(asked.fields, asked.coords, asked.inside))

    def _experienced(self) -> Experience:
        if self.experience is None:
            raise SpecError(
                "this operator knows nothing of its errors: it was trained without validation samples "
                "or by other means; train it again, or with the data at hand: from hofno.train.experience import "
                "gain_experience; operator.experience = gain_experience(operator, data, selected=False)"
            )
        return self.experience

    def asked(self, x: Any, coords: Any = None, mask: Any = None, fixed: Any = None) -> Given:
        """Raw inputs as `predict` takes them, checked, as one batch."""
        return given(x, coords, mask, fixed, self.grid, self.inputs.mean.shape[0], self.rollout)

    def predict_tensor(
        self,
        x: Tensor,
        batch_size: int = 32,
        steps: int | None = None,
        *,
        coords: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """As `predict`, for a checked float32 batch; the result lies on the CPU."""
        views = self._views(x)

        def predict(x: Tensor, coords: Tensor | None, inside: Tensor | None) -> tuple[Tensor]:
            apply = self.applied(views, coords, inside)
            if self.rollout is None:
                return (there(apply(x), inside),)
            predicted = roll_out(apply, x, steps or self.rollout.horizon, self.rollout.fixed)
            return (there(predicted, inside),)

        return by_batch(predict, self.model, x, batch_size, coords, mask)[0]

    def predict_apart(
        self,
        x: Tensor,
        batch_size: int = 32,
        steps: int | None = None,
        *,
        coords: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Moments]:
        """What `predict_tensor` and `spread_tensor` give, the same bits, in one pass of every network and view.

        In time there are two, since predictions go on from their mean and each of the others its own way.
        """
        self._refuse_single()
        places = {"coords": coords, "mask": mask}
        if self.rollout is not None:
            predicted = self.predict_tensor(x, batch_size, steps, **places)
            return predicted, self.spread_tensor(x, batch_size, steps, **places)
        networks, views = networks_of(self.model), self._views(x)

        def outputs(x: Tensor, coords: Tensor | None, inside: Tensor | None) -> list[Tensor]:
            given = self._given(x, coords, inside)
            return [network(*given).float() for network in networks]

        def predict(x: Tensor, coords: Tensor | None, inside: Tensor | None) -> tuple[Tensor, ...]:
            predicted, each = predicted_apart(outputs, self.targets.decode, views, x, coords, inside)
            return there(predicted, inside), *mean_and_deviation(there(one, inside) for one in each)

        predicted, mean, deviation = by_batch(predict, self.model, x, batch_size, coords, mask)
        return predicted, (mean, deviation)

    def _views(self, x: Tensor) -> Views | None:
        """How samples on the grid of x are seen, if predictions are means over a symmetry."""
        if self.symmetry is None:
            return None
        self._check_symmetry(self.symmetry, x)
        return Views(self.symmetry, x.shape[2:], device_of(self.model), self.rollout)

    def _check_symmetry(self, symmetry: Symmetry, x: Tensor) -> None:
        """Refuse motions that the places of x, perhaps a finer grid, or the channels do not have."""
        grid, inputs = self.grid, self.inputs.mean.shape[0]
        symmetry.check_places(grid if isinstance(grid, Points) else replace(grid, shape=tuple(x.shape[2:])))
        inputs = inputs if self.rollout is None else self.rollout.fixed  # frames move as targets do
        symmetry.check_channels(inputs, self.targets.mean.shape[0], grid.dim if isinstance(grid, Points) else 0)

    def applied(
        self, views: Views | None, coords: Tensor | None, inside: Tensor | None = None
    ) -> Callable[[Tensor], Tensor]:
        """The model once as a map of fields alone, or the mean of it over the views of a sample."""
        if views is None:
            return partial(self.apply, coords=coords, inside=inside)
        return partial(views.mean, self.apply, coords=coords, inside=inside)

    def apply(self, x: Tensor, coords: Tensor | None, inside: Tensor | None) -> Tensor:
        """The model once, physical fields to physical fields."""
        return self.targets.decode(self.model(*self._given(x, coords, inside)).float())

    def _given(self, x: Tensor, coords: Tensor | None, inside: Tensor | None) -> tuple[Tensor | None, ...]:
        """What a network is called with."""
        encoded = self.inputs.encode(x)
        if not isinstance(self.grid, Points):
            return (encoded,)
        assert coords is not None
        return encoded, self.grid.to_unit(coords), inside

    def files(self) -> dict[str, bytes]:
        """The files of the saved folder."""
        description = {
            "model": model_name(self.model),
            "arguments": arguments_of_model(self.model),
            "parameters": parameter_counts(self.model),
            "grid": describe_geometry(self.grid),
            "stamp": self.stamp,
            "versions": versions(),
        }
        if self.rollout is not None:
            told = asdict(self.rollout)
            description["rollout"] = {key: value for key, value in told.items() if key != "fixed" or value}
        if self.symmetry is not None:
            description["symmetry"] = describe_symmetry(self.symmetry)
        weights = {key: value.detach() for key, value in self.model.state_dict().items()}
        statistics = {**self.inputs.tensors("inputs"), **self.targets.tensors("targets")}
        made = {
            "model.safetensors": storage.tensor_bytes(weights),
            "normalisers.safetensors": storage.tensor_bytes(statistics),
            "model.json": (json.dumps(description, indent=1, sort_keys=True) + "\n").encode(),
        }
        if self.experience is not None:
            made[EXPERIENCE] = storage.tensor_bytes(self.experience.tensors())
        return made

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Save as a folder, whole or not at all.

        A model that was saved there earlier is kept beside it, as `path`.1 or with the next number that is free, unless
        `overwrite`. Where `path` is a link, that is beside the folder it leads to.
        """
        path = Path(path)
        storage.save_folder(path, self.files(), {"kind": "model"}, overwrite=overwrite)
        return path


def surrogate_of(operator: object, asker: str) -> Surrogate:
    """What `hofno.load` returns, or is in what `hofno.fit` does; `asker` is the function that was given it."""
    found = operator if isinstance(operator, Surrogate) else getattr(operator, "surrogate", None)
    if not isinstance(found, Surrogate):
        raise ShapeError(
            f"{asker} takes what hofno.fit or hofno.load returns; got {type(operator).__name__}; "
            "wrap a model that you trained yourself: Surrogate.around(model, data)"
        )
    return found
