"""Check a spec, plan its job, or run it: `rayhier run SPEC`, and `rayhier.run(spec)` in Python."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from rayhier.command import Parser, end, run_command
from rayhier.extras import needs
from rayhier.job.stages import STAGES
from rayhier.spec import InputError, JobSpec, load

LIBRARIES = ("torch", "transformers", "faiss", "scipy", "matplotlib", "onnx", "threadpoolctl")
"""Packages that stages import. Ray is not listed, because a run on one machine does not need Ray."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. The exit code is 2 after a user's mistake or with a full disk, 130 after Ctrl-C, else 0."""
    given = _parser().parse_args(arguments)
    return run_command(lambda: _run(given), stopped="stopped: run the same command again to go on")


def _run(given: argparse.Namespace) -> None:
    if given.schema:
        print(json.dumps(JobSpec.model_json_schema(), indent=2))
        return
    if given.spec is None:
        raise InputError("SPEC: missing; allowed: a YAML file, for instance specs/quickstart.yaml")
    spec = load(given.spec, given.set)
    if given.check:
        print(f"{given.spec}: ok")
        return
    if not given.plan:
        needs("rayhier run", *LIBRARIES)
    # Each option imports only what it needs: --check pydantic and yaml, --plan no stage.
    from rayhier import track
    from rayhier.job.outline import NOT_EVALUATED, show
    from rayhier.job.plan import make_plan

    spec = track.located(spec)
    plan = make_plan(spec, (given.stage or STAGES) if given.fresh else ())
    if given.plan:
        print(show(plan, given.stage or STAGES, fresh=given.fresh))
        return
    if "evaluate" in (given.stage or ()) and not plan.evaluates:
        raise InputError(f"--stage: {NOT_EVALUATED}")
    for stage, missing in plan.left_out.items():
        if stage in (given.stage or ()):
            raise InputError(f"--stage: got {stage} without {missing}; allowed: stages of the spec (see --plan)")
    from rayhier.job.run import run

    print(json.dumps(run(plan, given.stage or STAGES, fresh=given.fresh)))


def _parser() -> Parser:
    parser = Parser(
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
    parser.add_argument("--fresh", action="store_true", help="rebuild the stages of --stage (default: all)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--check", action="store_true", help="check the spec file only: reads no data, needs no cluster")
    only.add_argument("--plan", action="store_true", help="show steps, places, sizes and hours, without a run")
    only.add_argument("--schema", action="store_true", help="print the JSON Schema of a spec (needs no SPEC)")
    return parser


class _Run(ModuleType):
    """A module that can be called, so that `rayhier.run(spec)` works."""

    def __call__(
        self,
        spec: str | os.PathLike[str] | Mapping[str, Any] | JobSpec,
        overrides: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Train, index and measure what a spec describes. Steps already published are kept.

        `spec` is a YAML file's path, a mapping with the same keys, or a JobSpec. Overrides read like `train.epochs=5`.
        Returns the summary that the command prints: name, workdir, steps and seconds. InputError if the spec or an
        input is wrong.
        """
        if isinstance(spec, JobSpec) and overrides:
            raise InputError("overrides: got some with a JobSpec; allowed: with a YAML file or a mapping")
        if not isinstance(spec, JobSpec):
            spec = load(spec if isinstance(spec, Mapping) else os.fspath(spec), overrides)
        needs("rayhier.run", *LIBRARIES)
        from rayhier import track
        from rayhier.job.plan import make_plan
        from rayhier.job.run import run

        return run(make_plan(track.located(spec)))


sys.modules[__name__].__class__ = _Run

if __name__ == "__main__":
    end(main())
