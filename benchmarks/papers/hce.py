"""Print HCE's tables: trainings by a tree over the documents, compared with contrast and with the untouched encoder.

The tables are those of results/hce.md. Every row is a head on all-MiniLM-L6-v2's vectors. Texts, titles and spans are
embedded once. Exact search then answers the test queries. Intervals are of paired resamples of the queries. Results of
every query are kept, so the test split is read once per row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from benchmarks import cache
from benchmarks.collection import HCE, Collection, validated
from benchmarks.commands import Options, clock
from benchmarks.machine import set_threads
from benchmarks.pages import sections
from benchmarks.statistics import compared, groups
from benchmarks.tables import table
from benchmarks.training import encode, train
from rayhier.arrays import Values
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import new_answers
from rayhier.dataset.spans import span_queries
from rayhier.search.segment.exact import exact
from rayhier.spec.train import ContrastTraining
from rayhier.train.contrast import Contrast
from rayhier.train.examples import Examples

COLLECTIONS = ("scifact", "cranfield", "acl_title2abs", "oewn_examples")
MEASURES = ("nDCG@10", "R@1", "R@5", "R@10", "R@100")
DEPTH = 100
Training = dict[str, Any] | None
"""The `train` of a spec; None: the untouched encoder."""
READ: dict[str, dict[str, Training]] = yaml.safe_load(Path(__file__).with_name("hce.yaml").read_text())
UNTOUCHED, PLAIN = "untouched", "contrast"
SOME = {
    "acl_title2abs": (PLAIN, "S, as shipped", "S, tree grown anew", "J, as shipped"),
    "oewn_examples": (PLAIN, "S, as shipped"),
}
"""Rows trained by judged pairs, by collection: large ones take minutes a row and seed."""


@dataclass(frozen=True)
class Table:
    """Rows that are told from a control, and the measures that are shown."""

    title: str
    rows: Mapping[str, Training]
    control: str
    measures: Sequence[str]


def tables_of(collection: str) -> Iterator[Table]:
    """The tables of a collection."""
    judged, untouched = READ["judged"], {UNTOUCHED: None}
    if collection != "cranfield":
        own = {name: judged[name] for name in SOME.get(collection, judged)}
        measures = {"acl_title2abs": ("R@1", "R@100"), "oewn_examples": ("nDCG@10", "R@1", "R@100")}
        shown = measures.get(collection, ("nDCG@10", "R@100"))
        yield Table("Trained by judged pairs", untouched | own, PLAIN, shown)
    if collection in ("scifact", "cranfield"):
        yield Table("Trained by documents alone", untouched | READ["alone"], UNTOUCHED, ("nDCG@10", "R@100"))
    if collection == "acl_title2abs":
        rows = {PLAIN: judged[PLAIN]} | READ["branchings"]
        yield Table("Branching", rows, PLAIN, ("R@1", "R@5", "R@10", "R@100"))


class Bench:
    """A collection under the base encoder, and what trainings find for its test queries, kept in `workdir`."""

    def __init__(self, name: str, workdir: Path) -> None:
        self.results = workdir.absolute() / "results"
        self.data = Collection(name, workdir, HCE)
        self.ids = pa.array(self.data.documents.ids, pa.string())
        self.test = self.data.queries("test")
        self.new_Q = new_answers(self.test, self.data.examples.answers(self.data.documents.results))

    def values(self, training: Training, seeds: Sequence[int]) -> dict[str, Values]:
        """Each measure of every query [s, q] with each seed, measured now or read from an earlier run."""
        own = [self._values(training, seed) for seed in (seeds if training else seeds[:1])]
        return {measure: np.stack([one[measure] for one in own]) for measure in MEASURES}

    def _values(self, training: Training, seed: int) -> dict[str, Values]:
        settings = None if training is None else validated(training).model_dump(mode="json")
        key = cache.key(settings, "head", "test", seed if training else 0)

        def make() -> dict[str, Values]:
            document_NM, query_QM = self.data.documents.vector_NM, self.test.vector_QM
            if training is not None:
                phase = self._phase(training, seed)
                train(phase, self.results / "trained" / f"{key}.safetensors")
                document_NM, query_QM = phase.documents(), encode(phase.tower.module, query_QM)
            return Judge(self.test, MEASURES).values(exact(query_QM, document_NM, self.ids, self.ids, DEPTH))

        return cache.kept(self.results / f"{key}.npz", make)

    def _phase(self, training: dict[str, Any], seed: int) -> Contrast:
        """Make the training of a row."""
        data, spec = self.data, validated(training)
        if isinstance(spec, ContrastTraining):
            return data.encoder(data.examples, spec, seed)
        examples, dev, spans, documents = data.examples, data.dev, data.spans, data.documents
        if spec.objective == "documents":  # no pairs to learn from; dev queries are those of held-out documents
            none_P2 = np.empty((0, 2), dtype=np.int64)
            examples = Examples(documents.vector_NM, documents.vector_NM, none_P2, same=True)
            dev, spans = span_queries(spans, documents.ids, documents.results) if spans else (dev, None)
        return data.encoder(examples, spec, seed, "head", dev, None if spec.objective == "supervised" else spans)


def lines(bench: Bench, own: Table, seeds: Sequence[int]) -> list[str]:
    """A table of all queries, and one of those with new answers: each measure, and points above the control."""
    report, found = clock(), dict[str, dict[str, Values]]()
    for name, training in own.rows.items():
        found[name] = bench.values(training, seeds)
        report(f"{bench.data.name}: {name}")
    told = f"over {own.control.partition(',')[0]}"
    head, shown = ["", *chain(*((measure, told) for measure in own.measures))], list[str]()
    for group, in_Q in groups(bench.new_Q).items():
        rows = []
        for name, values in found.items():
            control = None if name == own.control else found[own.control]
            cells = (
                compared(values[measure][:, in_Q], None if control is None else control[measure][:, in_Q])
                for measure in own.measures
            )
            rows.append([name, *chain(*cells)])
        shown += [f"**{group}** ({in_Q.sum()} queries, {len(seeds)} seeds)", "", *table(head, rows), ""]
    return shown[:-1]


def main() -> None:
    """Measure, and print the tables of each collection."""
    parser = Options("Compare HCE, contrast and the untouched encoder.", "papers/hce", "seeds")
    parser.add_argument("--collections", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    given = parser.parse_args()
    set_threads(1)
    for name in given.collections:
        bench = Bench(name, given.workdir / name)
        titled = [(own.title, lines(bench, own, range(given.seeds))) for own in tables_of(name)]
        print("\n".join([f"## {name}", *sections(titled, 3), ""]), flush=True)


if __name__ == "__main__":
    main()
