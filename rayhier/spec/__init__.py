"""What a user asks for: one YAML file, one frozen `JobSpec`. Loads with pydantic and yaml alone."""

from rayhier.spec.errors import InputError, no_room
from rayhier.spec.job import JobSpec
from rayhier.spec.load import load

__all__ = ["InputError", "JobSpec", "load", "no_room"]
