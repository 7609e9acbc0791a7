"""Decisions about a trained model that are based on queries, each a JSON file of an artifact."""

from typing import ClassVar, Self

from pydantic import BaseModel

from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import Location


class Decision(BaseModel, frozen=True, extra="forbid"):
    """Base of decisions. A decision states what was decided, by which queries, and what these queries found."""

    file: ClassVar[str]

    @classmethod
    def open(cls, artifact: Artifact) -> Self | None:
        """Read an artifact's decision. None if the artifact has no decision, InputError if the file was changed."""
        return cls.model_validate(files.read_json(artifact.verified(cls.file))) if artifact.names(cls.file) else None

    @classmethod
    def read(cls, root: Location) -> Self | None:
        """Read the decision below `root` before it is published. None if no decision was made."""
        return cls.model_validate(files.read_json(root / cls.file)) if cls.file in files.below(root) else None

    def write(self, root: Location) -> None:
        files.write_json(root / self.file, self.model_dump(mode="json"))
