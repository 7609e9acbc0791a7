"""What every adapter does with texts that are none, with nothing, and with filters that rayhier cannot say."""

import pandas as pd
import pytest
from haystack import Document as HaystackDocument
from haystack.errors import FilterError
from langchain_core.documents import Document as LangChainDocument
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQuery

from rayhier.adapters import haystack, langchain, llama_index, pyterrier
from rayhier.serve.errors import ApiError
from rayhier.spec import InputError


def test_a_text_of_another_type_is_refused_and_nothing_is_written(index):
    chain, terrier = langchain.RayhierVectorStore(index), pyterrier.RayhierIndexer(index)
    for write in (
        lambda: chain.add_texts(["oak", 7]),
        lambda: terrier.index([{"docno": "a", "text": "oak"}, {"docno": "b", "text": 7}]),
    ):
        with pytest.raises((InputError, ApiError, TypeError), match=r"row 2: wrong type|text: "):
            write()
    assert haystack.RayhierDocumentStore(index).count_documents() == 0


def test_nothing_is_written_and_nothing_is_read(index):
    chain, stack = langchain.RayhierVectorStore(index), haystack.RayhierDocumentStore(index)
    llama, terrier = llama_index.RayhierLlamaVectorStore(index), pyterrier.RayhierIndexer(index)
    assert chain.add_texts([]) == []
    assert chain.get_by_ids([]) == []
    assert chain.embeddings.embed_documents([]) == []
    assert chain.delete([])
    assert stack.write_documents([]) == 0
    stack.delete_documents([])
    assert llama.add([]) == []
    assert llama.get_nodes([]) == []
    found = terrier.index([])
    assert found.transform(pd.DataFrame({"qid": [], "query": []})).empty
    assert found.search("oak").empty
    assert stack.count_documents() == 0


def test_a_filter_of_what_is_not_declared_is_refused_by_name(index):
    for write in (
        lambda: langchain.RayhierVectorStore(index).add_documents([LangChainDocument(id="a", page_content="oak")]),
        lambda: haystack.RayhierDocumentStore(index).write_documents([HaystackDocument(id="b", content="oak")]),
        lambda: llama_index.RayhierLlamaVectorStore(index).add([TextNode(id_="c", text="oak")]),
    ):
        write()
    red = {"field": "meta.colour", "operator": "==", "value": "red"}
    alike = MetadataFilters(filters=[MetadataFilter(key="colour", value="red", operator=FilterOperator.EQ)])
    chain, stack = langchain.RayhierVectorStore(index), haystack.RayhierDocumentStore(index)
    llama = llama_index.RayhierLlamaVectorStore(index)
    for search in (
        lambda: chain.similarity_search("oak", filter={"colour": "red"}),
        lambda: haystack.RayhierTextRetriever(stack, filters=red).run("oak"),
        lambda: llama.query(VectorStoreQuery(query_str="oak", filters=alike)),
        lambda: pyterrier.RayhierTerrierRetriever(index, filter={"colour": "red"}).search("oak"),
    ):
        with pytest.raises((InputError, ApiError, FilterError), match="colour"):
            search()


@pytest.mark.parametrize("kind", [haystack, langchain, llama_index])
def test_a_query_that_is_no_text_is_refused(index, kind):
    searches = {
        haystack: lambda: haystack.RayhierTextRetriever(haystack.RayhierDocumentStore(index)).run(7),
        langchain: lambda: langchain.RayhierVectorStore(index).similarity_search(7),
        llama_index: lambda: llama_index.RayhierLlamaVectorStore(index).query(VectorStoreQuery(query_str=7)),
    }
    with pytest.raises((InputError, ApiError, ValueError, TypeError), match=r"question|query|text"):
        searches[kind]()
