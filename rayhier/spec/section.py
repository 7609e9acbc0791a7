"""The base of every section of a spec: frozen, no unknown keys, fields documented where they stand."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Rate = Annotated[float, Field(gt=0, le=10)]
Weight = Annotated[float, Field(ge=0, le=1000)]


class Section(BaseModel):
    """One mapping of the YAML file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
