"""Actors of the embed stage use one arithmetic, and say with each part which."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.embed.ray import GENERATED, EmbedPart, TokenisePart, ledger_key
from rayhier.embed.tokeniser import unpacked
from rayhier.model import precision
from rayhier.spec import InputError
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import files, schemas
from rayhier.storage.ledger import Ledger

PARTS = [f"documents/part-0000{number}.parquet" for number in range(2)]


@pytest.fixture
def actor(tiny_model, tmp_path, monkeypatch):
    """`actor(precision, faster)`: one of a run's, in a process that would measure `faster` to be that."""
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    for number, name in enumerate(PARTS):
        rows = pa.Table.from_pylist([{"doc_id": f"d{number}", "title": "", "text": "oak"}], schema=schemas.DOCUMENTS)
        files.write_parquet(tmp_path / "corpus", name, [rows], schemas.DOCUMENTS)

    def start(name, faster, *own):
        monkeypatch.setattr(precision, "_faster", lambda device: faster)
        spec = EncoderSpec(model=str(tiny_model), max_length=16, precision=name).model_dump()
        root, ledger = tmp_path / "root", tmp_path / "ledger"
        return EmbedPart(str(tiny_model), spec, str(tmp_path / "corpus"), str(root), str(ledger), 1, None, *own)

    yield start
    torch.set_num_threads(threads)


@pytest.mark.parametrize("named", ["auto", "bfloat16"])
def test_what_the_first_decides_holds_and_is_recorded(actor, tmp_path, named):
    actors = [actor(named, torch.bfloat16), actor(named, torch.float32)]
    for one, name in zip(actors, PARTS, strict=True):
        one({"part": name})
    ledger = Ledger(tmp_path / "ledger", tmp_path / "root")
    assert [ledger.done(ledger_key(name)).counts["precision"] for name in PARTS] == ["bfloat16"] * 2


class Titles:
    """Draws a pseudo-query of the first document."""

    def draw(self, *_):
        return [0], ["oak"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("bad", ["documents", "spans"])
def test_vectors_that_are_no_numbers_are_not_published(actor, tmp_path, bad, value, monkeypatch):
    one = actor("float32", torch.float32)
    one.drawer, encode = Titles(), one.encoder.encode
    add = iter([np.zeros(32, np.float32), np.full(32, value, np.float32)] if bad == "spans" else [np.float32(value)])
    monkeypatch.setattr(one.encoder, "encode", lambda texts: encode(texts) + next(add))
    said = (
        rf"^encoder.model: 1 of 1 vectors of {PARTS[0]} hold NaN or infinity: 'd0'; allowed: weights that are numbers"
    )
    with pytest.raises(InputError, match=said):
        one({"part": PARTS[0]})
    assert Ledger(tmp_path / "ledger", tmp_path / "root").done(ledger_key(PARTS[0])) is None


def test_generated_queries_are_a_part_beside_the_corpus(actor, tiny_model, tmp_path):
    """Encoded from their own artifact, tokens made ahead of it or not."""
    rows = pa.table([["g0", "g1"], ["pine oak", "ash"]], schema=schemas.QUERIES)
    files.write_parquet(tmp_path / "generated", "queries.parquet", [rows], schemas.QUERIES)
    generated = str(tmp_path / "generated")
    one = actor("float32", torch.float32, generated)
    ahead = TokenisePart(str(tiny_model), 16, str(tmp_path / "corpus"), 1, generated)({"part": GENERATED})
    assert [len(ids) for ids in unpacked(ahead)] == [4, 3]
    found = []
    for row in ({"part": GENERATED}, ahead):
        assert one(row)["rows"] == 2
        found.append(files.read_table(tmp_path / "root" / GENERATED))
    assert found[0].equals(found[1])
    assert found[0]["query_id"].to_pylist() == ["g0", "g1"]
    assert found[0]["vector"].to_pylist() == one.encoder.encode(["pine oak", "ash"]).tolist()
