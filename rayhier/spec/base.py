"""Base class of the sections of a spec. Sections are frozen, refuse unknown keys, and describe fields by docstrings.

A key whose value is null counts as left out. So `--set` can remove a section of the file.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

Rate = Annotated[float, Field(gt=0, le=10)]
Weight = Annotated[float, Field(ge=0, le=1000)]


class UnusedKeysError(ValueError):
    """Error about keys of a section that have no effect because of the values of other keys."""

    def __init__(self, keys: Sequence[str], where: str) -> None:
        """Take the keys and a condition of their effect, such as `only if source is not none`."""
        super().__init__(f"{', '.join(keys)} {where}")
        self.keys, self.where = tuple(keys), where


class Section(BaseModel):
    """A section of the spec: a mapping of the YAML file, checked by pydantic."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, mapping: Any) -> Any:
        if not isinstance(mapping, dict):
            return mapping
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {key: value for key, value in mapping.items() if value is not None or key not in optional}

    def changed(self, *names: str) -> list[str]:
        """List the named fields whose values differ from their defaults."""
        fields = type(self).model_fields
        return [name for name in names if getattr(self, name) != fields[name].default]

    def refuse(self, *names: str, where: str) -> None:
        """Raise UnusedKeysError if a named field is not the default. `where` says when other values have an effect."""
        if changed := self.changed(*names):
            raise UnusedKeysError(changed, where)
