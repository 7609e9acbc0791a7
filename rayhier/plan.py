"""A spec -> the ordered steps that carry it out: what each depends on, where its result lives, how large it gets.

Everything here is known before a cluster is touched; what is missing or cannot fit is refused here.
"""

import importlib.util
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayhier.spec import InputError, JobSpec
from rayhier.spec.cluster import TrainWorkers, Workers
from rayhier.storage import model_folder, paths, source
from rayhier.storage.artifact import Kind, Place
from rayhier.storage.fingerprint import fingerprint
from rayhier.storage.model_folder import ModelFolder
from rayhier.storage.paths import Location
from rayhier.storage.remote import Remote
from rayhier.storage.source import Source

STAGES = ("corpus", "embed", "train", "index", "evaluate")
CODE = {"corpus": 1, "embed": 1, "train": 1, "index": 1, "evaluate": 2}
"""Raised when a stage's code changes what it makes of the same input."""
ASSUMED_DOCUMENTS = 5_000
"""Where only reading the source tells."""
BYTES_A_DOCUMENT = 1_500
REPORT_BYTES = 10_000_000


@dataclass(frozen=True)
class Step:
    """One artifact to make."""

    stage: str
    kind: Kind
    place: Place
    inputs: dict[str, str]
    """Kind (with the seed, for evaluate) -> fingerprint."""
    resources: str
    bytes: int
    """Expected size of the artifact."""
    seed: int | None = None

    @property
    def fingerprint(self) -> str:
        """Of everything the artifact depends on."""
        return self.place.folder.name

    @property
    def is_published(self) -> bool:
        """Whether there is a record that can be read."""
        try:
            return self.place.published() is not None
        except InputError:
            return False

    @property
    def title(self) -> str:
        """The stage, and the seed where there is one."""
        return self.stage if self.seed is None else f"{self.stage} seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """The steps of a job, in order."""

    spec: JobSpec
    workdir: Location
    source: Source
    model: ModelFolder
    steps: list[Step] = field(default_factory=list)

    def step(self, kind: Kind, seed: int | None = None) -> Step:
        """The step that makes a kind of artifact."""
        return next(step for step in self.steps if step.kind == kind and step.seed == seed)


def make_plan(spec: JobSpec) -> Plan:
    """Look at corpus, model and workdir; InputError where one is missing or what is asked cannot fit."""
    workdir = _workdir(spec)
    found = source.describe(spec.corpus)
    if spec.train.objective == "supervised" and "train" not in found.judged:
        raise InputError(NO_JUDGEMENTS)
    if spec.evaluate.split not in found.judged and not (spec.evaluate.split == "dev" and "train" in found.judged):
        raise InputError(_no_split(spec, sorted(found.judged)))
    if "scann" in spec.evaluate.baselines and importlib.util.find_spec("scann") is None:
        raise InputError(NO_SCANN)
    if found.documents is not None:
        spec.check_leaves(found.documents)
    plan = Plan(spec, workdir, found, model_folder.open_model(spec.encoder))
    plan.steps.extend(_steps(plan))
    _check_space(plan)
    return plan


NO_JUDGEMENTS = (
    "train.objective: got 'supervised', but the corpus has no train judgements; "
    "allowed: 'documents' or 'auto', or a qrels/train.tsv that names its queries and documents"
)


NO_SCANN = (
    "evaluate.baselines: got 'scann', which is not installed; "
    "allowed: the others, or all after pip install 'rayhier[scann]' (Linux)"
)


def _no_split(spec: JobSpec, judged: list[str]) -> str:
    return (
        f"evaluate.split: got {spec.evaluate.split!r}, but the corpus has no such judgements; "
        f"allowed: {', '.join(judged) or 'none of dev, test: a corpus with judgements is needed'}"
    )


def _steps(plan: Plan) -> list[Step]:
    spec, m = plan.spec, plan.model.dimension
    documents = plan.source.documents or ASSUMED_DOCUMENTS
    text = plan.source.bytes or documents * BYTES_A_DOCUMENT
    weights = sum(file.stat().st_size for file in plan.model.path.iterdir() if file.is_file())
    cluster = spec.cluster

    def step(
        stage: str, kind: Kind, inputs: dict[str, str], size: int, seed: int | None = None, **parts: object
    ) -> Step:
        made = fingerprint(code=CODE[stage], kind=kind, inputs=inputs, seed=seed, **parts)
        workers = getattr(cluster, stage, None)
        resources = _resources(workers) if workers else "this process"
        return Step(stage, kind, Place(plan.workdir / kind / made), inputs, resources, size, seed)

    corpus = step("corpus", "corpus", {}, text, source=plan.source.identity, corpus=_fields(spec.corpus, "path"))
    vectors = step(
        "embed",
        "vectors",
        {"corpus": corpus.fingerprint},
        documents * m * 4,
        encoder=_fields(spec.encoder, "model", "sha256", "train", "batch_size"),
        weights=plan.model.sha256,
    )
    base = {"corpus": corpus.fingerprint, "vectors": vectors.fingerprint}
    steps = [corpus, vectors]
    measured = dict(base)
    for seed in spec.evaluate.seeds:
        model = step(
            "train",
            "model",
            base,
            weights,
            seed,
            router=_fields(spec.router),
            train=_fields(spec.train, "micro_batch"),
            what=spec.encoder.train,
        )
        row = m * (2 if spec.index.vectors == "float16" else 4)
        index = step(
            "index",
            "index",
            {**base, "model": model.fingerprint},
            documents * row + text,
            seed,
            index=_fields(spec.index),
        )
        steps += [model, index]
        measured |= {f"model.{seed}": model.fingerprint, f"index.{seed}": index.fingerprint}
    search = _fields(spec.search)
    return [
        *steps,
        step("evaluate", "evaluate", measured, REPORT_BYTES, evaluate=_fields(spec.evaluate), search=search),
    ]


def _resources(workers: Workers | TrainWorkers) -> str:
    gpus = f", {workers.gpus:g} GPU" if workers.gpus else ""
    return f"{workers.workers} x {workers.cpus} CPU{gpus}"


def _fields(section: Any, *without: str) -> dict[str, Any]:
    values: dict[str, Any] = section.model_dump(mode="json", exclude=set(without))
    return values


def _workdir(spec: JobSpec) -> Location:
    """Where artifacts go; InputError where nothing can be written there, as far as looking tells."""
    if "://" not in spec.workdir:
        local = paths.resolve("workdir", spec.workdir)
        _check_writable(local)
        return local
    place = paths.locate(spec.workdir)
    if isinstance(place, Remote):
        _check_answers(place)
    return place


def _check_answers(place: Remote) -> None:
    try:
        place.reach()
    except OSError as error:
        raise InputError(
            f"workdir: {place} cannot be opened: {error.strerror}; allowed: a bucket that exists and that the "
            "environment's credentials, region and endpoint (AWS_…, GOOGLE_…) let this user list and write"
        ) from None


def _check_writable(workdir: Path) -> None:
    parent = workdir
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise InputError(f"workdir: {parent} is not a folder; allowed: a folder this user can write")
    if not os.access(parent, os.W_OK | os.X_OK) or _read_only(parent):
        raise InputError(f"workdir: {parent} cannot be written; allowed: a folder this user can write")


def _read_only(folder: Path) -> bool:
    """Whether the file system refuses writes even to those the permissions would let."""
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY) or folder.is_relative_to("/proc")


def _check_space(plan: Plan) -> None:
    if isinstance(plan.workdir, Remote):
        return  # a bucket has no end
    parent = plan.workdir
    while not parent.exists():
        parent = parent.parent
    needed = sum(step.bytes for step in plan.steps if not step.is_published)
    free = shutil.disk_usage(parent).free
    if needed > free:
        raise InputError(f"workdir: {parent} has {_size(free)} free; this plan writes about {_size(needed)}")


def show(plan: Plan) -> str:
    """The plan for people: steps, places, sizes, resources."""
    known = plan.source.documents
    documents = known or ASSUMED_DOCUMENTS
    about = f"{documents:,}" if known else f"about {documents:,}"
    lines = [
        f"{plan.spec.name}: {about} documents, {plan.spec.router.leaves(documents):,} leaves, workdir {plan.workdir}",
        f"encoder {plan.model.path} ({plan.model.dimension} dimensions, SHA-256 {plan.model.sha256[:12]}…)",
    ]
    for step in plan.steps:
        state = "published" if step.is_published else "to do"
        place = f"{step.kind}/{step.fingerprint}"
        lines.append(f"  {step.title:<16} {place:<24} about {_size(step.bytes):>9}  {step.resources:<12}  {state}")
    return "\n".join(lines)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
