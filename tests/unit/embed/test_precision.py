"""One precision for a run: measured by the first actor, recorded, and taken over by later steps."""

from types import SimpleNamespace

import pytest

from rayhier.embed.precision import as_embedded

from ...toys import job


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
    spec = job(encoder={"model": "m", "precision": given})
    embedded = SimpleNamespace(record=SimpleNamespace(counts={"precision": recorded}))
    assert as_embedded(spec, embedded, gpus).encoder.precision == wanted
    assert spec.encoder.precision == given
