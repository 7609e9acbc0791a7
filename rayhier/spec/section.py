"""The base of every section of a spec: frozen, no unknown keys, fields documented where they stand.

A key given as null counts as not given, so that an override can leave a section of the file out.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

Rate = Annotated[float, Field(gt=0, le=10)]
Weight = Annotated[float, Field(ge=0, le=1000)]


class Section(BaseModel):
    """One mapping of the YAML file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {key: value for key, value in given.items() if value is not None or key not in optional}
