"""Collections in BEIR's layout: their folders, runs of the shipped spec over them, and the data of their trainings."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from rayhier.arrays import Bools
from rayhier.corpus.python_docs import pairs
from rayhier.corpus.split import assign
from rayhier.dataset.documents import load_documents, load_titled
from rayhier.dataset.queries import Queries, load_split
from rayhier.dataset.spans import Spans, load_spans
from rayhier.embed.precision import as_embedded
from rayhier.job.plan import Plan, make_plan
from rayhier.progress import say
from rayhier.spec import load
from rayhier.spec.corpus import LIMITS
from rayhier.spec.encoder import LearningPart
from rayhier.spec.router import EhiRouting
from rayhier.spec.train import ContrastTraining, EhiTraining, HceTraining
from rayhier.storage.artifact import Artifact, Kind
from rayhier.train.contrast import Contrast
from rayhier.train.data import load_examples
from rayhier.train.dev_measures import ExactMeasure
from rayhier.train.ehi import DevMeasure, Joint
from rayhier.train.examples import Examples
from rayhier.train.phases import dev_and_spans, encoder_phase
from rayhier.train.tower import Tower, build_tower

ROOT = Path(__file__).parents[1]
SPEC = ROOT / "specs" / "scifact.yaml"
"""Names every default, so it is the shipped spec of any collection."""
BUILT = ("corpus", "embed", "train", "index", "calibrate")
"""Stages that an index needs before it can be opened."""
RUNS = ROOT / "runs"
QUALITY = RUNS / "quality"
"""Where the benchmark `quality` keeps vectors, which others read too."""


DOCSTRINGS = {"python_docs": "stdlib", "torch_docs": "purelib"}
"""Collections of docstrings: of Python's standard library, and of torch. The first sentence is a query, the rest its
answer."""


def folder(name: str) -> Path:
    """The folder of a collection: below $RAYHIER_DATA, else data/, else ../shared/data. DOCSTRINGS are written."""
    if name in DOCSTRINGS:
        return docstrings(name)
    places = [Path(os.environ.get("RAYHIER_DATA", ROOT / "data")), ROOT / "data", ROOT.parent / "shared" / "data"]
    for place in places:
        if (place / name / "corpus.jsonl").is_file():
            return place / name
    sys.exit(f"{name}: in none of {', '.join(map(str, places))}; set RAYHIER_DATA to the folder that holds it")


def docstrings(name: str) -> Path:
    """Write the docstrings of installed Python files as a collection, once."""
    made, library = RUNS / "data" / name, Path(sysconfig.get_paths()[DOCSTRINGS[name]])
    if not (made / "qrels" / "test.tsv").is_file():
        found = pairs(library / "torch" if name == "torch_docs" else library, LIMITS)
        splits = assign({query.key: query.text for query in found.queries})
        (made / "qrels").mkdir(parents=True, exist_ok=True)
        for file, entries in (("corpus", found.documents), ("queries", found.queries)):
            shown = ({"_id": entry.key, "title": entry.title, "text": entry.text} for entry in entries)
            (made / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in shown))
        for split in ("train", "dev", "test"):
            pairs_of = zip(found.queries, found.documents, strict=True)
            judged = [f"{query.key}\t{entry.key}\t1" for query, entry in pairs_of if splits[query.key] == split]
            (made / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged, ""]))
    return made


def rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a file of JSON lines."""
    with path.open() as lines:
        return [json.loads(line) for line in lines]


def place(name: str, workdir: Path) -> list[str]:
    """Overrides of the shipped spec that run it on a collection in a workdir."""
    return [f"workdir={workdir.absolute()}", f"corpus.path={folder(name).absolute()}"]


def run(overrides: Sequence[str], *flags: str, stages: Sequence[str] = ()) -> None:
    """Carry out the shipped spec or some stages of it, some of its values overridden, in a process of its own."""
    command = [sys.executable, "-m", "rayhier.run", str(SPEC)]
    command += [part for override in overrides for part in ("--set", override)]
    command += [*(part for stage in stages for part in ("--stage", stage)), *flags]
    say(f"$ python {' '.join(command[1:])}")
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def made(plan: Plan, *kinds: Kind, seed: int | None = None) -> list[Artifact]:
    """Published artifacts of a plan."""
    return [Artifact.open(plan.step(kind, seed).place.folder) for kind in kinds]


HCE = ("train={type: hce, pseudo_queries: {source: titles_and_spans}}",)
"""Override of the shipped spec. With it, titles and spans are embedded too."""


def validated(settings: dict[str, Any]) -> ContrastTraining | HceTraining:
    """A training of the encoder by its settings."""
    kind = ContrastTraining if settings["type"] == "contrast" else HceTraining
    return kind.model_validate(settings)


class Collection:
    """A collection of whole documents under the base encoder, from artifacts that are made where they are missing."""

    def __init__(self, name: str, workdir: Path, more: Sequence[str] = ()) -> None:
        """Make what is missing of a collection's artifacts in a workdir; `more` overrides of the shipped spec."""
        self.name = name
        overrides = [*place(name, workdir), *more]
        run(overrides, stages=("corpus", "embed", "test"))
        plan = make_plan(load(SPEC, overrides))
        self.spec, self.model = plan.spec, plan.model.path
        self.corpus, self.vectors, self.test = made(plan, "corpus", "vectors", "test")
        self.documents = load_documents(self.corpus, self.vectors)
        if self.documents.parents is not None:
            sys.exit(f"{name}: its documents are passages; benchmarks read whole documents")
        self.dev, _ = dev_and_spans(self.corpus, self.vectors, self.documents)
        self.examples = load_examples(self.spec.train, self.corpus, self.vectors, self.documents)

    @cached_property
    def spans(self) -> Spans | None:
        """Pseudo-queries of the documents, where these were embedded."""
        spans = load_spans(self.vectors, self.documents.ids)
        return spans if spans is not None and len(spans) else None

    def queries(self, split: str) -> Queries:
        """The judged queries of a split."""
        return load_split(split, self.corpus, self.vectors, self.test)

    def folds(self, count: int) -> Iterator[tuple[Examples, Bools]]:
        """Train queries in `count` parts: examples without each part, and which queries [q] are the part."""
        vector_QM = self.queries("train").vector_QM
        fold_Q = np.random.default_rng(0).permutation(len(vector_QM)) % count
        query_P, document_P = self.examples.pair_P2.T
        for fold in range(count):
            left, kept_P = np.flatnonzero(fold_Q != fold), fold_Q[query_P] != fold
            pair_P2 = np.stack([np.searchsorted(left, query_P[kept_P]), document_P[kept_P]], axis=1)
            yield Examples(vector_QM[left], self.documents.vector_NM, pair_P2), fold_Q == fold

    def encoder(
        self,
        examples: Examples,
        spec: ContrastTraining | HceTraining,
        seed: int,
        part: LearningPart = "head",
        dev: Queries | None = None,
        spans: Spans | None = None,
    ) -> Contrast:
        """Make the training of an encoder by these examples, and by pseudo-queries if there are `spans`."""
        dev = dev or self.dev
        tower = self.tower(examples, part, dev, spans)
        measure = ExactMeasure(dev, self.documents, examples.answers(self.documents.results))
        titled = partial(load_titled, self.corpus, self.documents.ids)
        return encoder_phase(spec, tower, examples, spans, titled, seed, measure)

    def joint(self, examples: Examples, router: EhiRouting, training: EhiTraining, seed: int) -> Joint:
        """EHI's training of encoder and router at once by these examples, not begun."""
        results = self.documents.results
        measure = DevMeasure(self.dev, results, examples.answers(results))
        return Joint(self.tower(examples, "head", self.dev, None), examples, router, training, seed, measure)

    def tower(self, examples: Examples, part: LearningPart, dev: Queries, spans: Spans | None) -> Tower:
        """A head on the stored vectors, or a part of the transformer, untrained, that learns from these examples."""
        spec = as_embedded(self.spec, self.vectors, 0).encoder.model_copy(update={"train": part})
        return build_tower(spec, self.model, self.corpus, self.documents, examples, dev, spans)
