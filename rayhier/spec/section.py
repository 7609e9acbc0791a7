"""The base of every section of a spec: frozen, no unknown keys, fields documented where they stand."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """One mapping of the YAML file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
