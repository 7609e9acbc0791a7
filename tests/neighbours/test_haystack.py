"""Haystack's own tests of document stores, and its pipelines over the retrievers."""

import pytest
from haystack import Document, Pipeline
from haystack.errors import FilterError
from haystack.testing.document_store import DocumentStoreBaseExtendedTests
from haystack.testing.document_store_async import (
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
)

from rayhier.adapters.haystack import (
    RayhierDocumentStore,
    RayhierEmbeddingRetriever,
    RayhierTextEmbedder,
    RayhierTextRetriever,
)


class AsStored:
    """Documents are compared as they are kept: without embeddings, which the index makes, and without scores."""

    @pytest.fixture
    def document_store(self, index):
        return RayhierDocumentStore(index)

    @staticmethod
    def assert_documents_are_equal(received, expected):
        def kept(documents):
            return sorted(((each.id, each.content or "", each.meta) for each in documents), key=lambda each: each[0])

        assert kept(received) == kept(expected)


class TestDocumentStore(AsStored, DocumentStoreBaseExtendedTests):
    def test_write_documents(self, document_store):
        """Its makers ask for this one: without a policy, documents replace those with the same ids."""
        document = Document(content="oak leaf")
        assert [document_store.write_documents([document]) for _ in range(2)] == [1, 1]
        self.assert_documents_are_equal(document_store.filter_documents(), [document])


class TestAsyncDocumentStore(
    AsStored,
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
):
    async def test_write_documents_async(self, document_store):
        """As `test_write_documents`."""
        document = Document(content="oak leaf")
        assert [await document_store.write_documents_async([document]) for _ in range(2)] == [1, 1]
        self.assert_documents_are_equal(await document_store.filter_documents_async(), [document])


@pytest.fixture
def store(index):
    store = RayhierDocumentStore(index)
    store.write_documents([Document(id=f"n{n}", content=f"oak leaf {n}", meta={"number": n}) for n in range(5)])
    return store


def test_a_pipeline_searches_by_vectors_and_by_both(store):
    few = {"field": "meta.number", "operator": "<", "value": 3}
    pipeline = Pipeline()
    pipeline.add_component("encoder", RayhierTextEmbedder(store))
    pipeline.add_component("near", RayhierEmbeddingRetriever(store, top_k=2))
    pipeline.add_component("both", RayhierTextRetriever(store, filters=few, mode="hybrid"))
    pipeline.connect("encoder.embedding", "near.query_embedding")
    outputs = pipeline.run({"encoder": {"text": "oak leaf 4"}, "both": {"query": "oak leaf 4"}})
    assert len(outputs["near"]["documents"]) == 2
    assert {each.id for each in outputs["both"]["documents"]} == {"n0", "n1", "n2"}


def test_what_rayhier_cannot_say_is_refused_by_name(store):
    with pytest.raises(FilterError, match="starts_with"):
        store.filter_documents({"field": "meta.name", "operator": "starts_with", "value": "a"})
    with pytest.raises(FilterError, match="colour"):
        store.filter_documents({"field": "meta.colour", "operator": "==", "value": "red"})
