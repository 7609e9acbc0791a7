"""One precision for a run: measured by the first actor, recorded, and taken over by later steps."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from rayhier.embed import precision
from rayhier.embed.precision import agreed, as_embedded
from rayhier.spec import JobSpec
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.ledger import Ledger


@pytest.fixture
def measuring(monkeypatch):
    """`measuring(name)`: what a measurement would find from now on; returns the list of measurements."""

    def set_up(found):
        measured = []
        monkeypatch.setattr(precision, "resolve", lambda _, device: measured.append(device) or f"torch.{found}")
        return measured

    return set_up


def test_who_shares_a_ledger_agrees(measuring, tmp_path):
    """A slower second actor, or a resumed step, does not measure again, whatever it would find."""
    spec, ledger = EncoderSpec(model="m", max_length=77), Ledger(tmp_path, tmp_path)
    assert len(measuring("bfloat16")) == 0
    assert agreed(spec, ledger) == spec.model_copy(update={"precision": "bfloat16"})
    measured = measuring("float32")
    assert agreed(spec, ledger).precision == "bfloat16"
    assert len(measured) == 0
    assert agreed(spec, Ledger(tmp_path / "other", tmp_path)).precision == "float32"
    assert len(measured) == 1


@dataclass
class Vectors:
    """A published embed step, as far as it says which precisions its actors took."""

    precision: list

    @property
    def record(self):
        return SimpleNamespace(counts={"precision": self.precision})


@pytest.mark.parametrize(
    ("given", "recorded", "gpus", "wanted"),
    [
        ("auto", ["float32"], 0, "float32"),
        ("auto", ["bfloat16"], 0, "bfloat16"),
        ("auto", ["bfloat16", "float32"], 0, "auto"),
        ("auto", ["bfloat16"], 1, "auto"),
        ("float16", ["float16"], 0, "float16"),
        ("float32", ["bfloat16"], 0, "float32"),
    ],
)
def test_later_steps_take_what_embed_measured(given, recorded, gpus, wanted):
    spec = JobSpec.model_validate(
        {"name": "t", "workdir": "w", "corpus": {"type": "python_docs"}, "encoder": {"model": "m", "precision": given}}
    )
    assert as_embedded(spec, Vectors(recorded), gpus).encoder.precision == wanted
    assert spec.encoder.precision == given
