"""Actors of the embed stage use one arithmetic, and say with each part which."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.embed import saved, stage
from rayhier.embed.stage import GENERATED, EmbedPart, ledger_key
from rayhier.model import precision
from rayhier.storage import parquet, schemas
from rayhier.storage.ledger import Ledger

from ...toys import artifact, job

PARTS = [f"documents/part-0000{number}.parquet" for number in range(2)]


@pytest.fixture
def actor(tiny_model, tmp_path, monkeypatch):
    """`actor(precision, faster)`: one of a run's, in a process that would measure `faster` to be that."""
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    rows = [[{"doc_id": f"d{part}{row}", "title": "elm", "text": "oak"} for row in range(50)] for part in range(2)]
    tables = [pa.Table.from_pylist(own, schema=schemas.DOCUMENTS) for own in rows]
    corpus = artifact(tmp_path / "corpus", "corpus", dict(zip(PARTS, tables, strict=True)), rows=100)

    def start(name, faster, **own):
        monkeypatch.setattr(precision, "_faster", lambda device: faster)
        encoder = {"model": str(tiny_model), "max_length": 16, "precision": name}
        spec = job(cluster={"embed": {"cpus": 1}}, encoder=encoder, train={"type": "contrast"})
        return EmbedPart(tiny_model, spec, {"corpus": corpus, **own}, Ledger(tmp_path / "ledger", tmp_path / "root"))

    yield start
    torch.set_num_threads(threads)


@pytest.mark.parametrize("named", ["auto", "bfloat16"])
def test_what_the_first_decides_holds_and_is_recorded(actor, tmp_path, named):
    actors = [actor(named, torch.bfloat16), actor(named, torch.float32)]
    for one, name in zip(actors, PARTS, strict=True):
        list(one({"part": name}))
    ledger = Ledger(tmp_path / "ledger", tmp_path / "root")
    assert [ledger.done(ledger_key(name)).counts["precision"] for name in PARTS] == ["bfloat16"] * 2


def test_generated_queries_are_a_part_next_to_the_corpus(actor, tmp_path):
    rows = pa.table([["g0", "g1"], ["pine oak", "ash"]], schema=schemas.QUERIES)
    generated = artifact(tmp_path / "generated", "generated", {"queries.parquet": rows})
    one = actor("float32", torch.float32, generated=generated)
    assert sum(done["rows"] for done in one({"part": GENERATED})) == 2
    found = parquet.read(tmp_path / "root" / GENERATED)
    assert found["query_id"].to_pylist() == ["g0", "g1"]
    assert found["vector"].to_pylist() == one.encoder.encode(["pine oak", "ash"]).tolist()


@pytest.mark.parametrize(("most", "fewest", "largest"), [(100, 100, 100), (30, 20, 40)])
def test_about_as_many_documents_as_allowed_have_pseudo_queries(actor, tmp_path, monkeypatch, most, fewest, largest):
    monkeypatch.setattr(stage, "MOST_DRAWN", most)
    one = actor("float32", torch.float32)
    for name in PARTS:
        list(one({"part": name}))
    drawn = [parquet.read(tmp_path / "root" / name.replace("documents", "spans")) for name in PARTS]
    assert fewest <= sum(map(len, drawn)) <= largest


TEXTS = ["oak", "pine ash elm", "fern moss", "wolf bear deer hare", "leaf", "root"]


@pytest.fixture
def encoding(actor, tmp_path, monkeypatch):
    """`encoding(n)`: encode TEXTS in batches of n with vectors that are saved; and what they must be."""
    monkeypatch.setattr(saved, "SECONDS", 0.0)
    one, ledger = actor("float32", torch.float32), Ledger(tmp_path / "ledger", tmp_path / "root")

    def encode(texts_a_batch):
        one.encoder.most = texts_a_batch, 16
        vectors = yield from saved.SavedVectors(ledger, "part").encode(
            one.encoder, one.encoder.tokenised(TEXTS), one.clock
        )
        np.testing.assert_allclose(vectors, wanted, atol=1e-6)

    wanted = one.encoder.encode(TEXTS)
    return encode


def killed(encoding, rows):
    """The rows that were encoded before a process died."""
    found = [next(encoding)["rows"] for _ in range(rows)]
    encoding.close()
    return found


def test_a_part_goes_on_from_the_vectors_that_were_saved(encoding):
    assert killed(encoding(2), 3) == [0, 2, 2]
    assert [row["rows"] for row in encoding(2)] == [2, 2, 2], "the second batch was not saved yet"


def test_vectors_that_a_run_before_saved_do_not_mix_with_newer_ones(encoding, tmp_path):
    """The first file is lost, and the second one begins where the newer first file does not end."""
    killed(encoding(2), 4)
    (tmp_path / "ledger" / "part-saved-0.json").unlink()
    killed(encoding(1), 3)
    assert sum(row["rows"] for row in encoding(3)) == len(TEXTS)
