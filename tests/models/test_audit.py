"""Every registered model, in every dimension, on every geometry and in every form, held to the same demands.

How a new model comes under them is said in `model_cases`.
"""

from __future__ import annotations

import copy
import inspect
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from model_cases import (
    CASES,
    CHANGES,
    DIMS,
    EXACT_ON_THREE_AXES,
    FORMS,
    LEADING,
    NUMBERED,
    ON_FEW_POINTS,
    ON_GRIDS,
    ON_PLANES,
    ON_POINTS,
    OTHER_POINTS,
    OURS,
    POINTS,
    REFUSED,
    Case,
    kinds,
    variants,
)
from torch import Tensor, nn

from hofno.errors import ShapeError, SpecError
from hofno.models import MODELS
from hofno.models.registry import arguments_of, arguments_of_model
from reference import relative


class Through(nn.Module):
    """A block that hands on the first of what it is given."""

    def forward(self, v: Any, *others: Any) -> Any:
        return v


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=str)


@each(CASES)
def test_forward_and_backward_reach_every_parameter(case: Case) -> None:
    model, (x, *places) = case.make(), case.batch()
    x.requires_grad_()
    out = model(x, *places)
    assert out.shape == (2, 2, *x.shape[2:])
    assert not any(p.is_complex() for p in model.parameters())
    (out - torch.randn_like(out)).square().mean().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert bool(parameter.grad.isfinite().all()), parameter_name
        assert float(parameter.grad.abs().max()) > 0, parameter_name
    assert x.grad is not None
    assert float(x.grad.abs().min()) > 0


@each([*{case.name: case for case in CASES}.values()])
def test_what_it_was_built_from_is_plain_numbers(case: Case) -> None:
    """Arguments often come out of an array; what is saved of a model is JSON."""

    def of_numpy(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return tuple(map(of_numpy, value))
        return {int: np.int64, float: np.float32}.get(type(value), type(value))(value) if value is not None else None

    model = MODELS[case.name](**{key: of_numpy(value) for key, value in case.arguments.items()})
    assert repr(arguments_of_model(model)) == repr(json.loads(json.dumps(arguments_of_model(model))))
    assert all("np." not in repr(value) for value in arguments_of_model(model).values())


@each(CASES)
def test_every_block_changes_the_output(case: Case) -> None:
    """Without one of its blocks; and where a model is no stack of blocks, without the weights of any of its parts."""
    model, x = case.make(), case.batch()
    before = model(*x)
    if hasattr(model, "blocks"):
        assert isinstance(model.blocks, nn.ModuleList)
        assert model.config.get("depth", 1) <= len(model.blocks)  # pyright: ignore
        for index in range(len(model.blocks)):
            without = copy.deepcopy(model)
            assert isinstance(without.blocks, nn.ModuleList)
            without.blocks[index] = Through()
            assert relative(without(*x), before) > 1e-3, index
        return
    parts = [name for name, part in model.named_modules() if name and any(True for _ in part.parameters(False))]
    assert parts
    for name in parts:
        without = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in without.get_submodule(name).parameters(False):
                parameter.zero_()
            assert relative(without(*x), before) > 1e-4, name


@each(CASES)
def test_samples_do_not_see_each_other(case: Case) -> None:
    model, x = case.make(), case.batch(3)
    assert torch.allclose(model(*x)[1:2], model(*(part[1:2] for part in x)), atol=1e-5)


@pytest.mark.parametrize(("name", "variant"), [(name, form) for name in sorted(MODELS) for form in variants(name)])
def test_every_argument_changes_behaviour(name: str, variant: str) -> None:
    kind = variants(name)[variant][1] or kinds(name)[0]
    least = min(set(DIMS[kind]) - set(REFUSED.get(name, ())))

    def outcome(case: Case, changed: dict[str, Any]) -> tuple[dict[str, Any], Tensor]:
        model = case.make(**changed)
        torch.manual_seed(4)
        config: dict[str, Any] = model.config  # pyright: ignore[reportAssignmentType]
        x = case.batch(8, channels=config["in_channels"], dims=config.get("dims", case.dims))
        return {key: value.shape for key, value in model.state_dict().items()}, model.train()(*x)

    for argument in inspect.signature(MODELS[name].__init__).parameters:
        if argument == "self" or (argument == "drop_path" and variant == "classic"):
            continue
        if name in NUMBERED and argument in ("dims", "points"):  # other points are refused
            continue
        case = Case(name, kind, 2 if argument in LEADING else least, variant)
        if argument == "backbone":
            value: Any = "classic" if variant == "modern" else "modern"
        elif argument in variants(name)[variant][0]:
            value = inspect.signature(MODELS[name]).parameters[argument].default
        else:
            value = CHANGES.get(f"{name}.{argument}", CHANGES.get(argument))
        assert value != case.arguments.get(argument), f"another value of {argument} has to stand in CHANGES"
        shapes, out = outcome(case, {})
        changed_shapes, changed = outcome(case, {argument: value})
        if shapes == changed_shapes:
            assert relative(changed, out) > 1e-4, argument


@each(CASES)
def test_reduced_precision(case: Case) -> None:
    model, x = case.make(), case.batch()
    exact = model(*x)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(*x)
    assert relative(found, exact) < 5e-2
    assert (relative(found, exact) == 0) == (case.name in EXACT_ON_THREE_AXES and case.dims == 3)
    found.float().square().mean().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


@each(FORMS)
@torch.no_grad()
def test_a_cast_model_works_in_the_type_it_was_cast_to(case: Case) -> None:
    """Whatever is computed in more inside; 16 bits are for those who know what they do, and for small differences."""
    model, batch = case.make().eval(), case.batch()
    exact = model(*batch)
    for dtype, bound in ((torch.float64, 1e-3), (torch.bfloat16, 0.3), (torch.float16, 0.05)):
        out = copy.deepcopy(model).to(dtype)(*(part.to(dtype) for part in batch))
        assert out.dtype == dtype
        assert relative(out.to(exact.dtype), exact) < bound


@each(CASES)
def test_only_blocks_are_in_reduced_precision(case: Case) -> None:
    """Fields come in and go out as they are: without its blocks a model does not see autocast at all.

    Where a model is no stack of blocks, its lift and its projection do not see it.
    """
    model, x = case.make(), case.batch()
    ends: list[bool] = []
    if not hasattr(model, "blocks"):
        for name in ("lift", "project"):
            model.get_submodule(name).register_forward_pre_hook(
                lambda _, given: ends.append(torch.is_autocast_enabled("cpu") or given[0].dtype != torch.float32)
            )
    with torch.autocast("cpu", torch.bfloat16):
        assert model(*x).dtype == torch.float32
    if not hasattr(model, "blocks"):
        assert len(ends) >= 2
        assert not any(ends)
        return
    assert isinstance(model.blocks, nn.ModuleList)
    model.blocks = nn.ModuleList(Through() for _ in model.blocks)
    exact = model(*x)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(*x)
    assert torch.equal(found, exact)


@each(CASES)
def test_a_state_dict_carries_the_whole_model(case: Case) -> None:
    model, x = case.make(), case.batch()
    torch.manual_seed(99)
    other = case.built(dict(model.config))  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert not torch.equal(other(*x), model(*x))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(*x), model(*x))
    assert torch.equal(copy.deepcopy(model)(*x), model(*x))


@each(FORMS)
def test_a_model_says_what_it_was_built_from(case: Case) -> None:
    model = case.make()
    config: dict[str, Any] = model.config  # pyright: ignore[reportAssignmentType]
    assert set(config) == arguments_of(case.name)
    assert (model.in_channels, model.out_channels) == (config["in_channels"], config["out_channels"])
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in case.arguments.items()}
    assert {key: config[key] for key in given} == given


@each(CASES)
def test_other_resolutions_than_the_first_one(case: Case) -> None:
    model = case.make()
    model(*case.batch())
    x = case.batch(points=OTHER_POINTS)
    if case.name in NUMBERED:
        with pytest.raises(ShapeError, match=r"points in a fixed order.*use a model that takes any number"):
            model(*x)
        return
    if case.kind == "surface":
        with pytest.raises(ShapeError, match=r"a surface of 90 vertices; got fields at 96; .*train a network on the"):
            model(*x)
        return
    out = model(*x)
    assert out.shape == (2, 2, *x[0].shape[2:])
    assert bool(out.isfinite().all())


@each(ON_POINTS)
def test_wrong_points_are_refused(case: Case) -> None:
    model, (x, places) = case.make(), case.batch()
    for channels in (1, 2 + case.dims):  # too few; or with the coordinates counted in
        with pytest.raises(ShapeError, match=rf"expected fields \(batch, 2 channels, points\).*, {channels}, "):
            model(torch.randn(2, channels, x.shape[2]), places)
    with pytest.raises(ShapeError, match="expected fields"):
        model(x[0], places)
    for wrong in (places[:1], places[..., 1:], places.repeat(1, 2, 1), places.mT):
        with pytest.raises(ShapeError, match="expected coords"):
            model(x, wrong)
    for mask in (torch.ones(2, x.shape[2]), torch.ones(2, 3, dtype=torch.bool)):
        with pytest.raises(ShapeError, match="expected a boolean mask"):
            model(x, places, mask)


@each(ON_POINTS)
def test_masked_points_are_not_there(case: Case) -> None:
    """A ragged batch gives what each cloud gives alone, and what stands at masked points changes nothing."""
    model, (x, places) = case.make(), case.batch(3)
    number = x.shape[2]
    counts = (number, number // 2, 3)
    mask = torch.arange(number) < torch.tensor(counts)[:, None]
    hidden = x.masked_fill(~mask[:, None], torch.nan), places.masked_fill(~mask[:, None], torch.inf)
    found = model(*hidden, mask)
    for index, count in enumerate(counts):
        assert not bool(found[index, :, count:].any())
        if case.name in NUMBERED and count < number:
            continue
        alone = model(x[index : index + 1, :, :count], places[index : index + 1, :, :count])
        assert torch.allclose(found[index, :, :count], alone[0], atol=2e-5)
    found.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


@each([case for case in ON_POINTS if case.name not in NUMBERED])
def test_a_cloud_without_points_harms_no_other(case: Case) -> None:
    model, (x, places) = case.make(), case.batch()
    mask = torch.ones(x.shape[0], x.shape[2], dtype=torch.bool)
    mask[1] = False
    out = model(x, places, mask)
    assert not out[1].any()
    out.square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


@each(ON_POINTS)
def test_the_order_of_the_points_does_not_matter(case: Case) -> None:
    model, (x, places) = case.make(), case.batch()
    order = torch.randperm(x.shape[2])
    same = torch.allclose(model(x[..., order], places[..., order]), model(x, places)[..., order], atol=1e-5)
    assert same == (case.name not in NUMBERED)


@each(ON_GRIDS)
def test_wrong_inputs_are_refused(case: Case) -> None:
    model, points = case.make(), POINTS[case.dims]
    with pytest.raises(ShapeError, match="spatial axes"):
        model(torch.randn(2, *points))
    for channels in (1, 2 + case.dims):  # too few; or with the coordinates counted in
        with pytest.raises(ShapeError, match=f"expected 2 input channels on axis 1; got {channels}"):
            model(torch.randn(2, channels, *points))
    if "modes" in arguments_of(case.name):
        with pytest.raises(ShapeError, match=r"modes\[[01]\].*lower modes, or use a finer grid"):
            model(torch.randn(2, 2, *(2 for _ in points)))


@pytest.mark.parametrize(("name", "dims"), [(name, dims) for name, refused in REFUSED.items() for dims in refused])
def test_dimensions_without_meaning_are_refused(name: str, dims: int) -> None:
    with pytest.raises(SpecError, match=r"dims|axes|axis"):
        Case(name, kinds(name)[0], dims, next(iter(variants(name)))).make()


@each([case for case in ON_PLANES if case.dims != 3])
def test_compiled_equals_eager(case: Case) -> None:
    torch.compiler.reset()
    model, x = case.make(), case.batch()
    eager = model(*x)
    (eager_gradient,) = torch.autograd.grad(eager.square().sum(), [next(model.parameters())])
    backend = "aot_eager" if case.name in OURS else "eager"  # the first traces the backward pass too
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    out = compiled(*x)
    (gradient,) = torch.autograd.grad(out.square().sum(), [next(model.parameters())])
    assert torch.allclose(out, eager, atol=1e-6)
    assert torch.allclose(gradient, eager_gradient, rtol=1e-4, atol=1e-4)


@each(ON_FEW_POINTS)
def test_four_samples_are_learnt_by_heart(case: Case) -> None:
    model = case.make(width=16)
    x = case.batch(4)
    y = torch.randn(4, 2, *(1 for _ in x[0].shape[2:])).expand(4, 2, *x[0].shape[2:])
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses: list[float] = []
    while len(losses) < 120 and (not losses or losses[-1] >= losses[0] / 10):
        optimiser.zero_grad()
        loss = (model(*x) - y).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 10


@pytest.mark.filterwarnings("ignore")
@each([case for case in FORMS if case.variant != "classic"])
def test_export_gives_the_same_function_and_leaves_nothing_behind(case: Case) -> None:
    """On a grid met for the first time: what is cached while tracing must have values afterwards."""
    case = replace(case, dims=2) if 2 not in REFUSED.get(case.name, ()) else case
    points = {1: (19,), 2: (13, 11)}
    x = case.batch(points=points)
    model = case.make(points, **({"points": x[0].shape[2]} if case.name in NUMBERED else {})).eval()
    exported = torch.export.export(model, x).module()
    out = model(*x)
    assert type(out) is Tensor
    assert torch.allclose(exported(*x), out, atol=1e-6)
