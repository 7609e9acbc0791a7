"""The whole spec: one section a stage."""

import re
from typing import Annotated

from pydantic import Field, field_validator

from rayhier.spec.cluster import ClusterSpec
from rayhier.spec.corpus import CorpusSpec
from rayhier.spec.encoder import EncoderSpec
from rayhier.spec.errors import InputError
from rayhier.spec.evaluate import EvaluateSpec
from rayhier.spec.index import IndexSpec
from rayhier.spec.router import RouterSpec
from rayhier.spec.search import MassBeam, SearchSpec
from rayhier.spec.section import Section
from rayhier.spec.train import TrainSpec


class JobSpec(Section):
    """Everything one job does."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Of the job, in reports. Never part of a fingerprint."""
    workdir: Annotated[str, Field(min_length=1)]
    """Holds every artifact: a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX. Never part of a fingerprint."""
    corpus: CorpusSpec
    encoder: EncoderSpec
    router: RouterSpec
    train: TrainSpec = TrainSpec()
    index: IndexSpec = IndexSpec()
    search: SearchSpec = SearchSpec()
    evaluate: EvaluateSpec = EvaluateSpec()
    cluster: ClusterSpec = ClusterSpec()

    @field_validator("workdir")
    @classmethod
    def _place(cls, value: str) -> str:
        if "://" in value and not re.fullmatch(r"(s3|gs)://[^/]+(/.*)?", value):
            raise ValueError("a path on this machine, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
        return value

    @property
    def leaves_per_document(self) -> int:
        """Rows of a document in the leaf map, at most."""
        given = self.index.leaves_per_document
        if given != "auto":
            return given
        return 2 if self.router.training == "taught" else 1

    @property
    def rows_per_document(self) -> float:
        """The same in the mean."""
        return 1 + (self.leaves_per_document - 1) * (self.index.spilled if self.router.training == "taught" else 1)

    @property
    def encoding(self) -> list[str]:
        """Stages that encode texts."""
        return ["embed", *(["index"] if self.encoder.train != "head" else [])]

    def check_beam(self) -> None:
        """InputError where queries are to stop by probabilities that the router does not know."""
        if isinstance(self.search.beam, MassBeam) and self.router.training != "taught":
            raise InputError("search.beam: got type mass with router.training joint; allowed: auto or a whole number")

    def check_leaves(self, documents: int) -> None:
        """InputError where the tree has more leaves than there are documents."""
        leaves = self.router.leaves(documents)
        if leaves > documents:
            raise InputError(
                f"router.branching: got {self.router.branching} with height {self.router.height}, {leaves} leaves; "
                f"allowed: at most as many leaves as documents ({documents})"
            )
