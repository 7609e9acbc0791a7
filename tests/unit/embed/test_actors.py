"""Actors of the embed stage use one arithmetic, and say with each part which."""

import pytest
import torch

from rayhier.embed.ray import EmbedPart, ledger_key
from rayhier.model import precision
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import files, schemas
from rayhier.storage.ledger import Ledger

PARTS = [f"documents/part-0000{number}.parquet" for number in range(2)]


@pytest.fixture
def actor(tiny_model, tmp_path, monkeypatch):
    """`actor(precision, faster)`: one of a run's, in a process that would measure `faster` to be that."""
    import pyarrow as pa

    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    for number, name in enumerate(PARTS):
        rows = pa.Table.from_pylist([{"doc_id": f"d{number}", "title": "", "text": "oak"}], schema=schemas.DOCUMENTS)
        files.write_parquet(tmp_path / "corpus", name, [rows], schemas.DOCUMENTS)

    def start(name, faster):
        monkeypatch.setattr(precision, "_faster", lambda device: faster)
        spec = EncoderSpec(model=str(tiny_model), max_length=16, device="cpu", precision=name).model_dump()
        root, ledger = tmp_path / "root", tmp_path / "ledger"
        return EmbedPart(str(tiny_model), spec, str(tmp_path / "corpus"), str(root), str(ledger), 1)

    yield start
    torch.set_num_threads(threads)


@pytest.mark.parametrize("named", ["auto", "bfloat16"])
def test_what_the_first_decides_holds_and_is_recorded(actor, tmp_path, named):
    actors = [actor(named, torch.bfloat16), actor(named, torch.float32)]
    for one, name in zip(actors, PARTS, strict=True):
        one({"part": name})
    ledger = Ledger(tmp_path / "ledger", tmp_path / "root")
    assert [ledger.done(ledger_key(name)).counts["precision"] for name in PARTS] == ["bfloat16"] * 2
