"""What these libraries' users may do, and their own tests do not."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from haystack import Document as HaystackDocument
from haystack.document_stores.types import DuplicatePolicy
from llama_index.core.vector_stores.types import VectorStoreQuery

import rayhier
from rayhier.adapters import haystack, langchain, llama_index, mteb, pyterrier
from rayhier.adapters.store import Document, Served, written
from rayhier.serve.client import Client
from rayhier.serve.errors import ApiError
from rayhier.spec import InputError

from .conftest import built


def test_mteb_files_results_under_model_version_and_settings(index):
    first = mteb.RayhierSearch(index).mteb_model_meta.revision
    assert first != mteb.RayhierSearch(index, mode="bm25").mteb_model_meta.revision
    assert first == mteb.RayhierSearch(index).mteb_model_meta.revision
    langchain.RayhierVectorStore(index).add_texts(["oak"])
    assert first != mteb.RayhierSearch(index).mteb_model_meta.revision


def test_mteb_refuses_other_texts_under_the_same_ids(index):
    from datasets import Dataset

    rows = [{"id": f"d{n}", "title": "", "text": text} for n, text in enumerate(["oak", "elm", " "])]
    searcher = mteb.RayhierSearch(index)
    searcher.index(Dataset.from_list(rows))
    searcher.index(Dataset.from_list(rows))
    rows[0]["text"] = "ash"
    with pytest.raises(InputError, match=r"got 1 documents that differ .*, \['d0'\]"):
        searcher.index(Dataset.from_list(rows))


def test_a_reranker_reads_results_whose_labels_repeat(reranks):
    texts = ["oak leaf", "ash and elm", "a pin"]
    frames = [
        pd.DataFrame({"qid": qid, "query": q, "docno": ["a", "b", "c"], "text": texts})
        for qid, q in (("1", "oak"), ("2", "ash"))
    ]
    reranker = pyterrier.RayhierReranker(reranks)
    alone = [reranker.transform(frame) for frame in frames]
    together = reranker.transform(pd.concat(frames))
    for qid, expected in zip(("1", "2"), alone, strict=True):
        scores = together[together.qid == qid].set_index("docno")["score"]
        pd.testing.assert_series_equal(scores.sort_index(), expected.set_index("docno")["score"].sort_index())


def test_answers_and_bodies_that_are_too_large_are_sent_in_parts(served, monkeypatch):
    store, sizes = Served(served), []
    search_batch, put = Client.search_batch, Client.put

    def few_answers(self, queries, *given, **options):
        sizes.append(len(queries))
        if len(queries) > 2:
            raise ApiError(422, "answer_too_large", "answer: got more than 10 bytes")
        return search_batch(self, queries, *given, **options)

    def few_documents(self, documents, **options):
        if len(documents) > 3:
            raise ApiError(413, "too_large", "body: got more than 10 bytes")
        return put(self, documents, **options)

    monkeypatch.setattr(Client, "search_batch", few_answers)
    monkeypatch.setattr(Client, "put", few_documents)
    store.delete([document.id for document in store.all()])
    store.put([{"id": f"d{n}", "title": "", "text": f"oak {n}"} for n in range(10)])
    assert len(store) == 10
    answers = store.search([f"oak {n}" for n in range(7)], 1)
    assert [documents[0].id for documents in answers] == [f"d{n}" for n in range(7)]
    assert max(sizes) == 7
    with pytest.raises(ApiError, match=r"^the first 9 documents are written, the next are not: "):
        store.put([{"id": f"e{n}", "title": "", "text": f"oak {n}" if n < 11 else ""} for n in range(12)])
    assert len(store) == 19


def test_passages_are_not_written_over(tmp_path, tiny_model):
    corpus = {"type": "jsonl", "documents": str(tmp_path / "corpus.jsonl"), "passages": {"words": 4, "stride": 2}}
    work = built(tmp_path, tiny_model, corpus={**corpus, "fields": {"year": "int"}})
    with rayhier.open(work) as index:
        store = haystack.RayhierDocumentStore(index)
        before = index.document("d1").passages
        with pytest.raises(ValueError, match="cut into passages"):
            store.update_by_filter({"field": "meta.year", "operator": "==", "value": 1}, {"year": 2})
        assert index.document("d1").passages == before


def test_metadata_are_declared_fields_and_what_the_json_says():
    kept = {"metadata": json.dumps({"source": "crawl"}), "year": 2001, "name": None}
    assert Document("a", "Oaks", "", kept).metadata == {"title": "Oaks", "year": 2001, "source": "crawl"}
    for plain in ("plain words", "[1]", "7"):
        assert Document("a", "", "", {"metadata": plain}).metadata == {"metadata": plain}


@pytest.mark.parametrize(("metadata", "named"), [({"title": 5}, "title"), ({"year": np.int64(5)}, "year: got int64")])
def test_metadata_that_cannot_be_kept_are_refused_by_name(metadata, named):
    with pytest.raises(InputError, match=named):
        written("a", "oak", metadata, {"year": "int"})


def test_adapters_of_one_workdir_see_what_each_writes(trained, tmp_path):
    work = shutil.copytree(trained, tmp_path / "work")
    retriever = langchain.RayhierRetriever(index=work, k=100)
    store = langchain.RayhierVectorStore(str(work))
    (named,) = store.add_texts(["a new oak"])
    assert named in {document.id for document in retriever.invoke("a new oak")}


def test_haystack_keeps_the_first_of_a_batch_and_refuses_blobs(index):
    from haystack.dataclasses import ByteStream

    store = haystack.RayhierDocumentStore(index)
    twice = [HaystackDocument(id="a", content="oak"), HaystackDocument(id="a", content="elm")]
    assert store.write_documents(twice, DuplicatePolicy.SKIP) == 1
    assert store.filter_documents()[0].content == "oak"
    with pytest.raises(ValueError, match="'b' has a blob"):
        store.write_documents([HaystackDocument(id="b", blob=ByteStream(b"x"))])


def test_llama_index_refuses_what_it_cannot_know(tmp_path, tiny_model, index):
    store = llama_index.RayhierLlamaVectorStore(index)
    for unsaid in ({"hybrid_top_k": 1}, {"alpha": 0.0}, {"mmr_threshold": 0.5}, {"sparse_top_k": 2}):
        with pytest.raises(InputError, match=f"got {next(iter(unsaid))}"):
            store.query(VectorStoreQuery(query_str="oak", **unsaid))
    work = built(tmp_path, tiny_model, corpus={"type": "jsonl", "documents": str(tmp_path / "corpus.jsonl")})
    with rayhier.open(work) as opened, pytest.raises(InputError, match="name no document"):
        llama_index.RayhierLlamaVectorStore(opened).delete("document-0")
