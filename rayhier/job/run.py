"""Run the steps of a plan. Each step makes an artifact. current.json names the artifacts when searches can use them."""

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rayhier import track
from rayhier.corpus import requirements
from rayhier.executor import Executor
from rayhier.executor.here import Here, within_cores
from rayhier.extras import needs
from rayhier.job import rates
from rayhier.job.choice import Choice, choose
from rayhier.job.hours import stage_cost
from rayhier.job.outline import NOT_EVALUATED, is_here, told
from rayhier.job.plan import HOLDS, Plan, Step
from rayhier.job.stages import STAGES
from rayhier.progress import StageProgress, counted, here, log, say
from rayhier.spec import InputError, JobSpec
from rayhier.storage import current, files, leaf_map, workdir, writer_lease
from rayhier.storage.artifact import Artifact, Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.change_log import ChangeLog
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.writer_lease import refuse_while_written
from rayhier.threads import threads


def run(plan: Plan, stages: Collection[str] = tuple(STAGES), *, fresh: bool = False) -> dict[str, Any]:
    """Make every artifact of the named stages that is not published. Returns a summary, as JSON values.

    With `fresh`, the artifacts of these stages, and all that depend on a model among them, are removed and made again.
    The summary has name, workdir, steps and seconds. InputError before any step runs if an input is missing, a
    published file was changed, or the cluster is too small.
    """
    began = time.monotonic()
    executor = _prepare(plan, stages, fresh=fresh)
    summary: list[dict[str, Any]] = []
    with _watched(executor, plan.spec):
        for step in plan.steps:
            if step.stage not in stages:
                continue
            published = step.place.published()
            state = "published" if published else "built"
            artifact = published or _make(executor, plan, step, fresh=fresh)
            took = "published" if published else f"{artifact.record.seconds:.1f} s"
            say(f"{step.title:<16} {took:>10}  {told(artifact.record.counts, plan.spec)}")
            summary.append({"stage": step.stage, "seed": step.seed, "fingerprint": step.fingerprint, "state": state})
            _make_current(plan)
    _show_report(plan)
    return {
        "name": plan.spec.name,
        "workdir": str(plan.workdir),
        "steps": summary,
        "seconds": round(time.monotonic() - began, 1),
    }


def _prepare(plan: Plan, stages: Collection[str], *, fresh: bool) -> Executor:
    try:
        files.probe(plan.workdir)
    except OSError as error:
        raise InputError(f"workdir: {plan.workdir} cannot be written: {error.strerror}") from None
    to_make = [step for step in plan.steps if step.stage in stages and (fresh or step.place.published() is None)]
    gone = plan.made_of(to_make) if fresh else []
    for step in [*to_make, *gone] if fresh else []:
        if step.kind == "index" and (served := step.place.published()) is not None:
            refuse_while_written(served.root)
    _check_published(plan, to_make)
    choice = choose(plan, to_make) if to_make else Choice(False, "nothing is left to do")
    if to_make:
        track.check(plan.spec)
        say(f"{plan.spec.name} runs {choice}")  # say this before Ray starts, which takes seconds
    executor = open_executor(choice, plan.spec)
    if fresh:
        for step in gone:
            say(f"{step.title}: removed: depends on the model being rebuilt")
        for step in [*to_make, *gone]:
            step.place.remove()
    return executor


def open_executor(choice: Choice, spec: JobSpec) -> Executor:
    """Return the executor. InputError if no cluster answers, or the cluster is too small for the spec."""
    if not choice.on_ray:
        return Here()
    needs("a run on Ray", "ray")
    from rayhier.executor.ray import RayExecutor, check_gpus, check_resources, join

    join(spec)
    check_resources(spec)
    return RayExecutor(check_gpus(spec))


def _watched(executor: Executor, spec: JobSpec) -> contextlib.AbstractContextManager[None]:
    if isinstance(executor, Here):
        return contextlib.nullcontext()
    from rayhier.executor.ray import watched

    return watched(spec)


def _check_published(plan: Plan, to_make: Sequence[Step]) -> None:
    """Check published files. InputError if a file differs from its record, or a step lacks a published input."""
    missing: list[Step] = []
    for step in plan.steps:
        if step in to_make:
            continue
        artifact = step.place.published()
        if artifact is not None:
            if step.kind == "index":
                if any(other.stage in ("calibrate", "evaluate") for other in to_make):
                    leaf_map.check_built(artifact)
                leaf_map.verify(artifact)
            else:
                artifact.verify()
            if step.kind == "corpus":
                requirements.check(plan.spec, artifact.record.counts)
            if step.kind == HOLDS.get(plan.spec.evaluate.split):
                requirements.check_split(plan.spec, artifact.record.counts)
        elif any(step.fingerprint in other.inputs.values() for other in to_make):
            missing.append(step)
    if missing:
        add = " ".join(dict.fromkeys(f"--stage {step.stage}" for step in missing))
        raise InputError(
            f"--stage: {', '.join(dict.fromkeys(step.stage for step in to_make))} needs "
            f"{', '.join(step.title for step in missing)}, not published in {plan.workdir}; allowed: also {add}"
        )


def _make(executor: Executor, plan: Plan, step: Step, *, fresh: bool) -> Artifact:
    log(f"{step.title}: {here(step.place.folder)}")
    with StageProgress(step.title), Attempt.start(step.place) as attempt, _alone(executor):
        output = _build(executor, plan, step, attempt, fresh=fresh)
        workers = getattr(plan.spec.cluster, STAGES[step.stage].workers)
        artifact = attempt.publish(step.kind, step.inputs, replace(output, device=executor.device(workers)))
    if attempt.is_new and is_here(plan.spec) and not output.counts.get("reused"):
        _note_rate(plan, step, artifact.record.seconds, on_ray=not isinstance(executor, Here))
    return artifact


@contextlib.contextmanager
def _alone(executor: Executor) -> Iterator[None]:
    """Let a stage in this process compute on the CPU, as on Ray, and restore threads and random numbers afterwards."""
    if not isinstance(executor, Here):
        yield
        return
    import torch

    from rayhier.model.precision import on_cpu

    with threads(), on_cpu(), torch.random.fork_rng(devices=[]):
        yield


def _note_rate(plan: Plan, step: Step, seconds: float, *, on_ray: bool) -> None:
    corpus = Artifact.open(plan.step("corpus").place.folder)
    work = replace(plan.work, documents=int(corpus.record.counts["rows"]))
    cost = stage_cost(step.stage, plan.spec if on_ray else within_cores(plan.spec), work, on_ray=on_ray)
    rate = cost.measured(seconds)
    if rate is not None:
        rates.note(cost.of, rate)


def _build(executor: Executor, plan: Plan, step: Step, attempt: Attempt, *, fresh: bool) -> Output:
    """Write a step's files. Only this function may import the code of several stages."""
    spec = within_cores(plan.spec) if isinstance(executor, Here) else plan.spec
    opened = {str(other.kind): Artifact.open(other.place.folder) for other in plan.steps if _feeds(other, step)}
    match step.stage:
        case "corpus":
            from rayhier.corpus.stage import build as build_corpus

            return build_corpus(executor, spec, attempt)
        case "generate" if plan.pairs is not None:
            from rayhier.corpus.generated import build as build_pairs

            return build_pairs(plan.pairs.path, opened["corpus"], spec.corpus.limits, attempt)
        case "embed":
            from rayhier.embed.stage import build as build_vectors

            return build_vectors(executor, spec, plan.model, opened, attempt, None if fresh else plan.earlier(step))
        case "test":
            from rayhier.evaluate.stage import build_test

            return build_test(executor, spec, plan.model, opened["corpus"], opened["vectors"], attempt)
        case "cross_encoder" if plan.cross_encoder is not None:
            from rayhier.train.cross_encoder.stage import build as build_cross_encoder

            base = opened["corpus"], opened["vectors"]
            return build_cross_encoder(executor, spec, plan.cross_encoder, *base, attempt)
        case "scores":
            from rayhier.scores.stage import build as build_scores

            read = opened["corpus"], opened["vectors"], opened["cross_encoder"]
            return build_scores(executor, spec, plan.model, *read, attempt)
        case "factors":
            from rayhier.scores.stage import build_factors

            return build_factors(executor, spec, opened["scores"], opened["model"], opened["index"], attempt)
        case "train":
            from rayhier.train.stage import build as build_model

            base = opened["corpus"], opened["vectors"]
            models = plan.model, plan.query_model
            return build_model(executor, spec, step.seed or 0, *models, *base, attempt, opened.get("generated"))
        case "index":
            from rayhier.index.stage import build as build_index

            base = opened["corpus"], opened["vectors"]
            return build_index(executor, spec, *base, opened["model"], attempt)
        case "calibrate":
            from rayhier.evaluate.stage import build_calibration

            built = opened["corpus"], opened["vectors"], opened["model"], opened["index"]
            return build_calibration(executor, spec, *built, attempt, opened.get("cross_encoder"))
        case _:
            from rayhier.evaluate.stage import build as build_report

            made = {(other.kind, other.seed): other.place.folder for other in plan.steps}
            trained = {
                seed: (Artifact.open(made["model", seed]), Artifact.open(made["index", seed]))
                for seed in spec.evaluate.seeds
            }
            kinds = ("calibration", *(("cross_encoder", "scores", "factors") if spec.search.reranking else ()))
            reread: dict[tuple[str, int | None], Artifact] = {
                (kind, seed): Artifact.open(folder) for (kind, seed), folder in made.items() if kind in kinds
            }
            base = opened["corpus"], opened["vectors"]
            return build_report(executor, spec, *base, trained, attempt, reread, opened.get("test"))


def _feeds(other: Step, step: Step) -> bool:
    return other.fingerprint in step.inputs.values() and other.seed in (None, step.seed)


def _make_current(plan: Plan) -> None:
    """Let current.json name this run when every index, and every calibration that searches need, is published.

    Searches need a calibration to re-rank, or if dev queries choose the beam. Searches use the spec in
    current.json, in which automatic mode and weight are settled. The report is copied to the workdir.
    """
    published = [step for step in plan.steps if step.place.published()]
    needs_calibration = plan.spec.chooses_beam or plan.spec.chooses_beside
    needed = ("index", *(["calibration"] if needs_calibration else []))
    if any(step.kind in needed and step not in published for step in plan.steps):
        return
    first = plan.spec.evaluate.seeds[0]
    seeds: dict[str, dict[str, str]] = {}
    for step in published:
        if step.seed not in (None, first):
            seeds.setdefault(str(step.seed), {})[step.kind] = step.fingerprint
    artifacts = {str(step.kind): step.fingerprint for step in published if step.seed in (None, first)}
    settled = plan.spec.settled(_weight(plan, first))
    now = current.Current(
        spec=settled, artifacts=artifacts, seeds=seeds, before=carry_changes(plan, settled, artifacts)
    )
    current.write(plan.workdir, now)
    model = plan.step("model", first).place.published()
    if model is not None:
        workdir.point_at(plan.workdir / "encoder", model.root / "encoder")
    report = plan.report
    if not plan.evaluates:  # an earlier run's report is about another spec
        for name in ("report.md", "report.json"):
            (plan.workdir / name).unlink(missing_ok=True)
    if report is not None:
        from rayhier.evaluate.report import Report

        below = str(report.root).removeprefix(f"{plan.workdir}/")
        _, _, body = report.path("report.md").read_text().partition("\n")
        text = f"# {plan.spec.name}\n" + body.replace("](plots/", f"]({below}/plots/")
        files.replace(plan.workdir / "report.md", text.encode())
        named = Report.read(report.path("report.json")).model_copy(update={"name": plan.spec.name})
        named.write(plan.workdir / "report.json")


def _weight(plan: Plan, seed: int) -> float | None:
    """BM25's weight that was chosen for a seed's model. None if no weight was chosen, or the calibration is missing."""
    calibration = plan.step("calibration", seed).place.published() if plan.spec.chooses_weight else None
    if calibration is None:
        return None
    from rayhier.search.words.fusion_weight import FusionWeight

    chosen = FusionWeight.open(calibration)
    return None if chosen is None else chosen.weight


def _show_report(plan: Plan) -> None:
    report = plan.report
    if report is None:
        if not plan.evaluates:
            print(NOT_EVALUATED)
        return
    from rayhier.evaluate.report import NAME, Report
    from rayhier.evaluate.verdict import verdict

    sentences = verdict(plan.spec, Report.read(report.root / NAME))
    print("\n".join(["", *sentences, f"More: {here(plan.workdir / 'report.md')}", ""]))


def carry_changes(plan: Plan, spec: JobSpec, artifacts: dict[str, str]) -> str | None:
    """Carry changes of the index that current.json names to this run's index. Returns the fingerprint of the former.

    If current.json already names this run's index, or an index without changes, changes of the index before that
    index are carried. None if there is no such index.
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
    from rayhier.search.routing.routes import Model

    model = Model.of_workdir(plan.workdir, current.Current(spec=spec, artifacts=artifacts))
    is_written = first is not None and writer_lease.newest(first.root) and not writer_lease.newest(old.root)
    earlier = [old, first] if first is not None and is_written and first.root not in (old.root, new.root) else [old]
    for artifact in earlier:
        if artifact is first and not _goes_on(artifact, new):
            continue
        carried = index_changes.carry_changes(artifact, new, model)
        if carried is not None:
            told = f"{counted(carried.written, None)} written, {carried.removed:,} removed"
            say(f"carried the changes of index {artifact.record.fingerprint}: {told}")
    return earlier[-1].record.fingerprint


def _goes_on(before: Artifact, index: Artifact) -> bool:
    """Return True if `before` was written to after its changes were carried to `index`."""
    taken = ChangeLog(index.root).last(LeafMap.open(index.root).manifest.log)
    return max(ChangeLog(before.root).last(), LeafMap.open(before.root).manifest.log) > taken
