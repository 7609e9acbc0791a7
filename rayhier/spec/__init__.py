"""The spec of a job: one YAML file, read as one frozen `JobSpec`. Imports only pydantic and yaml, to load fast."""

from rayhier.spec.errors import InputError, no_room
from rayhier.spec.job import JobSpec
from rayhier.spec.load import load

__all__ = ["InputError", "JobSpec", "load", "no_room"]
