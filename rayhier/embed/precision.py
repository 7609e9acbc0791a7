"""Agree on one number format (precision) in a run: stage embed measures the fastest, and later stages use it too."""

from rayhier.executor import CPU
from rayhier.model.precision import best_device, resolve
from rayhier.spec import JobSpec
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.artifact import Artifact
from rayhier.storage.ledger import Ledger


def agreed(spec: EncoderSpec, ledger: Ledger, known: str | None = None) -> EncoderSpec:
    """Replace precision `auto` by `known`, or by the format that the first process with this ledger found fastest."""
    if spec.precision != "auto":
        return spec
    dtype = ledger.agree("precision", lambda: known or str(resolve("auto", best_device())))
    return spec.model_copy(update={"precision": dtype.removeprefix("torch.")})


def is_alike(spec: JobSpec, ledger: Ledger, earlier: Artifact) -> bool:
    """Return True if an earlier run had this run's number format and kind of device. `auto` becomes this format."""
    recorded: list[str] = earlier.record.counts["precision"]
    if len(recorded) != 1 or (earlier.record.device == CPU) == (spec.cluster.embed.gpus > 0):
        return False
    return agreed(spec.encoder, ledger, recorded[0]).precision == recorded[0]


def as_embedded(spec: JobSpec, vectors: Artifact, gpus: float) -> JobSpec:
    """Replace `precision: auto` by the number format that the embed stage of the same run recorded.

    Precision stays `auto` if only one of the stages had GPUs, or if embed's machines measured different formats.
    """
    recorded = vectors.record.counts["precision"]
    alike = (spec.cluster.embed.gpus > 0) == (gpus > 0)
    if spec.encoder.precision != "auto" or len(recorded) != 1 or not alike:
        return spec
    return spec.model_copy(update={"encoder": spec.encoder.model_copy(update={"precision": recorded[0]})})
