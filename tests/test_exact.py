"""True and false are no numbers, and numbers are neither: in specs, in problems, in the arguments of models."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import numpy as np
import pytest

import hofno
from hofno.checked import Checked
from hofno.errors import HofnoError, SpecError
from hofno.exact import is_whole, wanted_instead
from hofno.models.registry import MODELS, build, check_arguments
from hofno.problems.registry import PROBLEMS, problem
from hofno.spec import Spec, TrainSpec, check_seed

NUMBERS = (int, float)
SMALL: dict[str, Any] = {
    "in_channels": 1,
    "out_channels": 1,
    "modes": (2, 2),
    "points": 4,
    "degrees": 2,
    "functions": 2,
}


def arguments_and_kinds(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a model needs, and the kinds of all that it takes."""
    known = inspect.signature(MODELS[name]).parameters
    needed = {key: SMALL[key] for key, given in known.items() if given.default is inspect.Parameter.empty}
    return needed, get_type_hints(MODELS[name].__init__)


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (int, True, "a whole number, neither true nor false"),
        (float, False, "a number, neither true nor false"),
        (int, np.True_, "a whole number, neither true nor false"),
        (int, np.array(True), "a whole number, neither true nor false"),
        (tuple[int, ...], [2, True], "whole numbers, neither true nor false"),
        (tuple[tuple[float, ...], ...], ((1.0,), (False,)), "numbers, neither true nor false"),
        (tuple[int, ...] | None, True, "whole numbers, neither true nor false"),
        (bool, 1, "true or false"),
        (bool, "yes", "true or false"),
        (bool, np.int64(1), "true or false"),
        *((int, number, "") for number in (1, 1e3, np.int64(1), np.float32(1), np.array(1))),
        *((float, number, "") for number in (1, 0.5, np.float64(0.5))),
        *((bool, truth, "") for truth in (True, False, np.True_)),
        (bool | int, 1, ""),
        (bool | int, True, ""),
        (tuple[int, ...] | None, None, ""),
        (str, True, ""),  # no matter of this rule
    ],
)
def test_what_is_wanted_instead(kind: Any, value: Any, wanted: str) -> None:
    assert wanted_instead(kind, value) == wanted


@pytest.mark.parametrize("model", [TrainSpec, Spec, *PROBLEMS.values()])
def test_no_field_takes_one_for_the_other(model: type[Checked]) -> None:
    for key, field in model.model_fields.items():
        wrong = {bool: (1, 0, "yes", "true"), int: (True, False, np.True_), float: (True, np.False_)}
        for value in wrong.get(field.annotation or type(None), ()):
            with pytest.raises(
                ValueError, match=f"{key}\n  Input should be (true or false|a (whole )?number, neither)"
            ):
                model(**{key: value})


@pytest.mark.parametrize("name", MODELS)
def test_no_argument_of_a_model_takes_one_for_the_other(name: str) -> None:
    needed, kinds = arguments_and_kinds(name)
    tried = 0
    for key in inspect.signature(MODELS[name]).parameters:
        wrong = 1 if kinds[key] is bool else True if kinds[key] in NUMBERS else None
        if wrong is None:
            continue
        tried += 1
        with pytest.raises(SpecError, match=f"^model.{key}: input should be (true|a (whole )?number, neither)"):
            check_arguments(name, {**needed, key: wrong})
        with pytest.raises(SpecError, match=f"{key}.*; got {wrong}; give such a one"):
            MODELS[name](**{**needed, key: wrong})
    assert tried > 3


def test_the_line_of_each() -> None:
    with pytest.raises(SpecError, match=r"^epochs: Input should be a whole number, neither true nor false; got True$"):
        hofno.fit(hofno.HOFNO(1, 1, (2, 2)), hofno.generate("poisson", train=1, valid=1, test=1), epochs=True)
    with pytest.raises(SpecError, match=r"^poisson.train: Input should be a whole number, neither true .*; got True$"):
        hofno.generate("poisson", train=True)
    with pytest.raises(SpecError, match=r"^depth of HOFNO should be a whole number, neither .*; got True; give such a"):
        hofno.HOFNO(1, 1, (2, 2), depth=True)
    with pytest.raises(SpecError, match=r"^dealias of HOFNO should be true or false; got 1; give such a one"):
        hofno.HOFNO(1, 1, (2, 2), dealias=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SpecError, match=r"^modes must be a tuple of whole numbers.*got \(2, True\)"):
        hofno.HOFNO(1, 1, (2, True))
    with pytest.raises(SpecError, match=r"^seed is a whole number from 0 to .*; got True"):
        check_seed(True)


def test_counts_given_to_an_operator_are_no_truths() -> None:
    data = hofno.from_arrays(np.ones((3, 1, 4, 4)), np.ones((3, 1, 4, 4)), split=(1, 1, 1))
    operator = hofno.Surrogate.around(hofno.HOFNO(1, 1, (2, 2), width=2, depth=1), data)
    with pytest.raises(HofnoError, match=r"batch_size counts samples .*; got True"):
        operator.predict(data.test.x, batch_size=True)
    assert not is_whole(True)


def test_numbers_of_numpy_and_whole_floats_are_taken() -> None:
    settings = TrainSpec(epochs=1e3, lr=np.float32(0.5), augment=np.True_, coarser=np.array([2, 3]))  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert (settings.epochs, settings.lr, settings.augment, settings.coarser) == (1000, 0.5, True, (2, 3))
    made = problem("poisson", {"train": np.int64(3)})
    assert (made.train, type(made.train)) == (3, int)
    given = {"in_channels": np.int64(1), "out_channels": 1.0, "modes": [np.int64(2), 2], "dealias": np.True_}
    assert getattr(build("hofno", given), "config")["dealias"] is True  # noqa: B009
    model = hofno.HOFNO(np.int64(1), 1, (np.int64(2), 2), width=np.int32(4), dealias=np.True_)  # pyright: ignore[reportArgumentType]
    assert (model.config["width"], model.config["dealias"]) == (4, True)
