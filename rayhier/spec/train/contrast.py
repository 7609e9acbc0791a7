"""`train: {type: contrast}`: the encoder learns alone, moving queries towards their documents, away from others."""

from typing import Literal, Self

from pydantic import model_validator

from rayhier.spec.train.common import InfoNce

LEARNS = (
    "epochs",
    "batch_size",
    "encoder_lr",
    "temperature",
    "hard_negatives",
    "anchor",
)
"""Keys that have no effect where nothing is trained by judged pairs."""


class ContrastTraining(InfoNce):
    """Training of the encoder by InfoNCE on judged pairs; without train judgements nothing is trained."""

    type: Literal["contrast"]

    @model_validator(mode="after")
    def _trains_at_all(self) -> Self:
        if self.objective == "documents":
            self.refuse(*LEARNS, where="only where objective is not documents, which trains no encoder")
        return self

    @property
    def needs_judgements(self) -> bool:
        return True

    def phases(self, pairs: int, documents: int) -> dict[str, int]:  # noqa: ARG002  documents teach nothing here
        """Return the phases of training, name -> epochs. None without judged pairs, where nothing is trained."""
        return {"encoder": self.passes(pairs)} if pairs else {}
