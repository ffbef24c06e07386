"""Every registered model, in every dimension and with every backbone, held to the same demands.

Models on points are given as many of them as the grids of the others have, scattered in the unit cube.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hofno.errors import ShapeError
from hofno.models import MODELS, build
from hofno.models.registry import GEOMETRIES, arguments_of
from reference import relative

POINTS = {1: (16,), 2: (9, 10), 3: (6, 7, 6)}
OTHER_POINTS = {1: (23,), 2: (12, 8), 3: (7, 6, 8)}
MODES = {1: (5,), 2: (3, 4), 3: (2, 3, 3)}
KINDS = [
    (name, backbone)
    for name in sorted(MODELS)
    for backbone in (("modern", "classic") if "backbone" in arguments_of(name) else ("modern",))
]
CASES = [(name, dims, backbone) for (name, backbone), dims in itertools.product(KINDS, sorted(POINTS))]
ON_GRIDS = [case for case in CASES if "grid" in GEOMETRIES[case[0]]]
ON_POINTS = [case for case in CASES if "points" in GEOMETRIES[case[0]]]
LEADING = ("mode_set", "decoder")  # arguments that matter where there is more than one axis

# a value for every argument other than the one `arguments` gives; a new argument has to be added here
CHANGES: dict[str, Any] = {
    "in_channels": 3,
    "out_channels": 1,
    "modes": (2,),
    "width": 12,
    "depth": 1,
    "order": 3,
    "backbone": "other",
    "expansion": 1,
    "factors": "identity",
    "weights": "dense",
    "dealias": True,
    "domain_padding": 0.5,
    "drop_path": 0.5,
    "coordinates": "periodic",
    "waves": ((1,),),
    "residual": True,
    "mode_set": "reference",
    "latent_points": (16,),
    "deformation": 0,
    "decoder": "original",
    "dims": 2,
    "tokens": 5,
    "heads": 2,
    "octaves": 1,
    "scales": (),
}


def arguments(name: str, dims: int, backbone: str) -> dict[str, Any]:
    """Those of these that the model takes."""
    values = {
        "in_channels": 2,
        "out_channels": 2,
        "modes": MODES[dims],
        "dims": dims,
        "width": 8,
        "depth": 2,
        "backbone": backbone,
        "domain_padding": 0.25,
    }
    return {key: value for key, value in values.items() if key in arguments_of(name)}


def make(name: str, dims: int, backbone: str, **changed: Any) -> nn.Module:
    torch.manual_seed(3)
    return build(name, {**arguments(name, dims, backbone), **changed})


def batch(
    name: str, dims: int, count: int = 2, points: dict[int, tuple[int, ...]] = POINTS, channels: int = 2
) -> tuple[Tensor, ...]:
    """What the model is called with: fields, and where it works on points, their places."""
    if "points" not in GEOMETRIES[name]:
        return (torch.randn(count, channels, *points[dims]),)
    number = math.prod(points[dims])
    return torch.randn(count, channels, number), torch.rand(count, dims, number)


@pytest.mark.parametrize(("name", "dims", "backbone"), CASES)
def test_forward_and_backward_reach_every_parameter(name: str, dims: int, backbone: str) -> None:
    model, (x, *places) = make(name, dims, backbone), batch(name, dims)
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


@pytest.mark.parametrize(("name", "dims", "backbone"), CASES)
def test_every_block_changes_the_output(name: str, dims: int, backbone: str) -> None:
    model, x = make(name, dims, backbone), batch(name, dims)
    before = model(*x)
    assert isinstance(model.blocks, nn.ModuleList)
    for index in range(len(model.blocks)):
        without = copy.deepcopy(model)
        assert isinstance(without.blocks, nn.ModuleList)
        without.blocks[index] = nn.Identity()
        assert relative(without(*x), before) > 1e-3, index


@pytest.mark.parametrize(("name", "dims", "backbone"), CASES)
def test_samples_do_not_see_each_other(name: str, dims: int, backbone: str) -> None:
    model, x = make(name, dims, backbone), batch(name, dims, 3)
    assert torch.allclose(model(*x)[1:2], model(*(part[1:2] for part in x)), atol=1e-5)


@pytest.mark.parametrize(("name", "backbone"), KINDS)
def test_every_argument_changes_behaviour(name: str, backbone: str) -> None:
    def outcome(model: nn.Module, dims: int) -> tuple[dict[str, Any], Tensor]:
        torch.manual_seed(4)
        config: dict[str, Any] = model.config  # pyright: ignore[reportAssignmentType]
        x = batch(name, config.get("dims", dims), 8, channels=config["in_channels"])
        return {key: value.shape for key, value in model.state_dict().items()}, model.train()(*x)

    def with_change(argument: str, value: Any) -> tuple[dict[str, Any], Tensor]:
        dims = 2 if argument in LEADING else 1
        torch.manual_seed(3)
        return outcome(build(name, {**arguments(name, dims, backbone), argument: value}), dims)

    for argument in inspect.signature(MODELS[name].__init__).parameters:
        if argument == "self" or (argument == "drop_path" and backbone == "classic"):
            continue
        value = CHANGES[argument]
        if argument == "backbone":
            value = "classic" if backbone == "modern" else "modern"
        dims = 2 if argument in LEADING else 1
        shapes, out = outcome(make(name, dims, backbone), dims)
        changed_shapes, changed = with_change(argument, value)
        if shapes == changed_shapes:
            assert relative(changed, out) > 1e-4, argument


@pytest.mark.parametrize(("name", "dims", "backbone"), CASES)
def test_reduced_precision(name: str, dims: int, backbone: str) -> None:
    model, x = make(name, dims, backbone), batch(name, dims)
    exact = model(*x)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(*x)
    assert 0 < relative(found, exact) < 5e-2
    found.float().square().mean().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize(("name", "dims", "backbone"), CASES)
def test_only_blocks_are_in_reduced_precision(name: str, dims: int, backbone: str) -> None:
    """Fields come in and go out as they are: without its blocks a model does not see autocast at all."""
    model, x = make(name, dims, backbone), batch(name, dims)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(*x).dtype == torch.float32
    assert isinstance(model.blocks, nn.ModuleList)
    model.blocks = nn.ModuleList(nn.Identity() for _ in model.blocks)
    exact = model(*x)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(*x)
    assert torch.equal(found, exact)


@pytest.mark.parametrize(("name", "dims", "backbone"), CASES)
def test_a_state_dict_carries_the_whole_model(name: str, dims: int, backbone: str) -> None:
    model, x = make(name, dims, backbone), batch(name, dims)
    torch.manual_seed(99)
    other = build(name, dict(model.config))  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert not torch.equal(other(*x), model(*x))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(*x), model(*x))
    assert torch.equal(copy.deepcopy(model)(*x), model(*x))


@pytest.mark.parametrize(("name", "dims", "backbone"), CASES)
def test_other_resolutions_than_the_first_one(name: str, dims: int, backbone: str) -> None:
    model = make(name, dims, backbone)
    model(*batch(name, dims))
    x = batch(name, dims, points=OTHER_POINTS)
    out = model(*x)
    assert out.shape == (2, 2, *x[0].shape[2:])
    assert bool(out.isfinite().all())


@pytest.mark.parametrize(("name", "dims", "backbone"), ON_POINTS)
def test_wrong_points_are_refused(name: str, dims: int, backbone: str) -> None:
    model, (x, places) = make(name, dims, backbone), batch(name, dims)
    for channels in (1, 2 + dims):  # too few; or with the coordinates counted in
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


@pytest.mark.parametrize(("name", "dims", "backbone"), ON_POINTS)
def test_masked_points_are_not_there(name: str, dims: int, backbone: str) -> None:
    """A ragged batch gives what each cloud gives alone, and what stands at masked points changes nothing."""
    model, (x, places) = make(name, dims, backbone), batch(name, dims, 3)
    number = x.shape[2]
    counts = (number, number // 2, 3)
    mask = torch.arange(number) < torch.tensor(counts)[:, None]
    hidden = x.masked_fill(~mask[:, None], torch.nan), places.masked_fill(~mask[:, None], torch.inf)
    found = model(*hidden, mask)
    for index, count in enumerate(counts):
        alone = model(x[index : index + 1, :, :count], places[index : index + 1, :, :count])
        assert torch.allclose(found[index, :, :count], alone[0], atol=2e-5)
        assert not bool(found[index, :, count:].any())
    found.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize(("name", "dims", "backbone"), ON_POINTS)
def test_the_order_of_the_points_does_not_matter(name: str, dims: int, backbone: str) -> None:
    model, (x, places) = make(name, dims, backbone), batch(name, dims)
    order = torch.randperm(x.shape[2])
    assert torch.allclose(model(x[..., order], places[..., order]), model(x, places)[..., order], atol=1e-5)


@pytest.mark.parametrize(("name", "dims", "backbone"), ON_GRIDS)
def test_wrong_inputs_are_refused(name: str, dims: int, backbone: str) -> None:
    model = make(name, dims, backbone)
    with pytest.raises(ShapeError, match="spatial axes"):
        model(torch.randn(2, *POINTS[dims]))
    for channels in (1, 2 + dims):  # too few; or with the coordinates counted in
        with pytest.raises(ShapeError, match=f"expected 2 input channels on axis 1; got {channels}"):
            model(torch.randn(2, channels, *POINTS[dims]))
    with pytest.raises(ShapeError, match=r"modes\[0\].*lower modes, or use a finer grid"):
        model(torch.randn(2, 2, *(2 for _ in range(dims))))


@pytest.mark.parametrize(("name", "dims", "backbone"), [case for case in CASES if case[1] != 3])
def test_compiled_equals_eager(name: str, dims: int, backbone: str) -> None:
    torch.compiler.reset()
    model, x = make(name, dims, backbone), batch(name, dims)
    eager = model(*x)
    (eager_gradient,) = torch.autograd.grad(eager.square().sum(), [next(model.parameters())])
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    out = compiled(*x)
    (gradient,) = torch.autograd.grad(out.square().sum(), [next(model.parameters())])
    assert torch.allclose(out, eager, atol=1e-6)
    assert torch.allclose(gradient, eager_gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "dims", "backbone"), CASES)
def test_four_samples_are_learnt_by_heart(name: str, dims: int, backbone: str) -> None:
    model = make(name, dims, backbone, width=16)
    x = batch(name, dims, 4)
    y = torch.randn(4, 2, *(1 for _ in x[0].shape[2:])).expand(4, 2, *x[0].shape[2:])
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(120):
        optimiser.zero_grad()
        loss = (model(*x) - y).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 10


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(MODELS))
def test_export_gives_the_same_function_and_leaves_nothing_behind(name: str) -> None:
    """On a grid met for the first time: what is cached while tracing must have values afterwards."""
    model, x = make(name, 2, "modern").eval(), batch(name, 2, points={2: (13, 11)})
    exported = torch.export.export(model, x).module()
    out = model(*x)
    assert type(out) is Tensor
    assert torch.allclose(exported(*x), out, atol=1e-6)
