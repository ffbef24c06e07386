"""What specs, problems and arguments of models are checked by: no unknown keys, and true and false are no numbers."""

from __future__ import annotations

from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)
from pydantic_core import PydanticCustomError

from hofno.exact import wanted_instead


class Checked(BaseModel):
    """Named values of known types, as `hofno.exact` has them."""

    model_config = ConfigDict(extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _tell_truth_from_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        assert info.field_name is not None
        if wanted := wanted_instead(cls.model_fields[info.field_name].annotation, value):
            raise PydanticCustomError("exact", "Input should be {wanted}", {"wanted": wanted})
        return value


def _one_or_each(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """A number for all axes or one for each, told as one thing and not by what each of the two lacks."""
    try:
        return check(value)
    except ValidationError:
        raise PydanticCustomError(
            "one_or_each", "Input should be a whole number from 2 on, or a list of one for each axis, such as [2, 1]"
        ) from None


ONE_OR_EACH = WrapValidator(_one_or_each)
"""For a number from 2 on, or a list of one for each axis."""
