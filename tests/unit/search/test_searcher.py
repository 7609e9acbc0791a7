"""From a leaf map to answers, against a scan by hand: leaves of a beam, and more of them where too few match."""

import numpy as np
import pytest
import torch

from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.model.router import opened
from rayhier.search import retrieve
from rayhier.search.routing.routes import Model
from rayhier.search.snapshot import Snapshot
from rayhier.spec.filter import OneOf

from ...draws import unit
from ...toys import job
from .maps import leaf_map_of_rows, leaf_rows

N, M, L = 60, 8, 6
ALL, KEPT = range(N), range(0, N, 7)
"""Documents that match: without a filter, and with `SOME`."""
SOME = OneOf("doc_id", tuple(f"d{row}" for row in KEPT))
QUESTIONS = [str(row) for row in ALL]


class Words:
    """An encoder of texts that are numbers: the vector of that document."""

    def __init__(self, vectors):
        self.vectors = vectors

    def encode_for(self, reader, texts, role="document"):
        assert reader is None
        return Encoded(self.vectors[[int(text) for text in texts]])


@pytest.fixture(scope="module")
def vectors():
    return unit(0, N, M).astype(np.float16).astype(np.float32)


@pytest.fixture(scope="module")
def leaf_of(vectors):
    """Leaf 0 stays empty: its documents go to leaf 1."""
    return np.maximum((vectors @ vectors[:L].T).argmax(axis=1), 1)


@pytest.fixture(scope="module")
def leaf_map(vectors, leaf_of, tmp_path_factory, write_map):
    named = {name: [f"{name} {row}" for row in ALL] for name in ("title", "text")}
    table = leaf_rows([[leaf] for leaf in leaf_of.tolist()], vectors, doc_id=[f"d{row}" for row in ALL], **named)
    return leaf_map_of_rows(tmp_path_factory.mktemp("map"), write_map, table, L, 3)


@pytest.fixture
def searcher(vectors, leaf_map):
    router = EhiRouter(M, L, 1, "none")
    router.warm_start(torch.from_numpy(vectors[:L]))
    spec = job(router={"type": "ehi", "branching": L}, search={"k": 7, "beam": 2})
    return Snapshot(spec, leaf_map, Model(opened(router), lambda: Words(vectors), spec))


def by_hand(vectors, leaf_of, row, k, beam, few, kept):
    """Leaves visited, documents scored in the last scan, ids, rows scored in all scans."""
    order, scored, enough = np.argsort(-(vectors[:L] @ vectors[row])), 0, round(beam * N / L)
    while True:
        members = [n for n in kept if leaf_of[n] in order[:beam]]
        scored += len(members)
        if kept is ALL or len(members) >= max(k, enough) or beam >= L:
            best = sorted(members, key=lambda n: -(vectors[n] @ vectors[row]))[:k]
            return order[:beam].tolist(), len(members), [f"d{n}" for n in best], scored
        wider = max(2 * beam, int(np.ceil(1.25 * beam * max(k, enough) / (len(members) + 1))))
        beam = L if wider >= L or (len(members) + 1) * L / beam <= few * max(k, enough) else wider


@pytest.mark.parametrize(("k", "beam"), [(1, 1), (2, 1), (4, 3), (len(KEPT) + 1, 1), (N, 99)])
@pytest.mark.parametrize(("where", "kept", "few"), [(None, ALL, 0), *((SOME, KEPT, few) for few in (0, 1, 4))])
def test_leaves_of_a_beam_are_scanned_and_more_until_enough_match(
    monkeypatch, vectors, searcher, leaf_of, k, beam, where, kept, few
):
    monkeypatch.setattr(retrieve, "FEW", few)
    for row, answer in enumerate(searcher.search(QUESTIONS, k, beam, filter=where)):
        own, documents, ids, scored = by_hand(vectors, leaf_of, row, k, beam, few, kept)
        assert sorted(answer.leaves) == sorted(own)
        assert answer.leaves[:beam] == own[:beam]
        assert (answer.documents, answer.scored, answer.enough) == (documents, scored, documents >= k)
        assert [hit.id for hit in answer.hits] == ids
        assert answer.fraction == documents / N
        for hit in answer.hits:
            found = int(hit.id[1:])
            assert (hit.leaf, hit.title, hit.text) == (leaf_of[found], f"title {found}", f"text {found}")
            assert hit.score == pytest.approx(vectors[row] @ vectors[found], abs=1e-6)
