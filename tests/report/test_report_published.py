"""The published Poisson numbers: complete, well formed, and equal to print where spot-checked."""

from __future__ import annotations

import pytest

from hofno.errors import HofnoError
from hofno.report import published


def test_there_are_eighty_cells_of_four_numbers() -> None:
    numbers = [
        value
        for degree in published.POISSON_DEGREES
        for cell in published.poisson(degree).values()
        for pair in cell.values()
        for value in pair
    ]
    assert len(numbers) == 80 * 4
    assert all(0 < value < 2 and round(value, published.POISSON_DECIMALS) == value for value in numbers)


@pytest.mark.parametrize("degree", published.POISSON_DEGREES)
def test_every_order_and_depth_is_there(degree: int) -> None:
    expected = {(order, depth) for order in (1, 2, 3, 5) for depth in (1, 2, 4, 8, 16)}
    cells = published.poisson(degree)
    assert set(cells) == expected
    assert all(set(cell) == {"mse", "rel_l2"} for cell in cells.values())
    assert all(std < mean for cell in cells.values() for mean, std in cell.values())


@pytest.mark.parametrize(
    ("degree", "order", "depth", "mse", "rel_l2"),
    [
        (1, 1, 1, (0.00457, 0.00059), (0.06932, 0.00424)),
        (1, 3, 1, (0.00273, 0.00022), (0.05359, 0.00219)),
        (1, 5, 16, (0.00300, 0.00042), (0.05358, 0.00349)),
        (2, 1, 1, (0.09514, 0.00333), (0.32724, 0.00524)),
        (2, 2, 8, (0.00021, 0.00002), (0.01465, 0.00054)),
        (2, 5, 4, (0.00090, 0.00073), (0.02538, 0.00807)),
        (3, 2, 1, (0.53714, 0.03983), (0.75098, 0.02441)),
        (3, 5, 8, (0.00164, 0.00086), (0.03724, 0.00987)),
        (5, 1, 16, (1.20773, 0.00633), (1.11114, 0.00539)),
        (5, 3, 2, (1.39929, 0.02853), (1.20560, 0.01451)),
        (5, 5, 2, (0.00430, 0.00176), (0.06429, 0.01470)),
    ],
)
def test_printed_values(
    degree: int, order: int, depth: int, mse: tuple[float, float], rel_l2: tuple[float, float]
) -> None:
    assert published.poisson(degree)[order, depth] == {"mse": mse, "rel_l2": rel_l2}


def test_unpublished_degree_is_refused() -> None:
    with pytest.raises(HofnoError, match=r"one of \(1, 2, 3, 5\), got 4"):
        published.poisson(4)


def test_source_says_what_mse_means() -> None:
    assert "mse is on standardised targets" in published.poisson_source()
    assert "Higher-Order Fourier Neural Operator" in published.poisson_source()


def test_a_caller_cannot_change_the_data() -> None:
    published.poisson(1).clear()
    assert len(published.poisson(1)) == 20


class TestNavierStokes:
    @pytest.mark.parametrize(
        ("viscosity", "label", "values"),
        [
            (1e-3, "FNO", (3.0e-7, 4.4e-4, 1.2e-2)),
            (1e-3, "HO-FNO order 2", (7.8e-8, 2.8e-4, 1.8e-3)),
            (1e-4, "HO-FNO order 3", (7.9e-4, 1.3e-2, 4.6e-2)),
            (1e-4, "DSFNO", (None, None, 6.0e-2)),
            (1e-5, "LaMO", (1.4e-2, 5.8e-2, 1.1e-1)),
        ],
    )
    def test_one_frame_as_printed(self, viscosity: float, label: str, values: tuple[float | None, ...]) -> None:
        rows = {row["label"]: row for row in published.navier_stokes_one_frame(viscosity)}
        assert tuple(rows[label][key] for key in ("mse", "rel_l2", "rollout")) == values

    def test_the_source_is_told(self) -> None:
        assert "Higher-Order" in published.navier_stokes_source()
        assert "tab:" not in published.navier_stokes_source()

    def test_other_viscosities(self) -> None:
        with pytest.raises(HofnoError, match="expected a published viscosity"):
            published.navier_stokes_one_frame(1e-2)


class TestMainTable:
    @pytest.mark.parametrize(
        ("problem", "models", "best", "values"),
        [
            ("navier_stokes", 22, "HO-FNO", (0.0319, 0.0976, 0.1556)),
            ("darcy", 22, "LaMO", (0.0052, 0.0068, 0.0108)),
            ("plasticity", 23, "HO-FNO", (0.0006, 0.0066, 0.0074)),
            ("airfoil", 23, "LaMO", (0.0051, 0.0065, 0.0138)),
            ("pipe", 23, "MSPT", (0.0049, 0.0069, 0.0067)),
            ("elasticity", 20, "Erwin", (0.0199, 0.0205, 0.0229)),
        ],
    )
    def test_as_printed(self, problem: str, models: int, best: str, values: tuple[float, ...]) -> None:
        found = published.main_table(problem)
        assert len(found) == models
        assert next(iter(found)) == best
        assert tuple(found[label] for label in ("HO-FNO", "FNO with modern backbone", "FNO")) == values
        assert "main table of results" in published.main_table_source(problem)
        assert "tab:" not in published.main_table_source(problem), "a label of the source of a paper says nothing"

    def test_other_benchmarks(self) -> None:
        with pytest.raises(HofnoError, match="expected a benchmark of the main table"):
            published.main_table("poisson")


class TestOtherTables:
    def test_bands_as_printed(self) -> None:
        found = {problem: published.bands(problem) for problem in ("navier_stokes", "airfoil", "pipe")}
        values = {"full": 0.0449, "low": 0.055541, "medium": 0.206717, "high": 0.372876}
        assert found["navier_stokes"]["HO-FNO"] == values
        assert found["airfoil"]["FNO"]["high"] == 0.146905
        assert found["pipe"]["HO-FNO"]["low"] == 0.14126
        assert published.bands("darcy") == {}

    def test_structures_as_printed(self) -> None:
        found = published.structures()
        assert (len(found), found["dense"], found["shared"]) == (8, 0.0052, 0.0067)

    def test_the_sphere_as_printed(self) -> None:
        found, windows = published.sphere(), published.sphere_windows()
        assert set(found) == {"SFNO", "HO-SFNO"}
        assert found["HO-SFNO"] == {
            "mse": 5.56,
            "rel_l2": 0.013,
            "0:10": 0.08,
            "11:25": 0.26,
            "26:50": 0.62,
            "rollout": 0.70,
        }
        assert list(windows.values()) == [(0, 10), (10, 25), (25, 50)], "steps that follow one another"
        assert set(windows) < set(found["SFNO"])

    @pytest.mark.parametrize("name", ["bands", "darcy_structure", "shallow_water"])
    def test_sources(self, name: str) -> None:
        assert "Higher-Order" in published.source(name)
        assert "tab:" not in published.source(name)
