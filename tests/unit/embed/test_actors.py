"""Actors of the embed stage use one arithmetic, and say with each part which."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.embed import saved
from rayhier.embed.stage import GENERATED, EmbedPart, TokenisePart, ledger_key
from rayhier.embed.tokeniser import unpacked
from rayhier.model import precision
from rayhier.spec import InputError, JobSpec
from rayhier.storage import parquet, schemas
from rayhier.storage.ledger import Ledger

from ...toys import artifact

PARTS = [f"documents/part-0000{number}.parquet" for number in range(2)]


@pytest.fixture
def actor(tiny_model, tmp_path, monkeypatch):
    """`actor(precision, faster)`: one of a run's, in a process that would measure `faster` to be that."""
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    rows = [[{"doc_id": f"d{number}", "title": "", "text": "oak"}] for number in range(2)]
    tables = [pa.Table.from_pylist(own, schema=schemas.DOCUMENTS) for own in rows]
    corpus = artifact(tmp_path / "corpus", "corpus", dict(zip(PARTS, tables, strict=True)))

    def start(name, faster, *own):
        monkeypatch.setattr(precision, "_faster", lambda device: faster)
        encoder = {"model": str(tiny_model), "max_length": 16, "precision": name}
        least = {"name": "t", "workdir": "w", "corpus": {"type": "python_docs"}, "cluster": {"embed": {"cpus": 1}}}
        spec = JobSpec.model_validate({**least, "encoder": encoder, "train": {"type": "contrast"}})
        return EmbedPart(tiny_model, spec, corpus, Ledger(tmp_path / "ledger", tmp_path / "root"), *own)

    yield start
    torch.set_num_threads(threads)


@pytest.mark.parametrize("named", ["auto", "bfloat16"])
def test_what_the_first_decides_holds_and_is_recorded(actor, tmp_path, named):
    actors = [actor(named, torch.bfloat16), actor(named, torch.float32)]
    for one, name in zip(actors, PARTS, strict=True):
        list(one({"part": name}))
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
    one.drawer, batches = Titles(), one.encoder.batches
    add = iter([0.0, value] if bad == "spans" else [value])

    def broken(tokens, begin=0):
        for rows, vectors in batches(tokens, begin=begin):
            yield rows, vectors + next(add)

    monkeypatch.setattr(one.encoder, "batches", broken)
    said = (
        rf"^encoder.model: 1 of 1 vectors of {PARTS[0]} hold NaN or infinity: 'd0'; allowed: weights that are numbers"
    )
    with pytest.raises(InputError, match=said):
        list(one({"part": PARTS[0]}))
    assert Ledger(tmp_path / "ledger", tmp_path / "root").done(ledger_key(PARTS[0])) is None


def test_generated_queries_are_a_part_beside_the_corpus(actor, tiny_model, tmp_path):
    """Encoded from their own artifact, tokens made ahead of it or not."""
    rows = pa.table([["g0", "g1"], ["pine oak", "ash"]], schema=schemas.QUERIES)
    generated = artifact(tmp_path / "generated", "generated", {"queries.parquet": rows})
    one = actor("float32", torch.float32, generated)
    (ahead,) = TokenisePart(tiny_model, 16, one.corpus, 1, generated)({"part": GENERATED})
    assert [len(ids) for ids in unpacked(ahead)] == [4, 3]
    found = []
    for row in ({"part": GENERATED}, ahead):
        assert sum(done["rows"] for done in one(row)) == 2
        found.append(parquet.read(tmp_path / "root" / GENERATED))
    assert found[0].equals(found[1])
    assert found[0]["query_id"].to_pylist() == ["g0", "g1"]
    assert found[0]["vector"].to_pylist() == one.encoder.encode(["pine oak", "ash"]).tolist()


def test_a_part_goes_on_from_the_vectors_that_were_saved(actor, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(saved, "SECONDS", 0.0)
    texts = ["oak", "pine ash elm", "fern moss", "wolf bear deer hare", "leaf"]
    one = actor("float32", torch.float32)
    one.encoder.texts, one.encoder.tokens = 2, 16
    wanted, ledger = one.encoder.encode(texts), Ledger(tmp_path / "ledger", tmp_path / "root")

    def encoding():
        return saved.SavedVectors(ledger, "part").encode(one.encoder, one.encoder.tokenised(texts), one.clock)

    killed = encoding()
    assert [next(killed)["rows"] for _ in range(3)] == [0, 2, 2]
    killed.close()

    def going_on():
        vectors = yield from encoding()
        np.testing.assert_array_equal(vectors, wanted)

    counts = [row["rows"] for row in going_on()]
    assert counts == [2, 2, 1], "the second batch was not saved yet"


def test_vectors_that_a_run_before_saved_do_not_mix_with_newer_ones(actor, tmp_path, monkeypatch):
    """The first file is lost, and the second one begins where the newer first file does not end."""
    monkeypatch.setattr(saved, "SECONDS", 0.0)
    texts = ["oak", "pine ash elm", "fern moss", "wolf bear deer hare", "leaf", "root"]
    one, ledger = actor("float32", torch.float32), Ledger(tmp_path / "ledger", tmp_path / "root")
    wanted = one.encoder.encode(texts)

    def begun(rows, texts_a_batch):
        one.encoder.texts = texts_a_batch
        made = saved.SavedVectors(ledger, "part").encode(one.encoder, one.encoder.tokenised(texts), one.clock)
        for _ in range(rows):
            next(made)
        made.close()

    begun(4, 2)
    (tmp_path / "ledger" / "part-saved-0.json").unlink()
    begun(3, 1)
    one.encoder.texts = 3

    def going_on():
        vectors = yield from saved.SavedVectors(ledger, "part").encode(
            one.encoder, one.encoder.tokenised(texts), one.clock
        )
        np.testing.assert_allclose(vectors, wanted, atol=1e-6)

    assert sum(row["rows"] for row in going_on()) == len(texts)
