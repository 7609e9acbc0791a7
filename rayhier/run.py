"""`rayhier run SPEC`: load -> check -> plan -> run the steps."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import ModuleType
from typing import Any

from rayhier import carrying, track
from rayhier.command import run_command
from rayhier.corpus import requirements
from rayhier.outline import NOT_EVALUATED, show
from rayhier.plan import HOLDS, STAGES, Plan, Step, make_plan
from rayhier.progress import here, say
from rayhier.spec import InputError, JobSpec, load
from rayhier.storage import current, files, leaf_map, workdir
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.writer_lease import refuse_while_written

CARRIES = ("corpus", "generate", "embed", "train", "index")
"""Stages that `--carry` runs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 2 for a mistake of the user or a full disk, 130 where it is stopped, else 0."""
    given = _parser().parse_args(arguments)
    return run_command(lambda: _run(given), stopped="stopped; the same command goes on where this one was")


def _run(given: argparse.Namespace) -> None:
    if given.schema:
        print(json.dumps(JobSpec.model_json_schema(), indent=2))
        return
    if given.spec is None:
        raise InputError("SPEC: missing; allowed: a YAML file, for instance specs/quickstart.yaml")
    spec = track.located(load(given.spec, given.set))
    if given.check:
        print(f"{given.spec}: ok")
        return
    plan = make_plan(spec)
    if given.plan:
        print(show(plan, given.stage or STAGES, fresh=given.fresh))
        return
    if "evaluate" in (given.stage or ()) and not plan.evaluates:
        raise InputError(f"--stage: {NOT_EVALUATED}")
    for stage, missing in plan.left_out.items():
        if stage in (given.stage or ()):
            raise InputError(f"--stage: got {stage} without {missing}; allowed: stages of the spec (see --plan)")
    if given.carry and (given.stage or given.fresh):
        raise InputError("--carry: got --stage or --fresh too; allowed: --carry alone, which runs stages up to index")
    print(
        json.dumps(run(plan, CARRIES if given.carry else given.stage or STAGES, fresh=given.fresh, carry=given.carry))
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rayhier run", description="Train, index and measure what a spec describes.", allow_abbrev=False
    )
    parser.add_argument("spec", nargs="?", metavar="SPEC", help="YAML file, for instance specs/quickstart.yaml")
    parser.add_argument(
        "--stage",
        action="append",
        choices=STAGES,
        metavar="NAME",
        help=f"run only this stage, may be given again: {', '.join(STAGES)}",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a value of the spec, for instance train.epochs=5",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="rebuild the stages that --stage names (without --stage: all)"
    )
    parser.add_argument(
        "--carry",
        action="store_true",
        help="serve the new model at once: move the vectors of the index that is served into its space; a server that "
        "writes, or rayhier index embed WORKDIR, encodes the texts later",
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--check", action="store_true", help="check the spec file only: reads no data, needs no cluster")
    only.add_argument("--plan", action="store_true", help="show steps, places, sizes and hours; run nothing")
    only.add_argument("--schema", action="store_true", help="print the JSON Schema of a spec; needs no SPEC")
    return parser


def run(
    plan: Plan, stages: Collection[str] = tuple(STAGES), *, fresh: bool = False, carry: bool = False
) -> dict[str, Any]:
    """Make every artifact of the named stages that is not published yet; returns a summary, as JSON values.

    With `carry`, an index that would encode all documents again is carried from the one that current.json names.

    With `fresh`, the artifacts of these stages, and all that depend on a model among them, are removed and made again.
    The summary has name, workdir, steps and seconds. Raises InputError before any step runs where an input is missing,
    a published file differs from its record, or the cluster is too small.
    """
    began = time.monotonic()
    if carry:
        carrying.check(plan.spec)
    _prepare(plan, stages, fresh=fresh)
    summary: list[dict[str, Any]] = []
    for step in plan.steps:
        if step.stage not in stages:
            continue
        published = step.place.published()
        served = carrying.served(plan, step) if carry and published is None else None
        if served is not None:
            artifact = carrying.carry_index(plan, step, served, lambda index: _make_current(plan, index))
            summary.append(
                {"stage": step.stage, "seed": step.seed, "fingerprint": artifact.folder.name, "state": "carried"}
            )
            continue
        state = "published" if published else "built"
        artifact = published or _make(plan, step)
        if step.kind == "corpus":
            _check_memory(plan, artifact)
        say(f"{step.title}: {state} {here(step.place.folder)} ({artifact.record.seconds:.1f} s)")
        summary.append({"stage": step.stage, "seed": step.seed, "fingerprint": step.fingerprint, "state": state})
        _make_current(plan)
    _show_report(plan)
    return {
        "name": plan.spec.name,
        "workdir": str(plan.workdir),
        "steps": summary,
        "seconds": round(time.monotonic() - began, 1),
    }


def _prepare(plan: Plan, stages: Collection[str], *, fresh: bool) -> None:
    """Check everything that can fail before work begins; with `fresh`, remove what is rebuilt."""
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
    if to_make:
        import rayhier.cluster.library  # noqa: F401  InputError at once where faiss is missing
        from rayhier.ray import check_resources, join

        track.check(plan.spec)
        join(plan.spec)
        check_resources(plan.spec)
    if fresh:
        for step in gone:
            say(f"{step.title}: removed: depends on the model being rebuilt")
        for step in [*to_make, *gone]:
            step.place.remove()


def _check_published(plan: Plan, to_make: Sequence[Step]) -> None:
    """InputError where a published file differs from its record, or a step to make lacks a published input."""
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
                _check_memory(plan, artifact)
            if step.kind == HOLDS.get(plan.spec.evaluate.split):
                requirements.check_split(plan.spec, artifact.record.counts)
        elif any(step.fingerprint in other.inputs.values() for other in to_make):
            missing.append(step)
    if missing:
        add = dict.fromkeys(f"--stage {step.stage}" for step in missing)
        raise InputError(
            f"--stage: {', '.join(dict.fromkeys(step.stage for step in to_make))} needs "
            f"{', '.join(step.title for step in missing)}, not published in {plan.workdir}; add {' '.join(add)}"
        )


def _check_memory(plan: Plan, corpus: Artifact) -> None:
    """Raise InputError where searches of an index over the corpus would take more than `search.memory_gb`."""
    size = plan.spec.index_size(corpus.record.counts["rows"], plan.model.dimension)
    plan.spec.search.check_memory(size)


def _make(plan: Plan, step: Step) -> Artifact:
    """Run one step in an attempt folder and publish what it wrote."""
    say(f"{step.title}: {here(step.place.folder)}")
    with Attempt.start(step.place) as attempt:
        return attempt.publish(step.kind, step.inputs, _builder(plan, step)(attempt))


def _builder(plan: Plan, step: Step) -> Callable[[Attempt], Output]:
    """The function that writes a step's files; only here do stages import each other's code."""
    spec = plan.spec
    opened = {other.kind: Artifact.open(other.place.folder) for other in plan.steps if _feeds(other, step)}
    generated = opened.get("generated")
    match step.stage:
        case "corpus":
            from rayhier.corpus.ray import build as build_corpus

            return lambda attempt: build_corpus(spec, attempt)
        case "generate" if (pairs := plan.pairs) is not None:
            from rayhier.generate.ray import build as build_pairs

            return lambda attempt: build_pairs(spec, pairs, opened["corpus"], attempt)
        case "embed":
            from rayhier.embed.ray import build as build_vectors

            return lambda attempt: build_vectors(spec, plan.model, opened["corpus"], attempt, generated)
        case "test":
            from rayhier.evaluate.ray import build_test

            return lambda attempt: build_test(spec, plan.model, opened["corpus"], opened["vectors"], attempt)
        case "cross_encoder" if (folder := plan.cross_encoder) is not None:
            from rayhier.train.cross_encoder.ray import build as build_cross_encoder

            return lambda attempt: build_cross_encoder(spec, folder, opened["corpus"], opened["vectors"], attempt)
        case "scores":
            from rayhier.scores.ray import build as build_scores

            read = opened["corpus"], opened["vectors"], opened["cross_encoder"]
            return lambda attempt: build_scores(spec, plan.model, *read, attempt)
        case "factors":
            from rayhier.scores.ray import build_factors

            made_of = opened["scores"], opened["model"], opened["index"]
            return lambda attempt: build_factors(spec, *made_of, attempt)
        case "train":
            from rayhier.train.ray import build as build_model

            seed = step.seed or 0
            base = opened["corpus"], opened["vectors"]
            return lambda attempt: build_model(spec, seed, plan.model, *base, attempt, generated)
        case "index":
            from rayhier.index.ray import build as build_index

            return lambda attempt: build_index(spec, opened["corpus"], opened["vectors"], opened["model"], attempt)
        case "calibrate":
            from rayhier.evaluate.ray import build_calibration

            built = opened["corpus"], opened["vectors"], opened["model"], opened["index"]
            reads = opened.get("cross_encoder")
            return lambda attempt: build_calibration(spec, *built, attempt, reads)
        case _:
            from rayhier.evaluate.ray import build as build_report

            trained = {
                seed: (
                    Artifact.open(plan.step("model", seed).place.folder),
                    Artifact.open(plan.step("index", seed).place.folder),
                )
                for seed in spec.evaluate.seeds
            }
            kinds = ("calibration", *(("cross_encoder", "scores", "factors") if spec.search.reranking else ()))
            reread: dict[tuple[str, int | None], Artifact] = {
                (step.kind, step.seed): Artifact.open(step.place.folder) for step in plan.steps if step.kind in kinds
            }
            corpus, vectors, test = opened["corpus"], opened["vectors"], opened.get("test")
            return lambda attempt: build_report(spec, corpus, vectors, trained, attempt, reread, test)


def _feeds(other: Step, step: Step) -> bool:
    return other.fingerprint in step.inputs.values() and other.seed in (None, step.seed)


def _make_current(plan: Plan, carried: Artifact | None = None) -> None:
    """Once every index is published, and its calibration where searches need it, let current.json name this run.

    They need it if dev queries choose the beam, and to re-rank. Searches open what current.json names, by the spec that
    it holds, with an automatic mode and weight settled. The report is copied to the workdir. A `carried` index stands
    for the first seed's.
    """
    published = [step for step in plan.steps if step.place.published()]
    needs_calibration = plan.spec.chooses_beam or plan.spec.chooses_beside
    needed = ("index", *(["calibration"] if needs_calibration else []))
    if carried is None and any(step.kind in needed and step not in published for step in plan.steps):
        return
    first = plan.spec.evaluate.seeds[0]
    seeds: dict[str, dict[str, str]] = {}
    for step in published:
        if step.seed not in (None, first):
            seeds.setdefault(str(step.seed), {})[step.kind] = step.fingerprint
    artifacts = {str(step.kind): step.fingerprint for step in published if step.seed in (None, first)}
    if carried is not None:
        artifacts["index"] = carried.folder.name
    settled = plan.spec.settled(_weight(plan, first))
    now = current.Current(
        spec=settled, artifacts=artifacts, seeds=seeds, before=carrying.carry_changes(plan, settled, artifacts)
    )
    current.write(plan.workdir, now)
    model = plan.step("model", first).place.published()
    if model is not None:
        workdir.point_at(plan.workdir / "encoder", model.root / "encoder")
    report = plan.report
    if report is not None:
        from rayhier.evaluate.report import Report

        below = str(report.root).removeprefix(f"{plan.workdir}/")
        _, _, body = report.path("report.md").read_text().partition("\n")
        text = f"# {plan.spec.name}\n" + body.replace("](plots/", f"]({below}/plots/")
        files.replace(plan.workdir / "report.md", text.encode())
        named = Report.read(report.path("report.json")).model_copy(update={"name": plan.spec.name})
        named.write(plan.workdir / "report.json")


def _weight(plan: Plan, seed: int) -> float | None:
    """BM25's weight that was chosen for a seed's model; None where none was, or not yet."""
    calibration = plan.step("calibration", seed).place.published() if plan.spec.chooses_weight else None
    if calibration is None:
        return None
    from rayhier.search.fusion_weight import FusionWeight

    chosen = FusionWeight.open(calibration)
    return None if chosen is None else chosen.weight


def _show_report(plan: Plan) -> None:
    """Print the report's tables, sample queries with their answers, where the plots are, and a verdict."""
    report = plan.report
    if report is None:
        if not plan.evaluates:
            print(NOT_EVALUATED)
        return
    from rayhier.evaluate.closing import closing

    corpus, judged = (plan.step(kind).place.published() for kind in ("corpus", HOLDS[plan.spec.evaluate.split]))
    if corpus is not None and judged is not None:
        print(closing(plan.spec, plan.workdir, corpus, judged, report.root))


class _Run(ModuleType):
    """A module that can be called, as `rayhier.run(spec)`."""

    def __call__(
        self,
        spec: str | os.PathLike[str] | Mapping[str, Any] | JobSpec,
        overrides: Sequence[str] = (),
        *,
        carry: bool = False,
    ) -> dict[str, Any]:
        """Train, index and measure what a spec describes; steps already published are kept.

        With `carry`, what `rayhier run SPEC --carry` does: stages up to index, whose vectors may be carried.

        `spec` is a YAML file's path, a mapping with the same keys, or a JobSpec; overrides read like `train.epochs=5`.
        Returns the summary that the command prints: name, workdir, steps and seconds. InputError where the spec or an
        input is wrong.
        """
        if isinstance(spec, JobSpec) and overrides:
            raise InputError("overrides: got some with a JobSpec; allowed: with a YAML file or a mapping")
        if not isinstance(spec, JobSpec):
            spec = load(spec if isinstance(spec, Mapping) else os.fspath(spec), overrides)
        plan = make_plan(track.located(spec))
        return run(plan, CARRIES if carry else tuple(STAGES), carry=carry)


sys.modules[__name__].__class__ = _Run

if __name__ == "__main__":
    sys.exit(main())
