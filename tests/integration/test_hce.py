"""HCE from a folder of documents alone to a searchable index, by pseudo-queries, and what it refuses on the way."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from rayhier import run
from rayhier.search.snapshot import Snapshot
from rayhier.storage import columns, current, files
from rayhier.train import stage as train

pytestmark = pytest.mark.usefixtures("cluster")

DRAWN = "pseudo_queries: {source: titles_and_spans, length: 4}"


def test_a_folder_of_documents_teaches_an_encoder(tiny_spec, tiny_corpus, tmp_path, tiny_model, monkeypatch, here):
    """The last layer trains against a tree that grows anew; its nodes are the index's leaves."""
    here()
    work = tmp_path / "work"
    spec = tiny_spec(
        corpus=f"{{type: jsonl, documents: {tiny_corpus}/corpus.jsonl, columns: {{id: _id}}}}",
        encoder=f"{{model: {tiny_model}, max_length: 32, precision: float32, train: last_layer}}",
        train=f"{{type: hce, epochs: 2, batch_size: 32, encoder_lr: 1e-3, tree: {{recluster: every}}, {DRAWN}}}",
        router="{type: hce}",
    )
    said: list[str] = []
    monkeypatch.setattr(train, "say", said.append)
    assert run.main([str(spec)]) == 0
    assert said == [
        "  no train judgements are used: the encoder learns from pseudo-queries of documents",
        "  no dev judgements: the best epoch is picked by pseudo-queries of held-out documents",
    ]
    now = current.read(work)
    vectors, model = (current.artifact(work, now, kind) for kind in ("vectors", "model"))
    spans = columns.read([vectors.path(name) for name in vectors.names("spans/")], ["doc_id", "text"])
    documents = [json.loads(line) for line in (tiny_corpus / "corpus.jsonl").read_text().splitlines()]
    texts = {row["_id"]: {row["title"], row["text"]} for row in documents}
    assert len(spans) == vectors.record.counts["pseudo-queries"] == 3 * len(documents)
    assert all(any(text in own for own in texts[name]) for name, text in zip(*spans.to_pydict().values(), strict=True))
    before, after = (
        load_file(tiny_model / "model.safetensors"),
        load_file(model.path("encoder/model.safetensors")),
    )
    assert any(not np.array_equal(before[name], after[name]) for name in after)
    history = files.read_json(model.path("metrics.json"))["encoder"]
    assert [row["epoch"] for row in history] == [0, 1, 2]
    assert model.record.counts["epochs"] == {"encoder": 2}
    searcher = Snapshot.open(work)
    assert searcher.model.router.n_leaves == 30  # ⌈240 / 8⌉
    asked = documents[17]["title"] + " " + documents[17]["text"]
    assert searcher.search([asked], k=3, beam=30)[0].hits[0].id == documents[17]["_id"]


def test_what_no_document_yields_is_refused_before_anything_is_encoded(embedded, tiny_spec, tmp_path, capsys):
    work = tmp_path / "work"
    shutil.copytree(embedded / "work" / "corpus", work / "corpus")
    spec = tiny_spec(train="{type: hce, objective: documents, pseudo_queries: {source: spans, length: 30}}")
    assert run.main([str(spec)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("error: train.pseudo_queries: no document has more than 30 tokens of text")
    assert not list((work / "vectors").glob("*/record.json"))
