"""An index as MTEB's searcher, its encoder as a model, and a spec's corpus as a retrieval task: `rayhier[mteb]`.

mteb.evaluate(RayhierSearch("runs/quickstart"), corpus_task("runs/quickstart"))
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from rayhier.adapters import needs
from rayhier.adapters.store import store_of, written
from rayhier.arrays import Floats
from rayhier.dataset.queries import load_split
from rayhier.spec import InputError
from rayhier.spec.corpus import passages_of
from rayhier.spec.search import Mode
from rayhier.storage import current, parquet
from rayhier.storage.paths import locate

try:
    import torch
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.model_meta import ModelMeta, ScoringFunction
except ModuleNotFoundError as error:
    raise needs("mteb", error) from error

COLUMNS = ["doc_id", "title", "text"]


class _Named:
    """Base of what MTEB evaluates, with the description under which MTEB files its results."""

    def __init__(self, name: str, index: Any, *settings: object) -> None:
        self._store = store_of(index)
        self._name, self._settings = name, "".join(f"-{each}" for each in settings if each is not None)

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Description under which MTEB files results. The revision names the model, the version and the settings."""
        known = {
            "name": self._name,
            "revision": f"{self._store.state()}{self._settings}",
            "framework": ["PyTorch"],
            "similarity_fn_name": ScoringFunction.COSINE,
            "model_type": ["dense"],
        }
        unknown = {name: None for name, field in ModelMeta.model_fields.items() if field.is_required()}
        return ModelMeta(**unknown | known)


class RayhierSearch(_Named):
    """MTEB's `SearchProtocol` over an index, given as a workdir, a server's address, an `Index` or a `Client`."""

    def __init__(
        self, index: Any, *, name: str = "rayhier/index", mode: Mode | None = None, rerank: bool | None = None
    ) -> None:
        super().__init__(name, index, mode, rerank)
        self._options: dict[str, Any] = {"mode": mode, "rerank": rerank}

    def index(self, corpus: Any, **_: Any) -> None:
        """Write the task's documents that the index lacks. InputError if the index holds other documents or texts."""
        wanted = {row["id"]: (row.get("title") or "", row["text"]) for row in corpus}
        there = {document.id: (document.title, document.text) for document in self._store.all()}
        if others := [id_ for id_, texts in there.items() if wanted.get(id_) != texts]:
            raise InputError(
                f"index: got {len(others)} documents that differ from the task's corpus, {others[:3]}; "
                "allowed: an index of this corpus, or an empty one"
            )
        lacking = {id_: texts for id_, texts in wanted.items() if id_ not in there and "".join(texts).strip()}
        self._store.put([written(id_, text, {"title": title}, {}) for id_, (title, text) in lacking.items()])

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Mapping[str, list[str]] | None = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """Find the best `top_k` documents per query. InputError for a task that gives the documents to rank."""
        if top_ranked is not None:
            raise InputError("top_ranked: got documents to rank; allowed: a retrieval task")
        answers = self._store.search(queries["text"], top_k, **self._options)
        return {
            query: {document.id: document.score for document in documents}
            for query, documents in zip(queries["id"], answers, strict=True)
        }


class RayhierEncoder(_Named):
    """MTEB's `EncoderProtocol`: the trained encoder of an index."""

    def __init__(self, index: Any, *, name: str = "rayhier/encoder") -> None:
        super().__init__(name, index)

    def encode(self, inputs: Iterable[Mapping[str, Sequence[str]]], **_: Any) -> Floats:
        """Encode texts, batch by batch. Blank texts are encoded as a full stop. Returns float32 [n, m]."""
        texts = [text for batch in inputs for text in batch["text"]]
        return self._store.encode([text if text.strip() else "." for text in texts])

    def similarity(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Compute the inner products of all vectors [a, m] with all vectors [b, m]: [a, b]."""
        return torch.as_tensor(np.atleast_2d(embeddings1)) @ torch.as_tensor(np.atleast_2d(embeddings2)).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Compute the inner products of vectors in the same row: [n, m] and [n, m] to [n]."""
        return (torch.as_tensor(embeddings1) * torch.as_tensor(embeddings2)).sum(-1)


def corpus_task(workdir: str, split: Literal["dev", "test"] = "test") -> AbsTaskRetrieval:
    """Make a retrieval task from a run's corpus and judged queries. InputError if files or judgements are missing."""
    place = locate(workdir)
    now = current.read(place)
    corpus, vectors = (current.artifact(place, now, kind) for kind in ("corpus", "vectors"))
    if passages_of(now.spec.corpus) is not None:
        raise InputError("corpus.passages: MTEB's tasks have whole documents; allowed: a corpus without passages")
    test = current.artifact(place, now, "test") if split == "test" and "test" in now.artifacts else None
    queries = load_split(split, corpus, vectors, test)
    if not len(queries.ids):
        raise InputError(f"split: {workdir} has no judged {split} queries; allowed: a split in corpus.judgements")
    documents = pa.concat_tables([parquet.read(corpus.path(name), COLUMNS) for name in corpus.names("documents/")])
    data = RetrievalSplitData(
        corpus=Dataset(documents.rename_columns(["id", "title", "text"])),
        queries=Dataset.from_dict({"id": list(queries.ids), "text": list(queries.texts)}),
        relevant_docs=queries.grades,
        top_ranked=None,
    )

    class CorpusTask(AbsTaskRetrieval):
        # No deeper than the run's search, because a deeper hybrid search would fuse other documents.
        k_values = tuple(k for k in AbsTaskRetrieval.k_values if k <= max(now.spec.search.k, 10))
        metadata = TaskMetadata(
            name=f"Rayhier{now.spec.name.title().replace('-', '').replace('_', '')}",
            description=f"The corpus of {now.spec.name}.",
            dataset={"path": workdir, "revision": now.artifacts["corpus"]},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=[split],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, *_: Any, **__: Any) -> None:
            self.dataset = {"default": {split: data}}
            self.data_loaded = True

    return CorpusTask()
