"""Answers of a server that is written to, given again offline: `python -m benchmarks.live.replay INDEX`.

Clients search a copy of an index while others write documents and delete some; changes are folded often. Every answer
is kept with what it said it saw, `{model, version, log}`. Once the server has ended, each is searched again by
`Searcher`, opened at that version and change, and must have the same ids. Versions stay until then.
"""

import asyncio
import contextlib
import json
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.commands import Options, absolute, clock, count
from benchmarks.live.ingest import copied, serving
from rayhier.dataset.documents import document_texts
from rayhier.dataset.queries import Queries, load_queries
from rayhier.search.model import Model
from rayhier.search.searcher import Searcher
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.version import Version
from rayhier.serve.client import AsyncClient
from rayhier.serve.errors import ApiError
from rayhier.spec.search import Mode
from rayhier.storage import current, files
from rayhier.storage.leaf_map import versions
from rayhier.storage.paths import locate
from rayhier.storage.pins import reading

SEARCHERS, WRITERS = 6, 2
FOLDED = 40
"""Documents of changes that are folded together."""
WRITTEN, DELETED = 5, 2
"""Documents of a change that writes, and of one that deletes."""
MODES: tuple[Literal["dense", "bm25", "hybrid", "vector"], ...] = ("dense", "bm25", "hybrid", "vector")
"""Orders of results; `vector` gives the query's vector, in place of its text."""
TIE = 1e-5
"""Most by which scores of the same document may differ: queries are encoded in batches of other sizes."""
PRECISION = ServeArgs(workdir="").encoder_precision
"""Precision in which the server encodes queries, whatever the spec says; a replay does the same."""
FIGURES = "replay.json"


@dataclass(frozen=True)
class Given:
    """An answer: what was asked, what it saw, and its results."""

    query: int
    mode: str
    k: int
    beam: int | None
    model: str
    version: int
    log: int
    ids: list[str]
    scores: list[float]


@dataclass(frozen=True)
class Agreement:
    """How answers and their replays agree."""

    answers: int
    versions: int
    states: int
    """Pairs of a version and a change that were seen."""
    models: int
    same: int
    """Answers whose replay has the same ids in the same order."""
    tied: int
    """Answers whose replay differs only in the order, or the choice, of documents with the same score within 1e-5."""
    furthest: float
    """Largest difference of a document's two scores."""
    first: str = ""
    """The first difference."""


async def record(
    url: str, token: str, queries: Queries, texts: Sequence[str], answers: int, wanted: int
) -> list[Given]:
    """Search and write until there are so many answers, of so many versions; returns the answers."""
    recorded, seen, ends = list[Given](), set[int](), asyncio.Event()

    async def search(client: AsyncClient, draw: random.Random) -> None:
        while not ends.is_set():
            query, mode, k = draw.randrange(len(queries)), draw.choice(MODES), draw.choice([1, 10, 50])
            beam = None if mode == "bm25" else draw.choice([None, 1, 5])
            question: Any = queries.vector_QM[query] if mode == "vector" else queries.texts[query]
            order: Mode = "dense" if mode == "vector" else mode
            answer = await client.search(question, k=k, beam=beam, mode=order)
            ids, scores = [hit.id for hit in answer.results], [hit.score for hit in answer.results]
            recorded.append(Given(query, mode, k, beam, answer.model, answer.version, answer.log, ids, scores))
            seen.add(answer.version)
            if len(recorded) >= answers and len(seen) >= wanted:
                ends.set()

    async def write(client: AsyncClient, draw: random.Random, number: int) -> None:
        written = list[str]()
        while not ends.is_set():
            with contextlib.suppress(ApiError):  # another client deleted it before
                if len(written) > 4 * WRITTEN and draw.random() < 0.3:
                    await client.delete([written.pop(draw.randrange(len(written))) for _ in range(DELETED)])
                else:
                    names = [f"replay-{number}-{draw.randrange(400)}" for _ in range(WRITTEN)]
                    documents = [
                        {"id": name, "text": f"{draw.choice(texts)} {draw.randrange(1 << 30)}"}
                        for name in dict.fromkeys(names)
                    ]
                    await client.put(documents)
                    written += [name for name in dict.fromkeys(names) if name not in written]
            # As many changes as answers need, and no more: every state that is seen is opened again.
            while (
                not ends.is_set()
                and len(recorded) < answers
                and len(seen) * answers > (len(recorded) + answers / 20) * wanted
            ):
                await asyncio.sleep(0.02)

    async with (
        AsyncClient(url, token, timeout=120, connections=SEARCHERS + WRITERS) as client,
        asyncio.TaskGroup() as group,
    ):
        for number in range(SEARCHERS):
            group.create_task(search(client, random.Random(f"search {number}")))
        for number in range(WRITERS):
            group.create_task(write(client, random.Random(f"write {number}"), number))
    return recorded


def opened(work: Path, recorded: Sequence[Given]) -> Iterator[tuple[Searcher, list[Given]]]:
    """Open each state that answers saw, with those answers."""
    root = locate(str(work))
    now = current.read(root)
    states = defaultdict[tuple[str, int, int], list[Given]](list)
    for answer in recorded:
        states[answer.model, answer.version, answer.log].append(answer)
    model, index = Version(str(work), now, 0).model(PRECISION), current.artifact(root, now, "index").root
    for (name, version, log), answers in sorted(states.items()):
        with contextlib.ExitStack() as pins:
            there = pins.enter_context(reading(index, version))
            if there.manifest.model != name:
                raise ValueError(f"version {version} is of model {there.manifest.model}; an answer said {name}")
            yield Searcher.over(model, there, {}, pins.pop_all(), follows=True, log=log), answers


def again(searcher: Searcher, answer: Given, queries: Queries) -> tuple[list[str], list[float]]:
    """Search for an answer's question; returns ids and scores."""
    if answer.mode == "vector":
        (replay,) = searcher.search_vectors(queries.vector_QM[answer.query][None], answer.k, answer.beam)
    else:
        (replay,) = searcher.search([queries.texts[answer.query]], answer.k, answer.beam, mode=answer.mode)
    return [hit.id for hit in replay.hits], [hit.score for hit in replay.hits]


def compare(work: Path, recorded: Sequence[Given], queries: Queries) -> Agreement:
    """Search again for every answer."""
    same, tied, furthest, first, states = 0, 0, 0.0, "", 0
    for searcher, answers in opened(work, recorded):
        states += 1
        for answer in answers:
            ids, scores = again(searcher, answer, queries)
            same += ids == answer.ids
            shared = dict(zip(ids, scores, strict=True))
            far = [
                abs(shared[name] - score)
                for name, score in zip(answer.ids, answer.scores, strict=True)
                if name in shared
            ]
            furthest = max([furthest, *far])
            is_tied = (
                ids != answer.ids
                and len(ids) == len(answer.ids)
                and np.allclose(scores, answer.scores, rtol=0, atol=TIE)
            )
            tied += is_tied
            if ids != answer.ids and not is_tied and not first:
                first = difference(answer, ids, scores)
        searcher.close()
    seen = Counter(answer.version for answer in recorded)
    models = {answer.model for answer in recorded}
    return Agreement(len(recorded), len(seen), states, len(models), same, tied, furthest, first)


def difference(answer: Given, ids: list[str], scores: list[float]) -> str:
    """Say where a replay differs first from an answer: the question, and three results of each from there on."""
    pairs = zip_longest(answer.ids, ids)
    place = next(place for place, (before, after) in enumerate(pairs) if before != after)
    some, question = slice(place, place + 3), {**asdict(answer), "ids": "…", "scores": "…"}
    return f"{question}, place {place}: {answer.ids[some]} {answer.scores[some]}, then {ids[some]} {scores[some]}"


def lines(workdir: Path) -> list[str]:
    """What a replay found, as its figures below a workdir say; empty where there are none."""
    path = workdir / FIGURES
    if not path.exists():
        return []
    told = Agreement(**json.loads(path.read_text()))
    seen = f"{told.versions} versions, {told.states:,} states and {told.models} model{'s' if told.models > 1 else ''}"
    same = f"{told.same:,} have the same ids in the same order when replayed, {told.tied:,} but for ties"
    text = f"{told.answers:,} answers over {seen}: {same}. Largest difference of a score: {told.furthest:.1e}."
    return [text, *([f"First: {told.first}"] if told.first else [])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Record and replay; returns 1 where an answer differs."""
    parser = Options("Answers given again offline from what they said they saw.", "live")
    parser.add_argument("index", type=absolute, help="workdir of an index, which is copied")
    parser.add_argument("--answers", type=count, default=10_000)
    parser.add_argument("--versions", type=count, default=50)
    options = parser.parse_args(arguments)
    report, work = clock(), options.workdir / "replay"
    root = copied(options.index, work)
    place = locate(str(work))
    now = current.read(place)
    corpus, vectors = (current.artifact(place, now, kind) for kind in ("corpus", "vectors"))
    dev = load_queries(corpus, vectors, "dev")
    model = Model.of_workdir(place, now)
    vector_QM = model.encode_stored(dev.vector_QM, lambda: dev.texts).numpy
    queries = dev.with_vectors(vector_QM)
    texts = document_texts(files.read_table(corpus.path(corpus.names("documents/")[0]), ["title", "text"]))
    with serving(work, f"writes.fold_documents={FOLDED}") as (url, token):
        recorded = asyncio.run(record(url, token, queries, texts, options.answers, options.versions))
    report(f"{len(recorded):,} answers; {len(versions(locate(str(root))))} versions")
    told = compare(work, recorded, queries)
    (options.workdir / FIGURES).write_text(json.dumps(asdict(told), indent=1))
    report("replayed")
    print("\n".join(lines(options.workdir)))
    shutil.rmtree(work)
    return int(told.same + told.tied < told.answers)


if __name__ == "__main__":
    raise SystemExit(main())
