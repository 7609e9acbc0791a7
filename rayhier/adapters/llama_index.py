"""An index as LlamaIndex's vector store, embedding and retriever: `rayhier[llama-index]`.

RayhierLlamaRetriever("runs/quickstart").retrieve("how do I open a zip file")
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import PrivateAttr

from rayhier.adapters import needs, store
from rayhier.adapters.store import METADATA, Store, store_of, written
from rayhier.spec import InputError
from rayhier.spec.search import Mode

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        FilterCondition,
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
except ModuleNotFoundError as error:
    raise needs("llama-index", error) from error

MODES: dict[VectorStoreQueryMode, Mode | None] = {
    VectorStoreQueryMode.DEFAULT: "dense",
    VectorStoreQueryMode.HYBRID: "hybrid",
    VectorStoreQueryMode.SEMANTIC_HYBRID: None,
    VectorStoreQueryMode.SPARSE: "bm25",
    VectorStoreQueryMode.TEXT_SEARCH: "bm25",
}
UNSAID = (
    *("doc_ids", "node_ids", "output_fields", "embedding_field", "alpha", "mmr_threshold"),
    *("sparse_top_k", "hybrid_top_k"),
)
"""Fields of LlamaIndex's `VectorStoreQuery` that rayhier does not support. A query with such a field is refused."""
BOUNDS = {FilterOperator.GT: "gt", FilterOperator.GTE: "gte", FilterOperator.LT: "lt", FilterOperator.LTE: "lte"}


class RayhierEmbedding(BaseEmbedding):
    """The trained encoder of an index, given as a workdir, a server's address, an `Index` or a `Client`."""

    _store: Store = PrivateAttr()

    def __init__(self, index: Any, **options: Any) -> None:
        super().__init__(model_name="rayhier", **options)
        self._store = store_of(index)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._store.encode(texts).tolist() if texts else []
        return vectors

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class RayhierLlamaVectorStore(BasePydanticVectorStore):
    """Nodes of an index, given as a workdir, a server's address, an `Index` or a `Client`.

    Texts are encoded by the index's own encoder. Embeddings of nodes are ignored. Nodes come back whole if the corpus
    declares the string field `metadata`. Otherwise nodes come back with their text and declared fields.
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    _store: Store = PrivateAttr()

    def __init__(self, index: Any) -> None:
        super().__init__(stores_text=True)
        self._store = store_of(index)

    @property
    def client(self) -> Any:
        return self._store

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Write nodes, which replace nodes with the same ids. Returns the written ids."""
        fields = self._store.fields()
        rows = []
        for node in nodes:
            about = dict(node.metadata)
            if fields.get(METADATA) == "string":
                about = node_to_metadata_dict(node, remove_text=True)
            rows.append(written(node.node_id, node.get_content(MetadataMode.NONE), about, fields))
        self._store.put(rows)
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a document. InputError if the corpus has no field `metadata`, which names documents."""
        if self._store.fields().get(METADATA) != "string":
            raise InputError(
                f"ref_doc_id: got {ref_doc_id!r:.80}, but nodes of this index name no document; allowed: delete_nodes, "
                f"or a corpus with the string field {METADATA!r}"
            )
        self._store.delete([node.node_id for node in self.get_nodes() if node.ref_doc_id == ref_doc_id])

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Read the nodes with the given ids (None: all nodes) that match a filter (None: all match)."""
        if filters is None and node_ids is not None:
            return list(map(_node, self._store.get(node_ids)))
        there = map(_node, store.matching(self._store, where(filters)))
        return [node for node in there if node_ids is None or node.node_id in node_ids]

    def delete_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any) -> None:
        """Delete the nodes with the given ids that match a filter. InputError if neither is given."""
        if node_ids is None and filters is None:
            raise InputError("delete_nodes: got neither node_ids nor filters; allowed: one of them, or clear()")
        self._store.delete([node.node_id for node in self.get_nodes(node_ids, filters)])

    def clear(self) -> None:
        self._store.delete([document.id for document in self._store.all()])

    def query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """Find the best nodes for a text, or for a vector of `RayhierEmbedding`. InputError for unsupported fields."""
        unknown = [name for name in UNSAID if getattr(query, name) not in (None, [])]
        if unknown:
            raise InputError(f"query: got {unknown[0]}; allowed: query_str or query_embedding, mode, filters, top k")
        if query.mode not in MODES:
            raise InputError(f"mode: got {query.mode.value}; allowed: {', '.join(mode.value for mode in MODES)}")
        is_text = query.query_str is not None
        queries: Any = [query.query_str] if is_text else np.array([query.query_embedding], np.float32)
        (documents,) = self._store.search(
            queries, query.similarity_top_k, where(query.filters), mode=MODES[query.mode], **options
        )
        nodes = list(map(_node, documents))
        ids = [node.node_id for node in nodes]
        return VectorStoreQueryResult(nodes=nodes, similarities=[each.score for each in documents], ids=ids)


class RayhierLlamaRetriever(BaseRetriever):
    """Finds nodes by vectors, by words or both, and re-ranks them if the index has a cross-encoder."""

    def __init__(
        self,
        index: Any,
        *,
        similarity_top_k: int = 10,
        filters: MetadataFilters | None = None,
        mode: Mode | None = None,
        rerank: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._store, self._k = store_of(index), similarity_top_k
        self._options: dict[str, Any] = {"where": where(filters), "mode": mode, "rerank": rerank}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        (documents,) = self._store.search([query_bundle.query_str], self._k, **self._options)
        return [NodeWithScore(node=_node(each), score=each.score) for each in documents]


def where(filters: MetadataFilters | None) -> dict[str, Any] | None:
    """Convert LlamaIndex's filter to rayhier's. InputError if rayhier has no such operator."""
    if filters is None or not filters.filters:
        return None
    parts = [_one(part) if isinstance(part, MetadataFilter) else where(part) or {} for part in filters.filters]
    if filters.condition == FilterCondition.NOT:
        return {"not": {"or": parts}}
    return {(filters.condition or FilterCondition.AND).value: parts}


def _one(part: MetadataFilter) -> dict[str, Any]:
    match part.operator:
        case FilterOperator.EQ:
            return {part.key: part.value}
        case FilterOperator.NE:
            return {"not": {part.key: part.value}}
        case FilterOperator.IN:
            return {part.key: {"in": part.value}}
        case FilterOperator.NIN:
            return {"not": {part.key: {"in": part.value}}}
        case FilterOperator.IS_EMPTY:
            return {"not": {part.key: {"exists": True}}}
        case operator if operator in BOUNDS:
            return {part.key: {BOUNDS[operator]: part.value}}
    raise InputError(f"filters: got operator {part.operator.value}; allowed: ==, !=, >, >=, <, <=, in, nin, is_empty")


def _node(stored: store.Document) -> BaseNode:
    metadata = stored.metadata
    if "_node_content" in metadata:
        return metadata_dict_to_node(metadata, text=stored.text)
    return TextNode(id_=stored.id, text=stored.text, metadata=metadata)
