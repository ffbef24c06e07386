"""U-NO beyond what every model is held to: its published size, its operators, functions and not grids."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hofno.errors import ShapeError, SpecError
from hofno.models.registry import parameter_counts
from hofno.models.uno import UNO, Operator
from hofno.transforms import resample
from reference import coefficients, complex_weight, field, kept, random_waves, relative, sample


def test_as_large_as_published() -> None:
    with torch.device("meta"):
        model = UNO(10, 1, (22, 22), mode_set="reference")
        count = parameter_counts(model)["real"]
    assert count / 1e6 == pytest.approx(30, rel=0.02)
    operators = [part for part in model.modules() if isinstance(part, Operator)]
    assert sorted(part.modes[0] for part in operators) == [6, 6, 6, 14, 14, 22, 22]
    widths = [(part.local.in_features, part.local.out_features) for part in operators]
    assert widths == [(32, 48), (48, 96), (96, 192), (192, 96), (192, 48), (96, 32), (192, 192)]


@pytest.mark.parametrize("points", [(5, 6), (11, 9), (8, 7)])
def test_an_operator_is_its_formula_on_any_grid(points: tuple[int, int]) -> None:
    torch.manual_seed(0)
    operator = Operator(3, 2, (2, 3), "symmetric").double()
    v = torch.randn(1, 8, 7, 3, dtype=torch.float64)
    ks = kept((2, 3), "symmetric")
    spectrum = np.einsum("ijc,ijco->ijo", coefficients(v[0].numpy(), ks), complex_weight(operator.filter.weight))
    local = operator.local(resample.cubic(v, points))
    expected = F.gelu(torch.from_numpy(field(spectrum, ks, points))[None] + local)
    assert relative(operator(v, points), expected) < 1e-12


def test_what_goes_through_series_and_interpolation_stays_in_place() -> None:
    """A wave on another grid is the same wave: the two parts of an operator mean the same positions."""
    operator = Operator(1, 1, (4,), "symmetric").double()
    with torch.no_grad():
        operator.filter.weight.zero_()
        operator.local.weight.fill_(1.0)
        operator.local.bias.zero_()
    waves = random_waves(1, 1, 1, np.random.default_rng(0))
    for points in (48, 24):
        expected = F.gelu(sample(waves, (points,)))
        assert relative(operator(sample(waves, (32,)), (points,)), expected) < 0.01


def test_the_same_function_at_two_resolutions() -> None:
    torch.manual_seed(0)
    model = UNO(1, 1, (4, 4), width=8, sizes=(0.75, 0.5), growth=(1.5, 2), shares=(1, 0.5), coordinates="periodic")
    waves = random_waves(2, 2, 1, np.random.default_rng(0))

    def answer(points: int) -> torch.Tensor:
        x = sample(waves, (points, points)).movedim(-1, 1)
        return model.double()(x)[..., :: points // 16, :: points // 16]

    coarse, fine, finest = answer(16), answer(32), answer(64)
    assert relative(fine, finest) < relative(coarse, finest) / 3 < 0.02


def test_padding_is_cropped_where_one_axis_has_none() -> None:
    model = UNO(1, 1, (2, 3), width=4, domain_padding=0.15)
    assert model(torch.randn(1, 1, 12, 30)).shape == (1, 1, 12, 30)
    assert UNO(1, 1, (1, 3), width=4, domain_padding=0.15)(torch.randn(1, 1, 5, 30)).shape == (1, 1, 5, 30)


def test_arguments_that_mean_nothing_are_refused() -> None:
    for change, text in (
        ({"sizes": (0.5, 0.75, 0.25)}, "sizes fall from at most 1 to above 0"),
        ({"sizes": (0.5,)}, "sizes, growth and shares have a number for each coarser grid"),
        ({"shares": (1.0, 2.0, 0.5)}, "shares are fractions of at most 1"),
        ({"growth": (1.0, 0.0, 0.5)}, "growth is above 0"),
        ({"domain_padding": 9.0}, "domain_padding is a fraction"),
    ):
        with pytest.raises(SpecError, match=text):
            UNO(1, 1, (3,), width=4, **change)  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        ShapeError, match=r"between grids of \(6,\) and \(4,\) points keeps 4 modes, .*: modes\[0\]=4 .* or shares"
    ):
        UNO(1, 1, (4,), width=4)(torch.randn(1, 1, 6))


@pytest.mark.parametrize(("modes", "mode_set"), [(5, "symmetric"), (5, "reference"), (12, "symmetric")])
def test_how_many_points_hold_the_modes_of_every_operator(modes: int, mode_set: str) -> None:
    model = UNO(1, 1, (modes, modes), width=1, mode_set=mode_set)  # pyright: ignore[reportArgumentType]
    assert all(m > modes for m in model.modes)
    for more in range(4):
        points = [2 * m + more for m in model.modes]
        assert model(torch.zeros(1, 1, *points)).shape == (1, 1, *points)
    with pytest.raises(ShapeError, match=r"modes, a share of the model's: .* or give other sizes or shares"):
        model(torch.zeros(1, 1, 2 * modes, 2 * modes))
