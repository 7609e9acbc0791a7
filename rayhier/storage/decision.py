"""Decisions about a trained model that queries made, published as a JSON file of an artifact."""

from typing import ClassVar, Self

from pydantic import BaseModel

from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import Location


class Decision(BaseModel, frozen=True, extra="forbid"):
    """Base of decisions: what was decided, by which queries, and what they found."""

    file: ClassVar[str]

    @classmethod
    def open(cls, artifact: Artifact) -> Self | None:
        """Read the decision that an artifact holds, if any. InputError if the file is not as it was published."""
        return cls.model_validate(files.read_json(artifact.verified(cls.file))) if artifact.names(cls.file) else None

    @classmethod
    def read(cls, root: Location) -> Self | None:
        """Read the decision below `root`, before it is published, if there is one."""
        return cls.model_validate(files.read_json(root / cls.file)) if cls.file in files.below(root) else None

    def write(self, root: Location) -> None:
        files.write_json(root / self.file, self.model_dump(mode="json"))
