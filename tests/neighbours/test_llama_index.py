"""LlamaIndex over an index: nodes written, found, filtered and deleted as its own simple store does."""

import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from rayhier.adapters.llama_index import RayhierEmbedding, RayhierLlamaRetriever, RayhierLlamaVectorStore
from rayhier.serve.errors import ApiError
from rayhier.spec import InputError


def node(number):
    made = TextNode(id_=f"n{number}", text=f"oak leaf {number}", metadata={"number": number, "other": "kept"})
    made.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=f"document-{number % 2}")
    return made


@pytest.fixture
def store(index):
    store = RayhierLlamaVectorStore(index)
    store.add([node(number) for number in range(6)])
    return store


def where(operator, value, key="number"):
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])


def test_an_index_over_the_store_gives_whole_nodes(index):
    context = StorageContext.from_defaults(vector_store=RayhierLlamaVectorStore(index))
    made = VectorStoreIndex([node(n) for n in range(4)], storage_context=context, embed_model=RayhierEmbedding(index))
    nodes = made.as_retriever(similarity_top_k=2, filters=where(FilterOperator.GTE, 2)).retrieve("oak leaf 3")
    assert {each.node.node_id for each in nodes} == {"n2", "n3"}
    assert {each.node.metadata["other"] for each in nodes} == {"kept"}
    assert {each.node.ref_doc_id for each in nodes} == {"document-0", "document-1"}


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        (FilterOperator.EQ, 3, {3}),
        (FilterOperator.NE, 3, {0, 1, 2, 4, 5}),
        (FilterOperator.GT, 3, {4, 5}),
        (FilterOperator.LTE, 1, {0, 1}),
        (FilterOperator.IN, [1, 9], {1}),
        (FilterOperator.NIN, [1, 2], {0, 3, 4, 5}),
        (FilterOperator.IS_EMPTY, None, set()),
    ],
)
def test_filters_mean_what_they_say(store, operator, value, expected):
    assert {each.metadata["number"] for each in store.get_nodes(filters=where(operator, value))} == expected


def test_conditions_nest(store):
    low, high = where(FilterOperator.LT, 1), where(FilterOperator.GT, 4)
    either = MetadataFilters(filters=[low, high], condition=FilterCondition.OR)
    neither = MetadataFilters(filters=[low, high], condition=FilterCondition.NOT)
    assert {each.node_id for each in store.get_nodes(filters=either)} == {"n0", "n5"}
    assert {each.node_id for each in store.get_nodes(filters=neither)} == {"n1", "n2", "n3", "n4"}


def test_a_documents_nodes_are_deleted_together(store):
    store.delete("document-0")
    assert {each.node_id for each in store.get_nodes()} == {"n1", "n3", "n5"}
    store.delete_nodes(["n1"])
    store.delete_nodes(filters=where(FilterOperator.EQ, 3))
    assert {each.node_id for each in store.get_nodes()} == {"n5"}
    store.clear()
    assert store.get_nodes() == []


def test_a_retriever_searches_by_both(store, index):
    nodes = RayhierLlamaRetriever(index, similarity_top_k=3, mode="hybrid").retrieve("oak leaf 3")
    assert nodes[0].node.node_id == "n3"
    assert len(nodes) == 3


@pytest.mark.parametrize(
    ("query", "named"),
    [
        (VectorStoreQuery(query_str="x", mode=VectorStoreQueryMode.MMR), "mode: got mmr"),
        (VectorStoreQuery(query_str="x", doc_ids=["d"]), "got doc_ids"),
        (VectorStoreQuery(query_str="x", filters=where(FilterOperator.TEXT_MATCH, "a", "name")), "text_match"),
        (VectorStoreQuery(query_str="x", filters=where(FilterOperator.EQ, "a", "colour")), "colour"),
    ],
)
def test_what_rayhier_cannot_say_is_refused_by_name(store, query, named):
    with pytest.raises((InputError, ApiError), match=named):
        store.query(query)
