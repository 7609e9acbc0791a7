"""Turn a spec into ordered steps, with inputs, places and sizes. Refuses missing inputs, and jobs beyond disk space."""

import contextlib
import hashlib
import importlib.util
import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rayhier.job.hours import Work
from rayhier.job.memory import drawn_rows
from rayhier.job.stages import STAGES
from rayhier.job.upgraded import RELEASE, Upgraded
from rayhier.spec import InputError, JobSpec
from rayhier.spec.cluster import TrainWorkers, Workers
from rayhier.spec.corpus import passages_of
from rayhier.spec.cross_encoder import CHOSEN_DEPTH
from rayhier.spec.index import BYTES
from rayhier.spec.search import FUSED, MOST_QUERIES
from rayhier.spec.train.pseudo_queries import SPANS
from rayhier.storage import cross_encoder_folder, current, model_folder, pair_source, source, workdir
from rayhier.storage.artifact import RECORD, Artifact, Kind, Place
from rayhier.storage.cross_encoder_folder import CrossEncoderFolder
from rayhier.storage.model_folder import ModelFolder, matrices
from rayhier.storage.model_layout import read_layout
from rayhier.storage.pair_source import PairSource
from rayhier.storage.paths import Location
from rayhier.storage.remote import Remote
from rayhier.storage.source import Source

HOLDS: dict[str, Kind] = {"dev": "corpus", "test": "test"}
"""Split that may be evaluated -> kind of the artifact that has its queries and judgements."""
PREFIXES = ("query_prefix", "document_prefix")
PATHS = ("path", "documents", "queries", "judgements")
"""Fields with the place of a corpus. Fingerprints leave out these fields and cover the content."""
ASSUMED_DOCUMENTS, ASSUMED_TEST = 5_000, 500
"""Numbers of documents and test queries that a plan assumes if only reading the source can count these."""
BYTES_A_DOCUMENT = 1_500
BYTES_A_QUERY = 50
BYTES_A_PAIR = 20
BYTES_A_POSITION = 4
COUNTED = 0.3
"""Bytes of a document's postings, as a share of the bytes of the text."""
BYTES_A_SCORE = 12
"""Bytes of a scored pair. Repeated ids are stored once."""
REPORT_BYTES = 10_000_000


@dataclass(frozen=True)
class Step:
    stage: str
    kind: Kind
    place: Place
    inputs: dict[str, str]
    """Kind of each input (for evaluate: kind.seed) -> its fingerprint."""
    resources: str
    bytes: int
    seed: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """What the fingerprint covers besides kind, inputs and seed: the stage's code and parts of the spec."""

    @property
    def fingerprint(self) -> str:
        """Hash of everything that the artifact depends on. The artifact's folder has this name."""
        return self.place.folder.name

    @property
    def is_published(self) -> bool:
        return _is_published(self.place)

    @property
    def title(self) -> str:
        return self.stage if self.seed is None else f"{self.stage} seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    spec: JobSpec
    workdir: Location
    source: Source
    model: ModelFolder
    """The encoder of documents. Training starts from this encoder."""
    query_model: ModelFolder | None = None
    pairs: PairSource | None = None
    cross_encoder: CrossEncoderFolder | None = None
    steps: list[Step] = field(default_factory=list)

    def step(self, kind: Kind, seed: int | None = None) -> Step:
        """Find the step that makes a kind of artifact. `seed` is needed if the kind is made once per seed."""
        return next(step for step in self.steps if step.kind == kind and step.seed == seed)

    def earlier(self, step: Step) -> Artifact | None:
        """Find the newest undamaged artifact with the step's settings, but other, undamaged inputs, or None."""
        folders = [folder for folder in (self.workdir / step.kind).glob("*") if (folder / RECORD).is_file()]
        for folder in sorted(folders, key=lambda folder: (folder / RECORD).stat().st_mtime, reverse=True):
            with contextlib.suppress(InputError):  # damaged, or of another format
                old = Artifact.open(folder)
                made = fingerprint(kind=step.kind, inputs=old.record.inputs, seed=step.seed, **step.settings)
                if made == folder.name:
                    for each in (old, *old.made_from().values()):
                        each.verify()
                    return old
        return None

    def made_of(self, to_make: Sequence[Step]) -> list[Step]:
        """List published steps that depend on a model in `to_make`, and are not in `to_make` themselves."""
        gone = {step.fingerprint for step in to_make if step.stage == "train"}
        steps: list[Step] = []
        for step in self.steps:
            if step not in to_make and step.is_published and gone & set(step.inputs.values()):
                gone.add(step.fingerprint)
                steps.append(step)
        return steps

    @cached_property
    def work(self) -> Work:
        return _work(self)

    @property
    def report(self) -> Artifact | None:
        """The published evaluation. None if it is not published or the corpus has no judgements."""
        return self.step("evaluate").place.published() if self.evaluates else None

    @property
    def left_out(self) -> dict[str, str]:
        """Stages that the spec leaves out -> the key that the spec lacks."""
        lacking = {} if self.pairs is not None else {"generate": "train.generated"}
        if not self.spec.calibrates:
            lacking["calibrate"] = (
                "`search.hybrid.weight`, `cross_encoder.beside`, `encoder.precision` or `search.beam` auto, or a recall"
            )
        return lacking

    @property
    def evaluates(self) -> bool:
        """Return True if the corpus has judgements, or may have some, which is unknown until it is read."""
        return self.spec.corpus.names_judgements


def make_plan(spec: JobSpec, fresh: Collection[str] = ()) -> Plan:
    """Check corpus, model and workdir and plan the steps. Stages in `fresh` are not taken from an upgraded workdir.

    InputError if an input is missing or the disk has no room for the job.
    """
    place = workdir.find(spec.workdir)
    is_built = current.check_format(place)
    described = source.describe(spec.corpus)
    generation = spec.train.generation
    if spec.train.objective in ("supervised", "joint") and "train" not in described.judged and generation is None:
        raise InputError(
            f"train.objective: got {spec.train.objective!r}, but the corpus has no train judgements; "
            "allowed: 'documents', 'auto', or a corpus with judgements such as qrels/train.tsv"
        )
    judged = described.judged | ({"dev"} if "train" in described.judged else set())
    if spec.corpus.names_judgements and spec.evaluate.split not in judged:
        allowed = ", ".join(sorted(judged - {"train"})) or "a corpus with judgements of dev or test"
        raise InputError(
            f"evaluate.split: got {spec.evaluate.split!r}, but the corpus has no such judgements; allowed: {allowed}"
        )
    if "scann" in spec.evaluate.baselines and importlib.util.find_spec("scann") is None:
        raise InputError(
            "evaluate.baselines: got 'scann', which is not installed; "
            "allowed: the other baselines, or scann after pip install 'rayhier[scann]' (Linux)"
        )
    if described.documents is not None and passages_of(spec.corpus) is None:
        spec.check_leaves(described.documents)
    pairs = None if generation is None else pair_source.describe(generation)
    reads = None if spec.cross_encoder is None else cross_encoder_folder.describe(spec.cross_encoder)
    models = model_folder.open_model(spec.encoder), model_folder.open_query_model(spec.encoder)
    plan = Plan(spec, place, described, *models, pairs, reads)
    before = current.kept(place, RELEASE) if is_built else None
    plan.steps.extend(_Steps(plan, None if before is None else Upgraded(spec, before), fresh).all())
    _check_space(plan)
    return plan


class _Steps:
    """Build the steps of a plan. The hash of a step's settings and its inputs' fingerprints names its folder."""

    def __init__(self, plan: Plan, upgraded: Upgraded | None = None, fresh: Collection[str] = ()) -> None:
        self.plan, self.spec, self.work = plan, plan.spec, plan.work
        self.upgraded, self.fresh = upgraded, fresh
        self.leaves: list[object] = [plan.spec.leaves_per_document]

    def all(self) -> list[Step]:
        """List all steps in order. Generated pairs come before vectors, and a calibration after each index."""
        corpus = self._corpus()
        generated = [] if self.plan.pairs is None else [self._generated(corpus, self.plan.pairs)]
        written = {str(step.kind): step.fingerprint for step in generated}
        vectors = self._vectors({"corpus": corpus.fingerprint, **written})
        base = {"corpus": corpus.fingerprint, "vectors": vectors.fingerprint}
        read, test = self._reading(base), self._test(base)
        scored, learned = {str(step.kind): step.fingerprint for step in read}, dict[str, str]()
        steps, measured = [corpus, *generated, vectors, *([test] if self.plan.evaluates else []), *read], dict(base)
        if self.spec.evaluate.split == "test":
            measured["test"] = test.fingerprint
        for seed in self.spec.evaluate.seeds:
            model = self._model({**base, **written}, seed)
            index = self._index({**base, "model": model.fingerprint}, seed)
            steps += [model, index]
            measured |= {f"model.{seed}": model.fingerprint, f"index.{seed}": index.fingerprint}
            if self.spec.factors is not None:
                inputs = {**base, **scored, "model": model.fingerprint, "index": index.fingerprint}
                steps.append(factors := self._factors(inputs, seed))
                learned[f"factors.{seed}"] = factors.fingerprint
            if self.spec.calibrates:
                inputs = {**base, "model": model.fingerprint, "index": index.fingerprint}
                if self.spec.chooses_beside:
                    inputs["cross_encoder"] = scored["cross_encoder"]
                steps.append(calibration := self._calibration(inputs, seed))
                measured[f"calibration.{seed}"] = calibration.fingerprint
        if self.spec.search.reranking is not None:
            measured |= scored | learned
        return [*steps, self._evaluation(measured)] if self.plan.evaluates else steps

    def _corpus(self) -> Step:
        source = self.plan.source
        size = source.bytes or self.work.documents * BYTES_A_DOCUMENT
        unset = ("query_columns",) if getattr(self.spec.corpus, "query_columns", None) is None else ()
        return self._step("corpus", {}, size, source=source.identity, corpus=_fields(self.spec.corpus, *PATHS, *unset))

    def _generated(self, corpus: Step, pairs: PairSource) -> Step:
        return self._step(
            "generate",
            {"corpus": corpus.fingerprint},
            round(self.work.generated * (self.work.query_bytes + BYTES_A_PAIR)),
            generation={"type": "file"},
            source=pairs.identity,
        )

    def _vectors(self, inputs: dict[str, str]) -> Step:
        work = self.work
        encoded = work.documents + work.queries + work.generated + drawn_rows(self.spec, work)
        draws = self.spec.train.draws
        parts: dict[str, Any] = {} if draws is None else {"draws": _fields(draws) | {"spans": SPANS}}
        prefixes = read_layout(self.plan.model.path).prefixes(self.spec.encoder)
        parts |= {"prefixes": prefixes} if any(prefixes.values()) else {}
        return self._step(
            "embed",
            inputs,
            encoded * self.work.dimension * 4,
            encoder=_fields(self.spec.encoder, "model", "documents", "sha256", "train", "adopt", *PREFIXES),
            weights=self.plan.model.files,
            **parts,
        )

    def _test(self, base: dict[str, str]) -> Step:
        columns = _fields(self.spec.corpus, *PATHS, "fields", "passages")
        size = self.work.measured * (self.work.dimension * 4 + BYTES_A_QUERY)
        return self._step("test", base, size, source=self.plan.source.test_identity, corpus=columns)

    def _reading(self, base: dict[str, str]) -> list[Step]:
        spec, folder = self.spec, self.plan.cross_encoder
        if spec.cross_encoder is None or folder is None:
            return []
        training, kept = spec.cross_encoder.train, spec.scores.judged if spec.scores else 0
        step = self._step(
            "cross_encoder",
            base,
            sum(file.stat().st_size for file in folder.path.iterdir() if file.is_file()),
            weights=folder.files,
            cross_encoder=_fields(spec.cross_encoder, "model", "sha256", "beside"),
            kept=kept if training is not None else 0,
        )
        if spec.scores is None:
            return [step]
        size = spec.scores.pairs(self.work.documents) * BYTES_A_SCORE
        inputs = {**base, "cross_encoder": step.fingerprint}
        return [step, self._step("scores", inputs, size, scores=_fields(spec.scores, "factors"))]

    def _factors(self, inputs: dict[str, str], seed: int) -> Step:
        size = self.work.documents * (self.work.dimension * 4 + BYTES_A_SCORE)
        return self._step("factors", inputs, size, seed, factors=self.spec.factors)

    def _model(self, base: dict[str, str], seed: int) -> Step:
        spec = self.spec
        return self._step(
            "train",
            base,
            sum(file.stat().st_size for file in self.plan.model.path.iterdir() if file.is_file()),
            seed,
            router=_fields(spec.router),
            train=_fields(spec.train, "generated"),
            leaves=self.leaves if spec.router.spills else [],
            what=spec.encoder.train,
            adopt=[spec.encoder.adopt, spec.adopts_by_words],
            similarity=spec.encoder.similarity,
            **({} if self.plan.query_model is None else {"queries": self.plan.query_model.files}),
        )

    def _index(self, inputs: dict[str, str], seed: int) -> Step:
        spec, work = self.spec, self.work
        row = work.dimension * BYTES[spec.index.vectors] + work.document_bytes
        return self._step(
            "index",
            inputs,
            round(work.documents * row * spec.rows_per_document + beside_rows(spec, work)),
            seed,
            index=_fields(spec.index, "leaves_per_document"),
            leaves=self.leaves,
        )

    def _calibration(self, inputs: dict[str, str], seed: int) -> Step:
        search, most = self.spec.search, min(self.work.queries, MOST_QUERIES)
        parts, size = dict[str, object](), BYTES_A_QUERY
        if self.spec.chooses_beam:
            parts, size = {"k": search.k}, most * search.k * BYTES_A_POSITION
        if self.spec.chooses_weight:
            parts["depth"] = FUSED
        if self.spec.chooses_beside:
            rerank = search.reranking
            beam = {"beam": "auto"} if self.spec.chooses_beam else {}
            parts |= {"searched": _fields(search, "rerank") | beam}
            parts["read"] = [] if rerank is None else [min(CHOSEN_DEPTH, rerank.budget), rerank.pool == "all"]
        if self.spec.chooses_precision:
            parts["precision"] = "auto"
        return self._step("calibrate", inputs, size, seed, **parts)

    def _evaluation(self, measured: dict[str, str]) -> Step:
        unfiltered = ("filter",) if self.spec.measured is None else ()
        evaluate = _fields(self.spec.evaluate, *unfiltered)
        search = _fields(self.spec.search)
        reads = self.spec.cross_encoder if self.spec.search.reranking is not None else None
        beside: dict[str, Any] = {} if reads is None else {"beside": reads.beside}
        return self._step("evaluate", measured, REPORT_BYTES, evaluate=evaluate, search=search, **beside)

    def _step(self, stage: str, inputs: dict[str, str], size: int, seed: int | None = None, **parts: object) -> Step:
        kind = STAGES[stage].kind

        def place_of(**depends: object) -> Place:
            return Place(self.plan.workdir / kind / fingerprint(kind=kind, inputs=inputs, seed=seed, **depends))

        place = place_of(**(settings := {"code": STAGES[stage].code, **parts}))
        if self.upgraded is not None and stage not in self.fresh and not _is_published(place):
            older = self.upgraded.parts(stage, parts)
            if older is not None and _is_published(before := place_of(**older)):
                place = before
        return Step(stage, kind, place, inputs, self._resources(stage), size, seed, settings)

    def _resources(self, stage: str) -> str:
        return "this process" if stage == "generate" else _resources(getattr(self.spec.cluster, STAGES[stage].workers))


def _is_published(place: Place) -> bool:
    try:
        return place.published() is not None
    except InputError:
        return False


def beside_rows(spec: JobSpec, work: Work) -> float:
    """Return the bytes of an index that do not grow if documents lie in two leaves."""
    words = work.document_bytes * COUNTED if spec.index.words else 0
    return work.documents * (spec.router.sidecar_bytes + words)


def _work(plan: Plan) -> Work:
    source, passages = plan.source, passages_of(plan.spec.corpus)
    documents = source.rows or ASSUMED_DOCUMENTS
    text = source.document_bytes * (passages.words / passages.stride if passages else 1)
    queries = source.queries if source.documents else documents
    train, split = (source.judgements.get(name, 0) for name in ("train", plan.spec.evaluate.split))
    unread = documents if source.documents is None else 0
    generated = 0 if plan.pairs is None else plan.pairs.lines
    return Work(
        documents=documents,
        document_bytes=text / documents or BYTES_A_DOCUMENT,
        queries=queries,
        query_bytes=source.query_bytes / queries if source.query_bytes else BYTES_A_QUERY,
        pairs=0 if plan.spec.train.objective == "documents" else (train or unread) + generated,
        measured=split or min(documents, ASSUMED_TEST),
        parameters=matrices(read_layout(plan.model.path).transformer),
        dimension=plan.model.dimension,
        generated=generated,
        reader=0 if plan.cross_encoder is None else matrices(plan.cross_encoder.path),
    )


def _resources(workers: Workers | TrainWorkers) -> str:
    gpus = f", {workers.gpus:g} GPU" if workers.gpus else ""
    return f"{workers.workers} x {workers.cpus} CPU{gpus}"


def fingerprint(**parts: object) -> str:
    """Hash all that a stage's result depends on, named JSON values in any order, to 12 hex digits."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _fields(section: Any, *without: str) -> dict[str, Any]:
    values: dict[str, Any] = section.model_dump(mode="json", exclude=set(without))
    return values


def _check_space(plan: Plan) -> None:
    if isinstance(plan.workdir, Remote):
        return  # a bucket has no size limit
    parent = plan.workdir
    while not parent.exists():
        parent = parent.parent
    needed = sum(step.bytes for step in plan.steps if not step.is_published)
    free = shutil.disk_usage(parent).free
    if needed > free:
        raise InputError(f"workdir: {parent} has {size_of(free)} free, but this plan writes about {size_of(needed)}")


def size_of(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
