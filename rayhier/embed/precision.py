"""Agree on one number format (precision) for all processes of a run: embed measures it, later stages follow."""

from rayhier.model.precision import best_device, resolve
from rayhier.spec import JobSpec
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.artifact import Artifact
from rayhier.storage.ledger import Ledger


def agreed(spec: EncoderSpec, ledger: Ledger) -> EncoderSpec:
    """Replace precision `auto` by the format that the first process with this ledger found fastest."""
    if spec.precision != "auto":
        return spec
    dtype = ledger.agree("precision", lambda: str(resolve("auto", best_device())))
    return spec.model_copy(update={"precision": dtype.removeprefix("torch.")})


def as_embedded(spec: JobSpec, vectors: Artifact, gpus: float) -> JobSpec:
    """Replace `precision: auto` by the number format that the embed stage of the same run recorded.

    It stays `auto` if only one of the stages had GPUs, or if embed's machines measured different formats.
    """
    recorded = vectors.record.counts["precision"]
    alike = (spec.cluster.embed.gpus > 0) == (gpus > 0)
    if spec.encoder.precision != "auto" or len(recorded) != 1 or not alike:
        return spec
    return spec.model_copy(update={"encoder": spec.encoder.model_copy(update={"precision": recorded[0]})})
