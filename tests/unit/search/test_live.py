"""A version and its tail: after any history of changes a search finds what plain loops over all documents find."""

import math
from collections import Counter
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.words import words
from rayhier.search.retrieve import Scan, Words
from rayhier.search.segment.stored import Listing, Lookup, documents
from rayhier.search.segment.tail import Tail
from rayhier.search.snapshot import Snapshot
from rayhier.spec import InputError
from rayhier.spec.filter import parse
from rayhier.storage.change_log import Change

from ...toys import job
from .maps import leaf_map_of_rows, leaf_rows

N, M, LEAVES = 60, 6, 5
SPEC_OF_TREE = job(router={"type": "ehi"}, search={"k": 7, "beam": 2})
ALL = np.arange(LEAVES)[None]
WORDS = ["ash", "birch", "cedar", "elm", "fir", "oak", "pine", "yew"]


class World:
    """Documents as a dictionary, the same as a leaf map, and a tail that changes are added to."""

    def __init__(self, root, write_map, unit, passages, seed=0):
        self.rng, self.unit, self.passages = np.random.default_rng(seed), unit, passages
        self.now = {f"d{n:02d}": self.new(f"d{n:02d}") for n in range(N)}
        self.stored = dict(self.now)
        self.tail, self.history = Tail(0), [dict(self.now)]
        rows = self.rows(list(self.now.values()))
        self.leaf_map = leaf_map_of_rows(root, write_map, rows, LEAVES)
        self.live = self.opened(self.tail)

    def opened(self, tail, leaves=None):
        """The version with a tail, or a range of its leaves."""
        return Snapshot(SPEC_OF_TREE, self.leaf_map, pytest.fail, tail=tail, leaves=leaves)

    def new(self, name):
        vector_M = self.unit(self.rng, 1, M)[0].astype(np.float16).astype(np.float32)
        text = " ".join(self.rng.choice(WORDS, size=self.rng.integers(1, 9)))
        year = int(self.rng.integers(2000, 2010))
        return {"id": name, "title": f"title {name}", "text": text, "year": year, "vector": vector_M}

    def rows(self, entries):
        """Rows of the leaf map: two leaves for every other document; two passages a document, the second unlike."""
        leaves, rows = [], []
        for entry in entries:
            first = crc32(entry["id"].encode()) % LEAVES
            parts = [(entry["id"], entry["vector"])]
            if self.passages:
                parts = [(f"{entry['id']}#0000", entry["vector"]), (f"{entry['id']}#0001", -entry["vector"])]
            for doc_id, vector in parts:
                leaves.append([first, (first + 1) % LEAVES][: 1 + len(entry["text"]) % 2])
                rows.append({**entry, "doc_id": doc_id, "vector": vector, "parent": entry["id"]})
        shown = ["doc_id", "title", "text", "year", *(["parent"] if self.passages else [])]
        vector_NM = np.array([row["vector"] for row in rows])
        return leaf_rows(leaves, vector_NM, **{name: [row[name] for row in rows] for name in shown})

    def put(self, *names):
        entries = [self.new(name) for name in names]
        self.tail.add(Change(self.tail.last + 1, "put", self.rows(entries)))
        self.now |= {entry["id"]: entry for entry in entries}
        self.history.append(dict(self.now))

    def delete(self, *names):
        self.tail.add(Change(self.tail.last + 1, "delete", pa.table({"doc_id": list(names)})))
        for name in names:
            del self.now[name]
        self.history.append(dict(self.now))

    def wander(self, steps):
        """Add, replace and delete documents at random, of leaf files and of the tail."""
        for _ in range(steps):
            some = self.rng.choice(sorted(self.now), size=3, replace=False).tolist()
            fresh = [f"n{self.rng.integers(30):02d}"]
            match self.rng.integers(3):
                case 0:
                    self.put(*dict.fromkeys(fresh + some[:1]))
                case 1:
                    self.put(*some)
                case _:
                    self.delete(*some[: self.rng.integers(1, 4)])


@pytest.fixture
def world(tmp_path, write_map, unit, passages):
    made = World(tmp_path / "map", write_map, unit, passages)
    made.wander(40)
    return made


def listed(ranking):
    return [
        [(ranking.ids[row], score) for row, score in zip(rows, scores, strict=True) if row >= 0]
        for rows, scores in zip(ranking.row_QK.tolist(), ranking.score_QK.tolist(), strict=True)
    ]


def agrees(found, wanted):
    assert [name for name, _ in found] == [name for name, _ in wanted]
    np.testing.assert_allclose([score for _, score in found], [score for _, score in wanted], atol=1e-5)


def nearest(now, query_M, k, passages):
    sign = np.abs if passages else np.asarray
    scores = {name: float(sign(entry["vector"] @ query_M)) for name, entry in now.items()}
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


@pytest.mark.parametrize("where", [None, {"year": {"gte": 2005}}], ids=["all", "filtered"])
def test_vectors_find_what_a_loop_finds_after_every_change(world, where):
    query_QM, parsed = world.unit(world.rng, 3, M), where and parse(where, {"year": "int"})
    for number in (0, 1, 7, 20, 40):
        now = {name: entry for name, entry in world.history[number].items() if not where or entry["year"] >= 2005}
        for k in (1, 5, 100):
            ranking = world.live.read(Scan(query_QM, np.repeat(ALL, 3, axis=0), k, parsed), number)
            for query_M, found in zip(query_QM, listed(ranking), strict=True):
                agrees(found, nearest(now, query_M, k, world.passages))


def test_the_tail_is_compared_whatever_leaves_are_visited(world):
    query_QM = world.unit(world.rng, 2, M)
    ranking = world.live.read(Scan(query_QM, np.full((2, 1), -1), 200), 40)
    fresh = {name for name, entry in world.now.items() if entry is not world.stored.get(name)}
    assert fresh
    assert {name for name, _ in listed(ranking)[0]} == fresh
    rows = len(fresh) * (2 if world.passages else 1)
    assert ranking.visited_Q.tolist() == [rows, rows]


def bm25(world, number, text, k):
    """BM25 as the library counts while a tail is there: words of removed documents count until they are folded in."""
    copies = 2 if world.passages else 1
    now = world.history[number]
    fresh = {name: entry for name, entry in now.items() if entry is not world.stored.get(name)}
    said = {name: Counter(words(f"{entry['title']} {entry['text']}")) for name, entry in world.stored.items()}
    new = {name: Counter(words(f"{entry['title']} {entry['text']}")) for name, entry in fresh.items()}
    total = copies * (len(said) + len(new))
    mean = sum(sum(counts.values()) for counts in said.values()) / len(said)
    scores = {}
    for name in now:
        counts = new[name] if name in new else said[name]
        score = 0.0
        for word in words(text):
            n = copies * sum(counted[word] > 0 for part in (said, new) for counted in part.values())
            if counts[word]:
                share = counts[word] / (counts[word] + 1.5 * (0.25 + 0.75 * sum(counts.values()) / mean))
                score += math.log(1 + (total - n + 0.5) / (n + 0.5)) * share
        if score:
            scores[name] = score
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


@pytest.mark.parametrize("text", ["oak", "birch elm elm", "title n03", "nothing"])
def test_words_find_what_a_loop_finds(world, text):
    query_QM = world.unit(world.rng, 1, M)
    for number in (0, 9, 40):
        lexical = world.live.read(Words([text], query_QM, 100), number)
        wanted = bm25(world, number, text, 100)
        (found,) = listed(lexical)
        assert sorted(name for name, _ in found) == sorted(name for name, _ in wanted)
        np.testing.assert_allclose([score for _, score in found], [score for _, score in wanted], rtol=1e-4)
        for (name, _), base in zip(found, lexical.base_QK[0].tolist(), strict=False):
            product = float(world.history[number][name]["vector"] @ query_QM[0])
            assert any(abs(base - sign * product) < 1e-5 for sign in ((1, -1) if world.passages else (1,)))


@pytest.mark.parametrize("language", ["english", "none"])
def test_a_tail_counts_words_as_its_index_does(world, language):
    world.live = world.opened(Tail(0, words=language))
    world.live.tail.add(Change(1, "put", world.rows([world.new("fresh") | {"text": "rings of gold"}])))
    lexical = world.live.read(Words(["ring"], world.unit(world.rng, 1, M), 5), 1)
    assert [name for name, _ in listed(lexical)[0]] == ["fresh"] * (language == "english")


def test_documents_by_their_ids_and_in_pages(world):
    names = (*sorted(world.now)[:9], "none", *(name for name in world.stored if name not in world.now))
    for number in (0, 5, 40):
        now = world.history[number]
        for work, wanted in (
            (Lookup(names), [name for name in names if name in now]),
            (Listing("", 100), sorted(now)),
            (Listing("d3", 7), [name for name in sorted(now) if name > "d3"][:7]),
        ):
            shown = documents([world.live.read(work, number)], work)
            assert [document.id for document in shown] == wanted
            for document in shown:
                texts = document.passages if world.passages else [document.text]
                assert set(texts) == {now[document.id]["text"]}
                assert document.fields == {"year": now[document.id]["year"]}
                assert document.first_leaves == [crc32(document.id.encode()) % LEAVES]
        present = world.live.read(Lookup(names, needs="ids"), number)
        assert set(present["id"].to_pylist()) == {name for name in names if name in now}


def test_passages_are_in_the_order_of_their_numbers():
    numbers = [1, 2, 1000, 1001, 9999, 10000, 10001]
    rows = [{"id": "a", "doc_id": f"a#{n:04d}", "leaf": 1, "title": "", "text": str(n)} for n in numbers[::-1]]
    (document,) = documents([pa.Table.from_pylist(rows)], Lookup(("a",)))
    assert document.passages == [str(n) for n in numbers]


@pytest.mark.parametrize("make", [lambda: Lookup(("a", "\ud800")), lambda: Listing("\ud800", 1), lambda: Lookup((5,))])
def test_ids_that_are_not_utf_8_are_refused(make):
    with pytest.raises(InputError, match="allowed: an id, text in UTF-8"):
        make()


def test_groups_divide_the_tail_by_the_best_leaf(tmp_path, write_map, unit):
    world = World(tmp_path / "map", write_map, unit, passages=False)
    world.wander(30)
    parts = [world.opened(world.tail, leaves) for leaves in (range(2), range(2, LEAVES))]
    query_QM = unit(world.rng, 1, M)
    work = Words(["oak elm"], query_QM, 100)
    whole = dict(listed(world.live.read(work, 30))[0])
    halves = [dict(listed(part.read(work, 30))[0]) for part in parts]
    assert not halves[0].keys() & halves[1].keys()
    assert halves[0] | halves[1] == pytest.approx(whole)
    pages = [part.read(Listing("", 100), 30)["id"].to_pylist() for part in parts]
    assert sorted(pages[0] + pages[1]) == sorted(world.now)


def test_scores_do_not_depend_on_what_else_is_compared(unit):
    """Every document is there twice."""
    query_QM, vector_NM, tail = (
        unit(6, 40, 384),
        np.tile(unit(5, 350, 384).astype(np.float16), (2, 1)),
        Tail(0, words=None),
    )
    for number in range(7):
        ids = [f"d{n * 7919 % 700:03d}" for n in range(100 * number, 100 * number + 100)]
        table = leaf_rows([[0]] * 100, vector_NM[100 * number :][:100], doc_id=ids, text=ids)
        tail.add(Change(number + 1, "put", table, documents=100))
    together = tail.at(7).scan(query_QM, range(1), 31)
    for query in range(40):
        for some in (slice(query, query + 1), slice(0, query + 1), slice(query, 40)):
            ranking = tail.at(7).scan(query_QM[some], range(1), 31)
            assert listed(ranking)[query - some.start] == listed(together)[query]
    assert (together.score_QK[:, 0:30:2] == together.score_QK[:, 1:30:2]).all()
    for names in listed(together):
        assert all(first < second for first, second in zip(names[:30:2], names[1:30:2], strict=True)), "ties by id"
