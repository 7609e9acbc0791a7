"""The tower a spec asks for, over the queries and documents that published artifacts hold."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rayhier.embed.encode import TextEncoder
from rayhier.evaluate.data import Documents
from rayhier.evaluate.measures import Queries
from rayhier.model.encoder import ResidualHead
from rayhier.model.precision import resolve, resolve_device
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.columns import Floats
from rayhier.train.examples import Examples
from rayhier.train.text_tower import TextTower
from rayhier.train.tower import HeadTower, Side, Tower


def build_tower(
    spec: EncoderSpec, folder: Path, corpus: Artifact, documents: Documents, examples: Examples, dev: Queries
) -> Tower:
    """A head on the stored vectors, or the encoder of `folder` on the texts."""
    device = resolve_device(spec.device)
    if spec.train == "head":
        head = ResidualHead(documents.vector_NM.shape[1], spec.similarity)
        stored: dict[Side, Floats] = {"query": examples.query_QM, "document": documents.vector_NM, "dev": dev.vector_QM}
        return HeadTower(head, stored, device)
    encoder = TextEncoder(folder, spec.model_copy(update={"precision": "float32"}))
    texts: dict[Side, pa.ChunkedArray] = {
        "document": load_texts(corpus, documents.ids),
        "dev": pa.chunked_array([list(dev.texts)]),
    }
    same, asked = examples.same, pa.chunked_array([pa.array(examples.query_texts, pa.string())])
    texts["query"] = texts["document"] if same else asked
    return TextTower(encoder, spec.train, texts, resolve(spec.precision, device))


def load_texts(corpus: Artifact, ids: Sequence[str]) -> pa.ChunkedArray:
    """What is encoded of some documents, or of all, in the order of the corpus."""
    names, wanted = corpus.names("documents/"), pa.array(ids, pa.string())
    parts = (columns.read([corpus.path(name)], ["doc_id", "title", "text"]) for name in names)
    table = pa.concat_tables(part.filter(pc.is_in(part["doc_id"], wanted)) for part in parts)
    return pc.utf8_trim_whitespace(pc.binary_join_element_wise(table["title"], table["text"], " "))
