"""Whether the data, the model and the training of a spec go together: what fails here fails before anything is made."""

from __future__ import annotations

import torch

from hofno.data.known import stamp_before
from hofno.data.names import check_names
from hofno.errors import ShapeError, SpecError
from hofno.evaluation.resolution import refuse_fixed_grid
from hofno.geometry import Points, Surface
from hofno.models.registry import build, check_arguments, check_axes, check_geometry, check_nodes, place
from hofno.problems.base import Problem
from hofno.problems.registry import problem
from hofno.spec import Spec
from hofno.surrogate import Surrogate
from hofno.train.grids import check_coarse, coarse_grids
from hofno.train.optim import check_optimiser
from hofno.train.start import check_start, opened, refuse_known
from hofno.train.tasks import check_settings


def check_data(spec: Spec) -> Problem:
    """Fail before data are made of parameters that the problem does not take, or that other names are for."""
    made = problem(spec.data.problem, spec.data.parameters)
    check_names(spec, made)
    return made


def check(spec: Spec, *, learns: bool = True) -> None:
    """Fail early: the problem's parameters, the model's arguments, and both together on a sample without numbers."""
    for key in ("in_channels", "out_channels"):
        if key in spec.model.arguments:
            raise SpecError(f"model.{key} follows from the data; leave it out of the spec")
    made = check_data(spec)
    geometry = made.grid_geometry
    if made.valid == 0 and spec.train.select == "best":
        raise SpecError("train.select='best' needs validation samples and data.valid is 0; use select='last'")
    train = spec.train if learns else spec.train.model_copy(update={"coarser": (), "coarse_first": 0.0})
    check_settings(train, made.rollout is not None, geometry, made.symmetry)
    check_geometry(spec.model.name, geometry)
    channels_in, channels_out = made.channels
    arguments = {**spec.model.arguments, "in_channels": channels_in, "out_channels": channels_out}
    arguments = check_arguments(spec.model.name, arguments)
    check_axes(arguments, geometry.dim if isinstance(geometry, Points) else len(geometry.shape), trained=not learns)
    with torch.device("meta"):  # shapes alone: what cannot be built or called fails here, however large it is
        whole = build(spec.model.name, arguments)
        single = build(spec.model.name, {**arguments, **({"depth": 1} if "depth" in arguments else {})})
    check_nodes(single, geometry)
    place(single, geometry, filled=False)
    check_optimiser(single, spec.train.optimiser)
    if learns and (start := opened(train)) is not None:
        check_start(start, train, whole, made.channels, geometry, made.rollout)
        refuse_known(start, stamp_before(made))
    given = [torch.empty(1, *shape, device="meta") for shape in sample_shapes(made)]
    with torch.no_grad():
        single.eval()(*given)
        check_coarse(single, given[0], channels_out, coarse_grids(train))


def sample_shapes(made: Problem) -> list[tuple[int, ...]]:
    """Shapes of what the model is given of one sample: fields, and where they are at points, coordinates."""
    geometry = made.grid_geometry
    fields = (made.channels[0], *geometry.shape)
    return [fields, (geometry.dim, *geometry.shape)] if isinstance(geometry, Points) else [fields]


def check_channels(spec: Spec, surrogate: Surrogate) -> None:
    """Fail before data are made for a trained operator that does not take them."""
    expected = (surrogate.inputs.mean.shape[0], surrogate.targets.mean.shape[0])
    made = problem(spec.data.problem, spec.data.parameters)
    found, fixed = made.channels, 0 if surrogate.rollout is None else surrogate.rollout.fixed
    if (*found, made.fixed_fields) != (*expected, fixed):
        raise ShapeError(
            f"the run takes {expected[0]} input channels, {fixed} of them fixed, and predicts {expected[1]}; these "
            f"data have {found[0]}, {made.fixed_fields} and {found[1]}; leave out the --set that changes them"
        )
    geometry = made.grid_geometry
    if isinstance(surrogate.grid, Surface) and geometry != surrogate.grid:
        raise ShapeError(
            f"the run belongs to the triangulation it was trained on, {surrogate.grid}; these data are on {geometry}; "
            "evaluate it on its own one, or train a run on the other"
        )
    refuse_fixed_grid(surrogate, geometry.shape)
