"""LangChain's own tests of vector stores and retrievers."""

import pytest
from langchain_core.documents import Document
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests

from rayhier.adapters.langchain import RayhierRetriever, RayhierVectorStore


class TestVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, index):
        return RayhierVectorStore(index)


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def filled(self, index):
        self.index = index
        RayhierVectorStore(index).add_documents([Document(page_content=f"oak leaf {n}") for n in range(5)])

    @property
    def retriever_constructor(self):
        return RayhierRetriever

    @property
    def retriever_constructor_params(self):
        return {"index": self.index}

    @property
    def retriever_query_example(self):
        return "oak leaf"
