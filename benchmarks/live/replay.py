"""Compare answers of a server that is written to with searches afterwards: `python -m benchmarks.live.replay INDEX`.

Clients search a copy of an index while other clients write and delete documents. Changes are folded often, and older
versions are published again. New models are trained, and replace the served model. Every answer is kept with its
`{model, version, log}`. When the server has ended, `Snapshot` opens that version and change, and searches again. It
must find the same ids. Versions stay until then.
"""

import asyncio
import contextlib
import json
import random
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from benchmarks.collection import BUILT, ROOT
from benchmarks.commands import Options, absolute, clock, count
from benchmarks.live.gauge import about
from benchmarks.live.ingest import copied, serving
from rayhier.dataset.documents import document_texts
from rayhier.dataset.queries import Queries, load_queries
from rayhier.search.index import open_leaf_map
from rayhier.search.routing.routes import Model
from rayhier.search.snapshot import Snapshot
from rayhier.serve.backend.version import Version
from rayhier.serve.client import AsyncClient
from rayhier.serve.errors import ApiError
from rayhier.spec.search import Mode
from rayhier.storage import current, parquet
from rayhier.storage.current import Current
from rayhier.storage.paths import locate
from rayhier.storage.pins import reading

SEARCHERS, WRITERS = 6, 2
FOLDED = 40
"""Documents of changes that are folded together."""
WRITTEN, DELETED = 5, 2
"""Documents of a change that writes, and of one that deletes."""
MODES: tuple[Literal["dense", "bm25", "hybrid", "vector"], ...] = ("dense", "bm25", "hybrid", "vector")
"""Orders of results; `vector` gives the query's vector, in place of its text."""
BACK = 2
"""Versions by which a rollback goes back."""
RESTS = 0.5
"""Seconds between two requests of a client that waits for the next model, whose training takes the processors."""
SERVED = 300.0
"""Most seconds until a model that is named has answered."""
SETTLED = 5.0
"""Seconds of answers by a new model that still belong to its swap."""
TIE = 1e-5
"""Most by which scores of the same document may differ: queries are encoded in batches of other sizes."""
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


@dataclass
class Recorded:
    """What clients were answered."""

    answers: list[Given] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    """Milliseconds of each answer."""
    swapping: list[bool] = field(default_factory=list)
    """True for answers between the end of a new model's training and five seconds of its answers."""
    failed: list[str] = field(default_factory=list)
    """Searches that failed; none is sent again."""
    nows: list[Current] = field(default_factory=list)
    """What current.json named, one model after another."""
    rollbacks: int = 0


@dataclass(frozen=True)
class Agreement:
    """How answers and their replays agree."""

    answers: int
    versions: int
    states: int
    """Triples of a model, a version and a change that were seen."""
    models: int
    same: int
    """Answers whose replay has the same ids in the same order."""
    tied: int
    """Answers whose replay differs only in the order, or the choice, of documents with the same score within 1e-5."""
    furthest: float
    """Largest difference of a document's two scores."""
    first: str = ""
    """The first difference."""
    rollbacks: int = 0
    failed: int = 0
    """Searches that failed."""
    p99: float = 0.0
    p99_swap: float = 0.0
    """Milliseconds of searches, all, and those during swaps of the model."""
    index: str = ""
    """Name of the index's spec."""
    documents: int = 0
    """Number of documents at the start."""
    about: str = ""
    """When and where this was measured."""


class Recording:
    """Clients of a server that keep each other busy."""

    def __init__(self, url: str, token: str, work: Path, queries: Queries, texts: Sequence[str]) -> None:
        self._url, self._token, self._work, self._queries, self._texts = url, token, work, queries, texts
        self._root = locate(str(work))
        self.recorded = Recorded(nows=[current.read(self._root)])
        self._seen, self._ends, self._is_swapping = set[tuple[str, int]](), asyncio.Event(), False

    async def __call__(self, answers: int, versions: int, models: int) -> Recorded:
        """Search and write until there are so many answers, of so many versions and models."""
        self._answers, self._versions, self._models = answers, versions, models
        async with (
            AsyncClient(self._url, self._token, timeout=120, connections=SEARCHERS, retries=0) as searches,
            AsyncClient(self._url, self._token, timeout=120, connections=WRITERS + 1) as writes,
            asyncio.TaskGroup() as group,
        ):
            for number in range(SEARCHERS):
                group.create_task(self._search(searches, random.Random(f"search {number}")))
            for number in range(WRITERS):
                group.create_task(self._write(writes, random.Random(f"write {number}"), number))
            await self._train(writes)
            while len(self.recorded.answers) < answers or len(self._seen) < versions:
                await asyncio.sleep(0.1)
            self._ends.set()
        return self.recorded

    @property
    def _waits(self) -> bool:
        """True where there are as many answers of this model as are needed, but for those of the next ones."""
        return len(self.recorded.answers) * self._models >= self._answers * len(self.recorded.nows)

    async def _search(self, client: AsyncClient, draw: random.Random) -> None:
        queries, recorded = self._queries, self.recorded
        while not self._ends.is_set():
            query, mode, k = draw.randrange(len(queries)), draw.choice(MODES), draw.choice([1, 10, 50])
            beam = None if mode == "bm25" else draw.choice([None, 1, 5])
            question: Any = queries.vector_QM[query] if mode == "vector" else queries.texts[query]
            order: Mode = "dense" if mode == "vector" else mode
            began, is_swapping = time.perf_counter(), self._is_swapping
            try:
                answer = await client.search(question, k=k, beam=beam, mode=order)
            except (ApiError, OSError) as error:
                recorded.failed.append(repr(error))
                continue
            ids, scores = [hit.id for hit in answer.results], [hit.score for hit in answer.results]
            recorded.answers.append(Given(query, mode, k, beam, answer.model, answer.version, answer.log, ids, scores))
            recorded.ms.append(1e3 * (time.perf_counter() - began))
            recorded.swapping.append(is_swapping)
            self._seen.add((answer.model, answer.version))
            if self._waits and not self._is_swapping:
                await asyncio.sleep(RESTS)

    async def _write(self, client: AsyncClient, draw: random.Random, number: int) -> None:
        written = list[str]()
        while not self._ends.is_set():
            with contextlib.suppress(ApiError):  # another client deleted it before, or a rollback took it away
                if len(written) > 4 * WRITTEN and draw.random() < 0.3:
                    await client.delete([written.pop(draw.randrange(len(written))) for _ in range(DELETED)])
                else:
                    names = list(dict.fromkeys(f"replay-{number}-{draw.randrange(400)}" for _ in range(WRITTEN)))
                    documents = [
                        {"id": name, "text": f"{draw.choice(self._texts)} {draw.randrange(1 << 30)}"} for name in names
                    ]
                    await client.put(documents)
                    written += [name for name in names if name not in written]
            # As many versions as answers so far need: each is opened again.
            while not self._ends.is_set() and self._is_ahead:
                await asyncio.sleep(0.02)
            if self._waits:
                await asyncio.sleep(RESTS)

    @property
    def _is_ahead(self) -> bool:
        answers = len(self.recorded.answers)
        return (
            answers < self._answers
            and len(self._seen) * self._answers > (answers + self._answers / 20) * self._versions
        )

    async def _train(self, client: AsyncClient) -> None:
        """Roll back, then train a model with another seed and let it be served, until there are enough models."""
        spec, recorded = self._work / "spec.yaml", self.recorded
        spec.write_text(yaml.safe_dump(recorded.nows[0].spec.model_dump(mode="json", exclude_unset=True)))
        while len(recorded.nows) < self._models:
            while not self._waits:
                await asyncio.sleep(0.1)
            newest = (await client.versions(limit=1)).versions[0].version
            if newest > BACK:
                with contextlib.suppress(ApiError):  # that version may be of the model before
                    await client.rollback(newest - BACK)
                    recorded.rollbacks += 1
            seed = max(recorded.nows[0].spec.evaluate.seeds) + len(recorded.nows)
            command = [sys.executable, "-m", "rayhier", "run", str(spec), "--set", f"workdir={self._work}"]
            command += [part for stage in BUILT for part in ("--stage", stage)]
            training = await asyncio.create_subprocess_exec(
                *command, "--set", f"evaluate.seeds=[{seed}]", cwd=ROOT, stdout=asyncio.subprocess.DEVNULL
            )
            try:
                while (now := current.read(self._root)).artifacts == recorded.nows[-1].artifacts:
                    if training.returncode is not None:
                        raise RuntimeError(f"training ended with {training.returncode}, and no model was named")
                    await asyncio.sleep(0.2)
                self._is_swapping = True
                async with asyncio.timeout(SERVED):
                    while not any(model == now.artifacts["model"] for model, _ in self._seen):
                        await asyncio.sleep(0.05)
                recorded.nows.append(now)
                await asyncio.sleep(SETTLED)
                self._is_swapping = False
                if await training.wait():
                    raise RuntimeError(f"training ended with {training.returncode}")
            finally:
                if training.returncode is None:
                    training.kill()


def opened(work: Path, recorded: Recorded) -> Iterator[tuple[Snapshot, list[Given]]]:
    """Open each version that answers saw, with the log up to the last change of these, and yield it with them."""
    root, seen = locate(str(work)), defaultdict[tuple[str, int], list[Given]](list)
    for answer in recorded.answers:
        seen[answer.model, answer.version].append(answer)
    for now in {now.artifacts["model"]: now for now in recorded.nows}.values():
        name, index = now.artifacts["model"], current.artifact(root, now, "index").root
        numbers = sorted(version for model, version in seen if model == name)
        if not numbers:
            continue
        first = Version(str(work), now, numbers[0])
        model = first.model()
        for number in numbers:
            with contextlib.ExitStack() as pins:
                there = pins.enter_context(reading(index, number))
                if there.manifest.model != name:
                    raise ValueError(f"version {number} is of model {there.manifest.model}; an answer said {name}")
                routed = model.with_router(first.at(number).router(there))
                answers = seen[name, number]
                last = max(answer.log for answer in answers)
                snapshot = Snapshot(now.spec, there, routed, None, pins.pop_all())
                snapshot.see(last)
                yield snapshot, answers


def again(searcher: Snapshot, answer: Given, queries: Queries) -> tuple[list[str], list[float]]:
    """Search for an answer's question, as of the change that it saw; returns ids and scores."""
    searcher.log = answer.log
    if answer.mode == "vector":
        (replay,) = searcher.search(queries.vector_QM[answer.query][None], answer.k, answer.beam)
    else:
        (replay,) = searcher.search([queries.texts[answer.query]], answer.k, answer.beam, mode=answer.mode)
    return [hit.id for hit in replay.hits], [hit.score for hit in replay.hits]


def compare(work: Path, recorded: Recorded, queries: Queries) -> Agreement:
    """Search again for every answer."""
    same, tied, furthest, first = 0, 0, 0.0, ""
    for searcher, answers in opened(work, recorded):
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
    seen = Counter((answer.model, answer.version) for answer in recorded.answers)
    states = {(answer.model, answer.version, answer.log) for answer in recorded.answers}
    ms, swapping = np.array(recorded.ms), np.array(recorded.swapping)
    return Agreement(
        len(recorded.answers),
        len(seen),
        len(states),
        len({model for model, _ in seen}),
        same,
        tied,
        furthest,
        first,
        recorded.rollbacks,
        len(recorded.failed),
        float(np.percentile(ms, 99)),
        float(np.percentile(ms[swapping], 99)) if swapping.any() else 0.0,
    )


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
    models = f"{told.models} model{'s' if told.models > 1 else ''}"
    seen = f"{told.versions} versions, {told.states:,} states and {models} of {told.index}"
    same = f"When replayed, {told.same:,} have the same ids in the same order, {told.tied:,} but for ties"
    over = f"{told.answers:,} answers over {seen} ({told.documents:,} documents at first)"
    lines = [f"{over}. {same}. Scores differ by at most {told.furthest:.1e}."]
    if told.models > 1:
        swaps = f"{told.models - 1} swaps of the model and {told.rollbacks} rollbacks"
        times = f"99% of searches took at most {told.p99:,.0f} ms, during a swap {told.p99_swap:,.0f} ms"
        lines.append(f"During {swaps}, {told.failed} searches failed. {times}, next to the training.")
    lines += [f"{told.about}."] if told.about else []
    return [" ".join(lines), *([f"First: {told.first}"] if told.first else [])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Record and replay; returns 1 where an answer differs."""
    parser = Options("Compare answers with searches of the same versions afterwards.", "live")
    parser.add_argument("index", type=absolute, help="workdir of an index, which is copied")
    parser.add_argument("--answers", type=count, default=10_000)
    parser.add_argument("--versions", type=count, default=50)
    parser.add_argument("--models", type=count, default=3, help="number of models, one after another")
    options = parser.parse_args(arguments)
    report, work = clock(), options.workdir / "replay"
    copied(options.index, work)
    place = locate(str(work))
    now = current.read(place)
    corpus, vectors = (current.artifact(place, now, kind) for kind in ("corpus", "vectors"))
    dev = load_queries(corpus, vectors, "dev")
    documents = open_leaf_map(place, now).manifest.documents
    model = Model.of_workdir(place, now)
    vector_QM = model.encode_stored(dev.vector_QM, lambda: dev.texts, "query").numpy
    queries = dev.with_vectors(vector_QM)
    texts = document_texts(parquet.read(corpus.path(corpus.names("documents/")[0]), ["title", "text"]))
    with serving(work, f"writes.fold_documents={FOLDED}") as (url, token):
        recording = Recording(url, token, work, queries, texts)
        recorded = asyncio.run(recording(options.answers, options.versions, options.models))
    report(f"{len(recorded.answers):,} answers; {len(recorded.failed)} failed: {recorded.failed[:3]}")
    told = replace(compare(work, recorded, queries), index=now.spec.name, documents=documents, about=about())
    (options.workdir / FIGURES).write_text(json.dumps(asdict(told), indent=1))
    report("replayed")
    print("\n".join(lines(options.workdir)))
    shutil.rmtree(work)
    return int(told.same + told.tied < told.answers or told.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
