"""What specs, problems and arguments of models are checked by: no unknown keys, and true and false are no numbers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
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
