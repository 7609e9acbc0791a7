"""Base of every section of a spec: frozen, refuses unknown keys, each field described by the string below it.

A key whose value is null counts as not given, so that an override can remove a section of the file.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

Rate = Annotated[float, Field(gt=0, le=10)]
"""A learning rate."""
Weight = Annotated[float, Field(ge=0, le=1000)]
"""The weight of a part of a loss."""


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

    def changed(self, *names: str) -> list[str]:
        """Fields among `names` whose values are not the defaults."""
        fields = type(self).model_fields
        return [name for name in names if getattr(self, name) != fields[name].default]
