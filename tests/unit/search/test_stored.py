"""Documents by their ids: some by name, and pages of all, whole and in parts of an index."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rayhier.index import change
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.search.segment.stored import Listing, Lookup, Stored, StoredDocuments, documents, read_shards
from rayhier.spec import InputError
from rayhier.storage.leaf_map import LeafMap

from .maps import leaf_map_of_rows, leaf_rows

N, M, LEAVES = 30, 4, 5
IDS = [f"{name}{n:02d}" for n, name in zip(range(N), "Zaé" * N, strict=False)]


def made_of(n):
    return {"title": f"title {n}", "text": f"text {n}", "year": 2000 + n}


@pytest.fixture
def leaf_map(unit, tmp_path, write_map, passages):
    """Thirty documents, every other one in two leaves; as passages, a document for every three rows."""
    rng = np.random.default_rng(0)
    vector_NM, leaf_N = unit(rng, N, M), rng.integers(LEAVES, size=N)
    both = [[int(leaf), int(leaf + 1) % LEAVES][: 1 + n % 2] for n, leaf in enumerate(leaf_N)]
    table = leaf_rows(
        both,
        vector_NM,
        doc_id=[f"{IDS[n // 3]}#{n:04d}" if passages else IDS[n] for n in range(N)],
        **{name: [made_of(n)[name] for n in range(N)] for name in ("title", "text", "year")},
        **({"parent": [IDS[n // 3] for n in range(N)]} if passages else {}),
    )
    there = leaf_map_of_rows(tmp_path / "map", write_map, table, LEAVES)
    assert len(there.manifest.shards) == 2
    return there, both


def expected(both, passages):
    """All documents, written out by hand, in the order of their ids' bytes."""
    made = {}
    for n in range(N):
        own, leaf = made_of(n), both[n][0]
        if not passages:
            made[IDS[n]] = Stored(IDS[n], own["title"], own["text"], None, {"year": own["year"]}, [leaf])
            continue
        name = IDS[n // 3]
        first = made.setdefault(name, Stored(name, own["title"], None, [], {"year": own["year"]}, []))
        made[name] = replace(
            first, passages=[*first.passages, own["text"]], first_leaves=sorted({*first.first_leaves, leaf})
        )
    return [made[name] for name in sorted(made, key=str.encode)]


def answered(leaf_map, work, parts=(None,)):
    if parts == "files":
        return documents(read_shards(leaf_map, work), work)
    return documents([StoredDocuments(LeafScan.mapped(leaf_map, leaves)).read(work) for leaves in parts], work)


PARTS = [(None,), (range(1), range(1, 3), range(3, LEAVES)), "files"]


@pytest.mark.parametrize("parts", PARTS, ids=["whole", "parts", "files"])
@pytest.mark.parametrize("deleted", [False, True])
def test_documents_are_those_of_the_index_in_the_order_of_ids_or_as_asked(leaf_map, passages, parts, deleted):
    there, both = leaf_map
    everything = expected(both, passages)
    if deleted:
        change.delete(there.root, [IDS[4]])
        there, everything = LeafMap.open(there.root), [one for one in everything if one.id != IDS[4]]
    for count in (1, 4, 100):
        after, pages = "", []
        while page := answered(there, Listing(after, count), parts):
            assert len(page) <= count
            pages += page
            after = page[-1].id
        assert pages == everything
    for after in ("a", "zz", "\x01", "Z06x", "漢"):
        wanted = [document for document in everything if document.id.encode() > after.encode()]
        assert answered(there, Listing(after, 100), parts) == wanted
    by_id = {document.id: document for document in everything}
    asked = (IDS[7], "unknown", IDS[2], IDS[4], IDS[7])
    names = dict.fromkeys(name for name in asked if name in by_id)
    assert answered(there, Lookup(asked), parts) == [by_id[name] for name in names]
    assert answered(there, Lookup(("unknown", "")), parts) == []


def test_passages_are_in_the_order_of_their_numbers():
    numbers = [1, 2, 1000, 1001, 9999, 10000, 10001]
    rows = [{"id": "a", "doc_id": f"a#{n:04d}", "leaf": 1, "title": "", "text": str(n)} for n in numbers[::-1]]
    (document,) = documents([pa.Table.from_pylist(rows)], Lookup(("a",)))
    assert document.passages == [str(n) for n in numbers]


@pytest.mark.parametrize("make", [lambda: Lookup(("a", "\ud800")), lambda: Listing("\ud800", 1), lambda: Lookup((5,))])
def test_ids_that_are_not_utf_8_are_refused(make):
    with pytest.raises(InputError, match="allowed: an id, text in UTF-8"):
        make()
