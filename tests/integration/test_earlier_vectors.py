"""A run takes the vectors of equal texts from an earlier run in its workdir."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from rayhier import run
from rayhier.embed import encode
from rayhier.embed.precision import is_alike
from rayhier.job.plan import make_plan
from rayhier.job.run import run as run_plan
from rayhier.model import precision
from rayhier.spec import load
from rayhier.storage import parquet
from rayhier.storage.artifact import Artifact
from rayhier.storage.ledger import Ledger

from ..conftest import WORDS
from ..toys import artifact, job, tiny_bert
from .in_process import make

pytestmark = pytest.mark.usefixtures("cluster")

STAGES = ("corpus", "embed")


def vectors(spec: Path) -> Artifact:
    return Artifact.open(make_plan(load(spec)).step("vectors").place.folder)


def stored(vectors: Artifact) -> dict[tuple[str, ...], list[float]]:
    """Vectors by file and id, and by text too if they are of pseudo-queries."""
    tables = {name: parquet.read(vectors.path(name)) for name in vectors.names("")}
    return {
        (name.split("/")[0], *(str(value) for key, value in row.items() if key != "vector")): row["vector"]
        for name, table in tables.items()
        for row in table.to_pylist()
    }


def add(corpus: Path) -> None:
    """Add a first document, change the text of another, swap two ids, and judge a query that had no judgement."""
    rows = [json.loads(line) for line in (corpus / "corpus.jsonl").read_text().splitlines()]
    rows[7]["text"] = "a changed text"
    rows[8]["_id"], rows[9]["_id"] = rows[9]["_id"], rows[8]["_id"]
    rows.insert(0, {"_id": "new", "title": "a new title", "text": "a new text"})
    (corpus / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (corpus / "queries.jsonl").open("a") as queries:
        queries.write(json.dumps({"_id": "asked", "text": "a new query"}) + "\n")
    with (corpus / "qrels" / "train.tsv").open("a") as judged:
        judged.write("asked\tnew\t1\n")


@pytest.mark.parametrize("on_ray", [False, True])
def test_only_texts_that_no_earlier_run_encoded_are_encoded(tiny_corpus, tiny_spec, tmp_path, s3, monkeypatch, on_ray):
    """Vectors are the stored ones bit by bit, and those that a run in another workdir computes. Ray uses a bucket."""
    work = s3 if on_ray else str(tmp_path / "work")
    make(tiny_spec(workdir=work), *STAGES)
    before = stored(vectors(tiny_spec(workdir=work)))
    add(tiny_corpus)
    make(tiny_spec(workdir=str(tmp_path / "fresh")), *STAGES)
    wanted = stored(vectors(tiny_spec(workdir=str(tmp_path / "fresh"))))
    texts: list[str] = []
    tokenise = encode.Tokeniser.__call__
    monkeypatch.setattr(
        encode.Tokeniser, "__call__", lambda *own, **role: texts.extend(own[1]) or tokenise(*own, **role)
    )
    spec = tiny_spec(workdir=work)
    if on_ray:
        assert run.main([str(spec), "--stage", "corpus", "--stage", "embed"]) == 0
    else:
        make(spec, *STAGES)
        titles = ["a new title"]  # its pseudo-query
        assert sorted(texts) == sorted(
            ["a new title a new text", f"{WORDS[7]} 7 a changed text", "a new query", *titles]
        )
    made = vectors(spec)
    counts, found = made.record.counts, stored(made)
    assert counts["reused"] == counts["vectors"] - 3
    assert found.keys() == wanted.keys()
    for key, vector in found.items():
        np.testing.assert_allclose(vector, wanted[key], atol=1e-6)
    moved = {"new", "d7", "d8", "d9", "asked"}
    same = [key for key in found if key[1] not in moved]
    assert [found[key] for key in same] == [before[key] for key in same]
    for file, other, name in (("documents", "d8", "d9"), ("documents", "d9", "d8")):
        assert found[file, name] == before[file, other], "a vector goes with its text, not with its id"


def test_other_settings_reuse_nothing(tiny_spec, tiny_corpus, tiny_model, tmp_path):
    make(tiny_spec(), *STAGES)
    add(tiny_corpus)
    model = tiny_bert(tmp_path / "model", WORDS, seed=1)
    other = [
        f"model={model}",
        "max_length=31",
        "query_prefix=q",
        "document_prefix=d",
        "similarity=dot",
        "precision=auto",
    ]
    plans = [make_plan(load(tiny_spec(), [f"encoder.{line}"])) for line in other]
    assert [plan.earlier(plan.step("vectors")) for plan in plans] == [None] * len(other)
    plan = make_plan(load(tiny_spec()))
    found = plan.earlier(plan.step("vectors"))
    assert found is not None
    name = found.names("documents/")[0]
    whole = found.path(name).read_bytes()
    found.path(name).write_bytes(whole[:-1])
    assert plan.earlier(plan.step("vectors")) is None, "a vector is damaged"
    found.path(name).write_bytes(whole)
    shutil.rmtree(tmp_path / "work" / "corpus" / found.record.inputs["corpus"])
    assert plan.earlier(plan.step("vectors")) is None, "its texts are gone"


def test_a_fresh_run_encodes_everything(tiny_corpus, tiny_spec):
    make(tiny_spec(), *STAGES)
    add(tiny_corpus)
    run_plan(make_plan(load(tiny_spec()), STAGES), STAGES, fresh=True)
    assert vectors(tiny_spec()).record.counts["reused"] == 0


@pytest.mark.parametrize(("recorded", "alike"), [(["bfloat16"], True), (["bfloat16", "float32"], False)])
def test_auto_is_the_precision_that_was_recorded(tmp_path, monkeypatch, recorded, alike):
    monkeypatch.setattr(precision, "_faster", lambda device: pytest.fail("measured"))
    one = artifact(tmp_path / "vectors" / "f", "vectors", precision=recorded)
    assert is_alike(job(), Ledger(tmp_path / "ledger", tmp_path), one) == alike
    assert not is_alike(job(cluster={"embed": {"gpus": 1}}), Ledger(tmp_path / "other", tmp_path), one)
    (tmp_path / "agreed").mkdir()
    (tmp_path / "agreed" / "precision.agreed").write_text("torch.float32")
    assert not is_alike(job(), Ledger(tmp_path / "agreed", tmp_path), one), "this run measured another one before"
