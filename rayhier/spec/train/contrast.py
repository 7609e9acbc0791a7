"""`train: {type: contrast}`: only the encoder learns, moving queries towards their documents, away from others."""

from typing import Literal, Self

from pydantic import model_validator

from rayhier.spec.train.common import InfoNce

LEARNS = (
    "epochs",
    "batch_size",
    "micro_batch",
    "encoder_lr",
    "temperature",
    "hard_negatives",
    "anchor",
    "measure_every",
)
"""Keys of what trains by judged pairs."""


class ContrastTraining(InfoNce):
    """InfoNCE over a batch's documents and mined hard negatives; without train judgements nothing is trained."""

    type: Literal["contrast"]

    @model_validator(mode="after")
    def _trains_at_all(self) -> Self:
        if self.objective == "documents":
            self.refuse(*LEARNS, where="only where objective is not documents, which trains no encoder")
        return self

    @property
    def routes(self) -> bool:
        """Return False: the router learns after the encoder."""
        return False

    @property
    def needs_judgements(self) -> bool:
        """Return True: nothing is trained without train judgements."""
        return True

    def phases(self, pairs: int, documents: int) -> dict[str, int]:  # noqa: ARG002  documents teach nothing here
        """Phases of training, name -> epochs; empty without judged pairs, so that the encoder stays as it is."""
        return {"encoder": self.passes(pairs)} if pairs else {}
