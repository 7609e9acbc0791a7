"""Carrying: what a run brings from the index that is served into the one that it publishes.

Changes of documents are carried always, so that nothing that was written is lost; vectors where `rayhier run --carry`
says so, so that a model whose transformer trained is served before all documents are encoded.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from rayhier.plan import Plan, Step
from rayhier.progress import here, say
from rayhier.spec import InputError, JobSpec
from rayhier.storage import current, writer_lease
from rayhier.storage.artifact import Artifact, Kind, Place
from rayhier.storage.attempt import Attempt
from rayhier.storage.change_log import ChangeLog
from rayhier.storage.current import Current
from rayhier.storage.fingerprint import fingerprint
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.pins import reading


@dataclass(frozen=True)
class Served:
    """The index that current.json names, and all that it names."""

    now: Current
    index: Artifact


def check(spec: JobSpec) -> None:
    """Raise InputError where a carried index cannot do what a spec wants of it."""
    if spec.encodes_again and (spec.search.recall is not None or spec.search.reranking is not None):
        raise InputError("--carry: got a spec whose beam names a recall, or that re-ranks, which needs a built index")


def served(plan: Plan, step: Step) -> Served | None:
    """Return the index from which that of a step may be carried; None where there is none.

    None too where no text would be encoded again, as the index is then built as fast.
    """
    if step.stage != "index" or step.seed != plan.spec.evaluate.seeds[0] or not plan.spec.encodes_again:
        return None
    try:
        named = current.read(plan.workdir)
    except InputError:
        return None
    index = Place(plan.workdir / "index" / named.artifacts["index"]).published()
    return None if index is None else Served(named, index)


def carry_index(plan: Plan, step: Step, before: Served, make_current: Callable[[Artifact], None]) -> Artifact:
    """Carry an index from the served one, let current.json name it by `make_current`, and measure both; returns it."""
    if before.now.artifacts["model"] == step.inputs["model"]:
        return before.index  # by an earlier run
    from rayhier.index.embed_carried import DevQueries, Report
    from rayhier.index.ray import build_carried

    began = time.monotonic()
    corpus, vectors, model = (plan.step(kind, seed).place.published() for kind, seed in _inputs(step))
    if corpus is None or vectors is None or model is None:
        raise AssertionError("earlier steps were made")
    older = before.index.record.fingerprint
    made = fingerprint(kind="carried", index=step.fingerprint, before=older)
    place, inputs = Place(step.place.folder.parent / made), {**step.inputs, "before": older}
    say(f"{step.title}: carried, {here(place.folder)}")
    with reading(before.index.root) as leaf_map, Attempt.start(place) as attempt:
        output = build_carried(plan.spec, corpus, vectors, model, leaf_map, attempt)
        artifact = place.published() or attempt.publish("index", inputs, output)
    make_current(artifact)
    counts = artifact.record.counts
    left, seconds = int(counts["carried"]), time.monotonic() - began
    told = f"by a map ({counts['map']}) of cosine {counts['cosine']:.3f} to the true vectors"
    say(f"{left:,} of {counts['documents']:,} vectors carried {told}; serving can begin after {seconds:.1f} s")
    queries = DevQueries.of(corpus, vectors)
    about = {"before": before.now.artifacts, "index": made, "map": counts["map"], "cosine": counts["cosine"]}
    report = Report(artifact, {**about, "documents": counts["documents"], "carried": left})
    say(report.add("before", 0.0, 0, queries.measured(plan.workdir, before.now)))
    say(report.add("carried", seconds, left, queries.measured(plan.workdir, current.read(plan.workdir))))
    return artifact


def _inputs(step: Step) -> list[tuple[Kind, int | None]]:
    """List kinds and seeds of the artifacts from which an index is made."""
    return [("corpus", None), ("vectors", None), ("model", step.seed)]


def carry_changes(plan: Plan, spec: JobSpec, artifacts: dict[str, str]) -> str | None:
    """Carry changes of the index that current.json names into this run's; returns that index's fingerprint.

    Where current.json names this run's index already, the one before it, carried again where it was written to since;
    None where there was none. Where nobody wrote to the index that it names, but a server to the one before that, this
    goes on, and is carried and returned too.
    """
    try:
        named = current.read(plan.workdir)
    except InputError:  # missing, damaged, or of an older version: there is nothing to carry
        return None
    before, index = (Place(plan.workdir / "index" / kind["index"]) for kind in (named.artifacts, artifacts))
    first = None if named.before is None else Place(plan.workdir / "index" / named.before).published()
    old, new = first if before == index else before.published(), index.published()
    if before == index and (old is None or new is None or not _goes_on(old, new)):
        return named.before
    if old is None or new is None:
        return None
    from rayhier.index import carry_changes as index_changes
    from rayhier.search.model import Model

    model = Model.of_workdir(plan.workdir, current.Current(spec=spec, artifacts=artifacts))
    is_written = first is not None and writer_lease.newest(first.root) and not writer_lease.newest(old.root)
    earlier = [old, first] if first is not None and is_written and first.root not in (old.root, new.root) else [old]
    for artifact in earlier:
        if artifact is first and not _goes_on(artifact, new):
            continue
        carried = index_changes.carry_changes(artifact, new, model)
        if carried is not None:
            told = f"{carried.written:,} documents written, {carried.removed:,} removed"
            say(f"carried the changes of index {artifact.record.fingerprint}: {told}")
    return earlier[-1].record.fingerprint


def _goes_on(before: Artifact, index: Artifact) -> bool:
    """Return True where an index was written to after the changes that another has of it."""
    taken = ChangeLog(index.root).last(LeafMap.open(index.root).manifest.log)
    return max(ChangeLog(before.root).last(), LeafMap.open(before.root).manifest.log) > taken
