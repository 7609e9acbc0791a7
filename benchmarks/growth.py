"""An index that grows by topics it has not seen: `make bench-growth`.

Encoder, leaves and router learn from the first 20,000 documents of oewn_examples, in the order of topics; the others
come in fifty changes, whole topics late. After each change the index is as it is, or maintained. At some changes both
are compared with leaves and a router made anew of all documents, under the same encoder, where all cost the same: rows
compared and routing, in dot products. At last half of the documents are deleted. Dev queries, since constants were
chosen by this stream.
"""

import copy
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import leaf_maps
from benchmarks.collection import ROOT, Collection
from benchmarks.commands import Options, clock
from benchmarks.live.page import Figures
from benchmarks.machine import set_threads
from benchmarks.pages import plot
from benchmarks.quality.view import Places, Questions, Relevance, View
from benchmarks.tables import table
from benchmarks.training import encode
from rayhier.arrays import Ints
from rayhier.cluster.kmeans import nearest, spherical_kmeans
from rayhier.dataset.balance import balance
from rayhier.dataset.documents import Documents
from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.index.compact import compact_here
from rayhier.index.maintain import maintain
from rayhier.index.stats import Stats
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.revise import in_use
from rayhier.model.router import load_router, route_all
from rayhier.search.coded_router import first_pass_before
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import Location
from rayhier.train.examples import Examples

NAME, TOPICS = "oewn_examples", 300
FIRST, CHANGES = 20_000, 50
WIDTHS = (0.25, 0.4, 0.6, 0.8, 1.0, 1.25, 1.6, 2.0, 3.0)
"""Beams that are measured, as multiples of the automatic one."""
VOID = 0.5
"""Share of removed rows above which the index is compacted."""


@dataclass(frozen=True)
class Curve:
    """What an index finds and costs with several beams: R@100, share of the exact ten nearest, cost in documents."""

    cost: list[float]
    recall: list[float]
    nearest: list[float]
    usual: float
    """Cost with the automatic beam."""
    leaves: int
    imbalance: float

    def at(self, cost: float) -> tuple[float, float]:
        """R@100 and the share of the ten nearest at a cost, linear between measured beams."""
        return float(np.interp(cost, self.cost, self.recall)), float(np.interp(cost, self.cost, self.nearest))

    def cost_of(self, recall: float) -> float:
        """The cost of a recall R@100."""
        return float(np.interp(recall, np.maximum.accumulate(self.recall), self.cost))


class Stream:
    """The collection in the order of its topics, the encoder of its first documents, and vectors of all."""

    def __init__(self, quality: Path, workdir: Path, seed: int) -> None:
        self.collection, self.seed, self.workdir = Collection(NAME, quality / NAME), seed, workdir
        self.spec, documents = self.collection.spec, self.collection.documents
        self.ids, n = np.array(documents.ids, dtype=object), len(documents.ids)
        topic_KM = spherical_kmeans(documents.vector_NM, TOPICS, seed)
        topic_N = nearest(documents.vector_NM, topic_KM, 1)[0][:, 0]
        rng = np.random.default_rng(seed)
        self.order = np.lexsort((rng.random(n), rng.permutation(TOPICS)[topic_N]))
        self.ends = [FIRST + round((n - FIRST) * step / CHANGES) for step in range(CHANGES + 1)]
        first = self.part(self.rows(0))
        self.view = View(first, first.examples, seed, workdir / f"encoder-{seed}")
        self.head = self.view.encoder.tower.module
        # As they are stored.
        self.vector_NM = encode(self.head, documents.vector_NM).astype(np.float16).astype(np.float32)

    def rows(self, step: int) -> Ints:
        """Documents that are there after so many changes."""
        return np.sort(self.order[: self.ends[step]])

    def part(self, rows: Ints) -> Collection:
        """The collection with some of its documents, and the queries that they answer."""
        data, examples = copy.copy(self.collection), self.collection.examples
        data.documents = Documents(self.ids[rows].tolist(), self.collection.documents.vector_NM[rows])
        place_N = np.full(len(self.ids), -1)
        place_N[rows] = np.arange(len(rows))
        there = place_N[examples.pair_P2[:, 1]] >= 0
        kept, query_P = np.unique(examples.pair_P2[there, 0], return_inverse=True)
        pair_P2 = np.stack([query_P, place_N[examples.pair_P2[there, 1]]], axis=1)
        data.examples = Examples(examples.query_QM[kept], data.documents.vector_NM, pair_P2)
        data.dev = self.collection.dev.about(set(data.documents.ids))
        return data

    def anew(self, rows: Ints) -> tuple[LearnedIvfRouter, Ints, float]:
        """Leaves and a router made anew of some documents, under the encoder of the first; and the seconds."""
        data = self.part(rows)
        view = View(data, data.examples, self.seed, self.workdir / "none")
        view.encoder = data.encoder(data.examples, self.spec.train, self.seed)  # type: ignore[arg-type]
        view.encoder.tower.module.load_state_dict(self.head.state_dict())
        _ = view.vectors
        began = time.perf_counter()
        index = view.index(self.spec)
        return index.router, index.leaf_NR, time.perf_counter() - began

    def add(self, root: Location, router: LearnedIvfRouter, rows: Ints) -> LeafMap:
        """Add documents as `rayhier index add` does."""
        ids = self.ids[rows].tolist()
        batch = leaf_maps.texts(ids, ids), Encoded.of(self.vector_NM[rows])
        return change.add(root, Assigner(router, self.spec, "none"), [batch], self.spec.index.max_leaf_factor)


class Judge:
    """Dev queries about some documents, and what an exact search finds."""

    def __init__(self, stream: Stream, rows: Ints) -> None:
        data = stream.part(rows)
        self.spec, self.ids = stream.spec, data.documents.ids
        self.query_QM = encode(stream.head, data.dev.vector_QM)
        vector_NM = np.ascontiguousarray(stream.vector_NM[rows])
        self.relevance = Relevance(Questions.of(data.dev, self.ids), self.query_QM, vector_NM)
        self.near_QK = nearest(self.query_QM, vector_NM, 10)[0]

    def curve(self, router: LearnedIvfRouter, leaf_NR: Ints) -> Curve:
        """Measure an index with several beams."""
        places, used = Places(leaf_NR, router.n_leaves), int(in_use(router).sum())
        usual, n = self.spec.search.leaves_visited(used, int(places.sizes.sum())), len(leaf_NR)
        coded, cost, recall, near = first_pass_before(router), [], [], []
        for beam in sorted({max(1, round(usual * width)) for width in WIDTHS}):
            probed_QL = places.probed(route_all(router, Encoded.of(self.query_QM), beam)[0].numpy())
            compared = places.counts(probed_QL)[1].mean() + coded.multiply_adds(beam) / router.dimension
            cost.append(float(compared) / n)
            recall.append(float(self.relevance.within(probed_QL, leaf_NR).mean()))
            visited_QKR = probed_QL[np.arange(len(probed_QL))[:, None, None], leaf_NR[self.near_QK]]
            near.append(float(visited_QKR.any(axis=2).mean()))
            if beam == usual:
                at_usual = cost[-1]
        sizes = places.sizes[in_use(router).numpy()]
        return Curve(cost, recall, near, at_usual, used, balance(sizes)["imbalance"])


def placed(there: LeafMap, ids: list[str]) -> Ints:
    """Leaves [n, 2] of documents, the first again where there is no second."""
    tables = [there.read(shard, ["doc_id", "rank", "leaf"], verify=False) for shard in there.manifest.shards]
    rows, row_of = pa.concat_tables(tables), {name: row for row, name in enumerate(ids)}
    leaf_N2 = np.full((len(ids), 2), -1, dtype=np.int64)
    document_A = np.array([row_of[name] for name in rows["doc_id"].to_pylist()])
    leaf_N2[document_A, rows["rank"].to_numpy()] = rows["leaf"].to_numpy()
    return np.where(leaf_N2 < 0, leaf_N2[:, :1], leaf_N2)


def router_of(there: LeafMap, built: LearnedIvfRouter) -> LearnedIvfRouter:
    """The router of a version."""
    folder = there.router()
    router = built if folder is None else load_router(folder)
    assert isinstance(router, LearnedIvfRouter)
    return router


@dataclass
class Work:
    """What maintenance took."""

    seconds: float = 0.0
    documents: int = 0
    compactions: int = 0
    compacting: float = 0.0


def maintained(stream: Stream, there: LeafMap, built: LearnedIvfRouter, work: Work) -> LeafMap:
    """Maintain an index as its server does, and compact it where much of it is void."""
    began = time.perf_counter()
    while after := maintain(there.root, router_of(there, built), stream.spec):
        work.documents += after.manifest.shards[-1].documents
        there = after
    work.seconds += time.perf_counter() - began
    if Stats.of(there.manifest).void > VOID:
        began = time.perf_counter()
        there = compact_here(stream.spec, there.root)
        work.compactions, work.compacting = work.compactions + 1, work.compacting + time.perf_counter() - began
    return there


def main() -> None:
    """Measure and print the tables."""
    parser = Options("An index that grows by unseen topics.", "growth", "quality")
    parser.add_argument("--every", type=int, default=10, help="changes between two indexes made anew (default 10)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "images" / "growth.png")
    options = parser.parse_args()
    set_threads(2)
    say = clock()
    stream = Stream(options.quality, options.workdir, options.seed)
    say("encoder trained")
    built, _, seconds = stream.anew(stream.rows(0))
    say(f"made of {FIRST:,} documents in {seconds:.0f} s")
    roots = {name: options.workdir / f"map-{options.seed}-{name}" for name in ("as it is", "maintained")}
    states = {}
    for name, root in roots.items():
        rows = stream.rows(0)
        shutil.rmtree(root, ignore_errors=True)
        ids = stream.ids[rows].tolist()
        states[name] = leaf_maps.write(
            root, built, stream.spec, leaf_maps.texts(ids, ids), stream.vector_NM[rows], 4, "none"
        )
    work, anew_seconds = Work(), []
    lines, shown = [], []
    for step in range(1, CHANGES + 1):
        fresh = np.sort(stream.order[stream.ends[step - 1] : stream.ends[step]])
        for name, there in states.items():
            states[name] = stream.add(there.root, router_of(there, built), fresh)
        states["maintained"] = maintained(stream, states["maintained"], built, work)
        if step % options.every and step != 1:
            continue
        rows = stream.rows(step)
        judge = Judge(stream, rows)
        router, leaf_NR, seconds = stream.anew(rows)
        anew_seconds.append((len(rows), seconds))
        anew = judge.curve(router, leaf_NR)
        curves = {
            name: judge.curve(router_of(there, built), placed(there, judge.ids)) for name, there in states.items()
        }
        wanted = anew.at(anew.usual)
        cells = [f"{step}", f"{len(rows):,}", f"{anew.leaves:,}", f"{anew.usual:.2%}", "{:.3f} {:.3f}".format(*wanted)]
        ratios = {}
        for name, curve in curves.items():
            got = curve.at(anew.usual)
            ratios[name] = [a / b for a, b in zip(got, wanted, strict=True)]
            cells += [f"{curve.leaves:,}", f"{curve.imbalance:.2f}", "{:.3f} {:.3f}".format(*ratios[name])]
        lines.append(cells)
        shown.append((len(rows), ratios))
        say(f"change {step}: {' | '.join(cells)}; anew in {seconds:.0f} s; so far {asdict(work)}")
    head = ["change", "documents", "leaves anew", "cost", "R@100, 10 nearest"]
    head += [part for name in roots for part in (f"leaves {name}", "imbalance", "of anew")]
    print("\n" + "\n".join(table(head, lines)))
    sizes, times = np.array(anew_seconds).T
    total = float(np.interp([stream.ends[step] for step in range(1, CHANGES + 1)], sizes, times).sum())
    text = (
        f"Maintenance: {work.seconds:.0f} s for {CHANGES} changes, {work.documents:,} documents moved, and "
        f"{work.compactions} compactions in {work.compacting:.0f} s; made anew {CHANGES} times: about {total:,.0f} s."
    )
    print(f"\n{text}")
    shrinks = shrunk(stream, states["maintained"], built)
    print("\n" + "\n".join(table(["deleted half", "leaves", "cost of anew's R@100", "of anew's cost"], shrinks)))
    Figures(text, head, lines).write(options.workdir, "growth")
    draw(shown, options.figure)


def shrunk(stream: Stream, there: LeafMap, built: LearnedIvfRouter) -> list[list[str]]:
    """Delete half of the documents, the last topics, and maintain; rows of the table."""
    kept = np.sort(stream.order[: len(stream.order) // 2])
    gone = stream.order[len(stream.order) // 2 :]
    deleted = change.delete(there.root, stream.ids[gone].tolist())
    judge = Judge(stream, kept)
    router, leaf_NR, _ = stream.anew(kept)
    anew = judge.curve(router, leaf_NR)
    recall = anew.at(anew.usual)[0]
    lines = [["made anew", f"{anew.leaves:,}", f"{anew.usual:.2%}", "1.00"]]
    work = Work()
    for name, state in (("as it is", deleted), ("maintained", maintained(stream, deleted, built, work))):
        curve = judge.curve(router_of(state, built), placed(state, judge.ids))
        lines.append(
            [name, f"{curve.leaves:,}", f"{curve.cost_of(recall):.2%}", f"{curve.cost_of(recall) / anew.usual:.2f}"]
        )
    return lines


def draw(shown: list[tuple[int, dict[str, Any]]], path: Path) -> None:
    """Recall as a part of that of an index made anew, against documents."""
    with plot(path, 1, (6, 4)) as (axes,):
        for name in shown[0][1]:
            for part, kind, style in ((0, "R@100", "o-"), (1, "10 nearest", "s--")):
                axes.plot(
                    [n for n, _ in shown], [ratios[name][part] for _, ratios in shown], style, label=f"{name}, {kind}"
                )
        axes.axhline(1, color="gray", linewidth=0.8)
        axes.set(xlabel="documents", ylabel="of an index made anew, at its cost")
        axes.legend()


if __name__ == "__main__":
    main()
