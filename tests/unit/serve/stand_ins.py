"""What tests of the server share: a canned engine and its index, groups in this process, pair scores by a function."""

import asyncio
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from rayhier.index.nodes import NodeTable
from rayhier.model.encoded import Encoded
from rayhier.search.request.hits import Answer, Hit
from rayhier.search.request.request import Rules
from rayhier.search.retrieve import RERANKER
from rayhier.search.routing.routes import Routes
from rayhier.search.segment.stored import Lookup, Stored
from rayhier.search.snapshot import Seen
from rayhier.serve.application import check_index
from rayhier.serve.args import RequestLimits, ServeArgs
from rayhier.serve.backend.changes import Written
from rayhier.serve.backend.engine import Answers, Engine, View
from rayhier.serve.backend.follower import Newest
from rayhier.serve.backend.queues import Admission
from rayhier.serve.backend.shards import ShardGroup
from rayhier.serve.errors import LostError
from rayhier.serve.http.api import api
from rayhier.serve.http.bodies import Drift, IndexResponse
from rayhier.serve.http.tokens import Tokens
from rayhier.spec.search import SearchSpec
from rayhier.storage import schemas
from rayhier.storage.leaf_map import Manifest

TOKEN = "sesame-1"
LIMITS = RequestLimits(max_body_bytes=2_000, max_batch=3, max_k=50, max_beam=8, max_query=100, max_requests=2)
INDEX = IndexResponse.model_validate(
    {"name": "canned", "version": 4, "log": 0, "index": "ba9876543210", "model": "0123456789ab", "refused": None}
    | {
        "router": "ehi",
        "documents": 10,
        "unit": "documents",
        "leaves": 9,
        "leaves_per_document": 1,
        "shards": 2,
        "dimension": 3,
    }
    | {"groups": ["shards-0", "shards-1"], "similarity": "dot", "precision": "float32", "fields": {"year": "int"}}
    | {"k": 7, "beam": 2, "how": "leaves", "mode": "dense", "modes": ["dense"], "weight": None}
    | {"rerank": "none", "budget": 0, "pool": None, "recall": None, "recall_served": None}
    | {"drift": Drift(imbalance=1.5, void=0.0, added=0.0, log_prob=-0.5, added_log_prob=None, advice=[])}
    | {"limits": LIMITS.model_dump()}
)
RULES = Rules(SearchSpec(k=7, beam=2), 9, 10, {"year": "int"}, 3, groups=2)
"""What requests to the index `INDEX` may ask; `app_of` adds the limits of the server."""
HIT = Hit("d1", 0.5, 3, "a title", "a text", {"year": 1999})


SEEN = Seen("0123456789ab", 4, 0)
STORED = Stored("d1", "a title", "a text", None, {"year": 1999}, [3])


class Canned:
    """An engine that answers everything with one hit and notes what it was asked."""

    def __init__(self):
        self.admission = Admission(math.inf)
        self.view = View(None, [], RULES, 10, np.zeros(9, np.int64), SEEN, None, None)
        self.begin()

    def begin(self):
        """Forget what was asked, and what a test set."""
        self.asked, self.filters, self.modes, self.budgets = [], [], [], []
        self.gone, self.error, self.hit, self.stored = [], None, HIT, [STORED]
        vars(self).pop("search", None)

    async def search(self, request):
        self.asked.append((request.queries, request.k, request.beam))
        self.modes.append(request.mode)
        self.filters.append(request.where)
        self.budgets.append(request.budget)
        if self.error is not None:
            raise self.error
        q = len(request.queries)
        found = [Answer([self.hit], [3, 1], 4, 0.4, enough=True)] * q
        return Answers(found, [self.gone] * q, {"total": 1.0}, self.routes(), [0] * q, SEEN)

    async def route(self, request):
        self.asked.append((request.queries, None, request.beam))
        return self.routes()

    async def weigh(self, routes):
        pass

    def routes(self):
        routes = Routes(Encoded(np.zeros((1, 3))), np.array([[3, 1]]), model=None)
        vars(routes).update(log_probs=np.array([[-0.5, -1.5]]), log_densities=None)
        return routes

    async def documents(self, work):
        self.asked.append(work)
        if isinstance(work, Lookup):
            return [document for document in self.stored if document.id in work.ids], self.gone
        return [document for document in self.stored if document.id > work.after][: work.count], self.gone

    async def encode(self, texts):
        self.asked.append(texts)
        if self.error is not None:
            raise self.error
        return np.array([[len(text), 0.5, -1] for text in texts], np.float32), 7 * len(texts)

    async def score(self, query, texts):
        self.asked.append((query, texts))
        if self.error is not None:
            raise self.error
        return np.array([len(text) - 5 for text in texts], np.float32)

    async def unavailable(self):
        return self.gone

    async def changed(self):
        await asyncio.Event().wait()


class CannedWriter:
    """A Writer that changes nothing and notes what it was told."""

    def __init__(self):
        self.told = []

    async def put(self, documents, key=None, body="", *, upsert=True):
        self.told.append(("put", documents, key))
        return Written(Seen("0123456789ab", 4, 1), len(documents))

    async def delete(self, ids, key=None, body=""):
        self.told.append(("delete", ids, key))
        return Written(Seen("0123456789ab", 4, 2), len(ids))

    async def rollback(self, number, key=None):
        self.told.append(("rollback", number, key))
        return Newest(Seen("0123456789ab", 5, 2), 10)


MADE = {"model": "0123456789ab", "dimension": 3, "metric": "inner_product", "vectors": "float32"}
VERSIONS = [
    Manifest(
        version=number, parent=number - 1, change=change, at=1000.0 + number, documents=10, counts=[], shards=[], **MADE
    )
    for number, change in ((4, "fold"), (3, "delete"))
]
"""The versions of the index `INDEX`."""


LEVELS, NUMBERS, PARENTS = [1] * 3 + [2] * 9, [0, 1, 2, *range(9)], [0] * 3 + [0] * 3 + [1] * 3 + [2] * 3
KEYWORDS = [["tree"], ["leaf", "moss"], [], *([f"word{n}"] for n in range(9))]
NODES = NodeTable(
    pa.table([LEVELS, NUMBERS, PARENTS, [0] * 12, KEYWORDS, [["d1"]] * 12], schema=schemas.LEAVES),
    np.array([1, 2, 0, 4, 0, 2, 0, 0, 0]),
)
"""Nine leaves below three nodes, the last of which has no documents, for the index `INDEX`."""


def app_of(engine, limits=LIMITS, tokens=None, index=INDEX, rules=RULES, writer=None, **more):
    """The HTTP application over an engine, an index and its rules, within some limits; `more` are `ServeArgs`."""
    engine.view = replace(engine.view, rules=replace(rules, limits=limits))
    served = SimpleNamespace(
        args=ServeArgs(workdir="none", limits=limits, **more),
        engine=engine,
        tokens=tokens or Tokens(None),
        metrics=None,
        index=lambda: index,
        nodes=lambda: (NODES, index.version),
        versions=lambda before, count: VERSIONS[before is not None :][:count],
    )
    return api(served, writer)


def ruled(rules=RULES, **search):
    """The same rules, with other keys of `search` in the spec; words are counted where it names a mode."""
    given = rules.search.model_dump(exclude_unset=True)
    words = rules.words or "mode" in search
    return replace(rules, search=SearchSpec.model_validate(given | search), words=words)


def error(response):
    """Status, code and message of a refusal, which has nothing else."""
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    return response.status_code, body["error"]["code"], body["error"]["message"]


def refuses(response, said, status=422, code="invalid"):
    """Check that a response is a refusal whose message has a text; returns the message."""
    assert error(response)[:2] == (status, code), response.text
    assert said in error(response)[2], response.text
    return error(response)[2]


@dataclass
class Near:
    """A shard group in this process, which may be lost."""

    name: str
    leaves: range
    shards: Any
    gone: bool = False

    async def read(self, work, seen):
        if self.gone:
            raise LostError(self.name)
        return await self.shards.read(work, seen)

    async def answers(self):
        return not self.gone


def near_groups(workdir, count):
    """The shard groups of a published index, in this process."""
    version, _, parts = check_index(ServeArgs(workdir=str(workdir), shard_groups=count))
    return [Near(part.name, part.leaves, ShardGroup(version, part.leaves)) for part in parts]


def engine_of(searcher, groups, reranker=None, reranking=None, rules=None):
    """An engine over groups that hold the index that a searcher has open."""
    manifest = searcher.manifest
    rules = replace(rules or searcher.rules, groups=len(groups))
    counts = np.array(manifest.counts, dtype=np.int64)
    seen, leaf_map = Seen(manifest.model, manifest.version, manifest.log), searcher.leaf_map
    return Engine(
        View(searcher.model, groups, rules, manifest.documents, counts, seen, None, leaf_map, reranker, reranking)
    )


async def ask(engine, queries, k=None, beam=None, where=None, budget=0, mode=None):
    """Have an engine answer queries, as its rules allow; without a budget they are not re-ranked."""
    return await engine.search(engine.view.rules.request(queries, k, beam, where, mode, budget=budget))


class Scores:
    """Pair scores by a coroutine function."""

    def __init__(self, score):
        self._score, self.there = score, True

    async def score(self, queries, items, seconds):
        try:
            async with asyncio.timeout(seconds):
                return await self._score(queries, items)
        except TimeoutError:
            raise LostError(RERANKER) from None

    async def answers(self):
        return self.there
