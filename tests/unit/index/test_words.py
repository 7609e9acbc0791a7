"""Words of a leaf map that changes: every version scores as one index of its documents."""

import numpy as np
import pytest

from rayhier.index import change
from rayhier.index.verify import verify
from rayhier.model.encoded import Encoded
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.search.words.bm25 import Bm25Index
from rayhier.search.words.hybrid import WordScan
from rayhier.storage import leaf_map
from rayhier.storage.leaf_map import LeafMap

from .changes import FACTOR, compacted
from .conftest import L, M, documents, unit

WORDS = np.array(["oak", "elm", "ash", "fir", "yew", "bay", "fig", "plum", "the"])
QUERIES = ["oak elm", "plum", "bay yew fir ash", "fig the oak oak", "title", "unheard"]


def worded(ids, seed):
    """Documents with these ids, of up to a dozen words each; some have none that counts."""
    rng = np.random.default_rng(seed)
    table = documents(ids)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(0, 12))) for _ in ids]
    return table.set_column(2, "text", [texts]).cast(table.schema)


def batch(ids, seed):
    return [(worded(ids, seed), Encoded(unit(seed, len(ids), M)))]


def check(root, parts=1):
    """BM25 of each document of the newest version, for every query, in one part or several."""
    there = LeafMap.open(root)
    texts = {}
    for shard in there.manifest.shards:
        for row in there.read(shard).to_pylist():
            texts[row["doc_id"]] = f"{row['title']} {row['text']}".strip()
    names, plain = list(texts), Bm25Index(list(texts.values()), there.manifest.language)
    cuts = np.linspace(0, L, parts + 1).astype(int)
    score_of = [{} for _ in QUERIES]
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        scan = LeafScan.mapped(there, range(first, last))
        lexical = WordScan.mapped(there, scan).scan(QUERIES, np.ones((len(QUERIES), M), np.float32), len(names))
        for query, (row_K, score_K) in enumerate(zip(lexical.row_QK, lexical.score_QK, strict=True)):
            named = lexical.ids[row_K[row_K >= 0]].tolist()
            assert not score_of[query].keys() & set(named)
            score_of[query] |= dict(zip(named, score_K[row_K >= 0].tolist(), strict=True))
    for query, text in enumerate(QUERIES):
        wanted = {name: score for name, score in zip(names, plain.scores(text).tolist(), strict=True) if score > 0}
        assert score_of[query].keys() == wanted.keys()
        np.testing.assert_allclose([score_of[query][name] for name in wanted], list(wanted.values()), rtol=1e-4)
    return there


@pytest.mark.parametrize(("language", "parts"), [("english", 3), ("none", 1)])
def test_words_are_added_replaced_and_deleted_with_their_documents(made, language, parts, monkeypatch):
    root, built = made.root, LeafMap.open(made.root).manifest
    monkeypatch.setattr("rayhier.storage.schemas.WORDS_RULE", "4")  # so that the words of the build are counted again
    leaf_map.publish(root, built.model_copy(update={"version": 2, "parent": 1, "language": language}))
    change.upsert(root, made.assign, batch([f"d{n:03d}" for n in range(120)], 1), FACTOR)
    check(root, parts)
    change.add(root, made.assign, batch([f"new{n}" for n in range(40)], 2), FACTOR)
    check(root, parts)
    change.upsert(root, made.assign, batch([f"new{n}" for n in range(20, 60)], 3), FACTOR)
    check(root, parts)
    change.delete(root, [f"d{n:03d}" for n in range(0, 200, 3)])
    check(root, parts)
    compacted(root)
    there = check(root, parts)
    assert there.manifest.words
    assert not there.manifest.removed
    stop_words = [word for shard in there.manifest.shards for word in there.postings(shard)["word"].to_pylist()]
    assert ("the" in stop_words) == (there.manifest.language == "none")
    assert verify(root) == leaf_map.versions(root)
    change.rollback(root, 3)
    check(root, parts)
