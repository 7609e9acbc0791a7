"""Send measures of training and evaluation to TensorBoard's files and to the spec's tracker."""

import contextlib
import importlib
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from typing_extensions import override

from rayhier.progress import say
from rayhier.spec import InputError, JobSpec
from rayhier.spec.track import SQLITE, MlflowTracker, WandbTracker
from rayhier.storage import files
from rayhier.storage.paths import resolve

KEY = "rayhier.artifact"
"""Tag of an MLflow run with the fingerprint of its artifact. A restarted worker finds its run by this tag."""
EXTRAS = {"mlflow": "mlflow", "wandb": "wandb"}
"""Type of a tracker -> the extra of rayhier that installs its package."""
PATIENCE, TRIES = 3, 3
"""Failures one after another at which a tracker is given up, and attempts to open a file of MLflow."""
LONGEST = 500
"""Largest number of characters of a parameter that MLflow keeps."""

Values = Mapping[str, float]


class Tracker(Protocol):
    def log(self, group: str, values: Values, step: int) -> None:
        """Record measures. `group` is a phase of training, with its epoch as `step`, or a system of an evaluation."""

    def close(self, *, failed: bool = False) -> None:
        """End the tracker's run. `failed` marks the run as failed."""


class Sink:
    """Gives measures to several trackers. A tracker that fails again and again is left out, and the job goes on."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._failures = dict.fromkeys(trackers, 0)

    def log(self, group: str, values: Values, step: int) -> None:
        for tracker in list(self._failures):
            try:
                tracker.log(group, values, step)
                self._failures[tracker] = 0
            except Exception as error:  # noqa: BLE001  whatever a library raises
                self._failures[tracker] += 1
                say(f"  track: {type(tracker).__name__}: {_line(error)}. {group} {step} is missing there")
                if self._failures[tracker] == PATIENCE:
                    say(f"  track: {type(tracker).__name__}: measures go there no longer")
                    del self._failures[tracker]
                    with contextlib.suppress(Exception):
                        tracker.close()

    def close(self, *, failed: bool = False) -> None:
        """End all runs. `failed` marks the runs as failed, because training or evaluation failed."""
        for tracker in self._failures:
            try:
                tracker.close(failed=failed)
            except Exception as error:  # noqa: BLE001  whatever a library raises
                say(f"  track: {type(tracker).__name__}: {_line(error)}. Its run was not ended")


class TensorBoard(Tracker):
    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    @override
    def log(self, group: str, values: Values, step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)

    @override
    def close(self, *, failed: bool = False) -> None:
        self._writer.close()


class Mlflow(Tracker):
    """A run of MLflow. If a run of the same artifact has not ended, that run goes on."""

    def __init__(self, tracker: MlflowTracker, spec: JobSpec, title: str, artifact: str) -> None:
        mlflow = _import("mlflow")
        self._entities = importlib.import_module("mlflow.entities")
        self._client = mlflow.MlflowClient(tracker.uri, registry_uri=tracker.uri)
        experiment = self._experiment(spec.name)
        unfinished = f"tags.`{KEY}` = '{artifact}' and attributes.status = 'RUNNING'"
        runs = self._client.search_runs([experiment], unfinished, max_results=1)
        if runs:
            self._run = runs[0].info.run_id
            return
        tags = {KEY: artifact, "rayhier.workdir": spec.workdir}
        self._run = self._client.create_run(experiment, run_name=title, tags=tags).info.run_id
        params = [self._entities.Param(name, value[:LONGEST]) for name, value in flat(spec).items()]
        self._client.log_batch(self._run, params=params)

    def _experiment(self, name: str) -> str:
        known = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if known is None else known.experiment_id)

    def log(self, group: str, values: Values, step: int) -> None:
        """Record the measures of a step. `_` replaces signs that MLflow forbids in names: nDCG@10 is nDCG_10."""
        now = int(time.time() * 1000)
        rows = [self._entities.Metric(_plain(f"{group}/{name}"), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=rows)

    @override
    def close(self, *, failed: bool = False) -> None:
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


class Wandb(Tracker):
    """A run of Weights & Biases. The run's id is the artifact, so that a server continues an existing run."""

    def __init__(self, spec: JobSpec, title: str, artifact: str) -> None:
        wandb = _import("wandb")
        quiet = {"console": "off", "silent": True, "disable_git": True, "save_code": False, "x_disable_stats": True}
        self._run = wandb.init(
            project=spec.name,
            name=title,
            id=artifact,
            resume="allow",
            reinit="create_new",  # otherwise it may take over a run of the caller of rayhier.run
            config=flat(spec),
            settings=wandb.Settings(**quiet),
        )
        self._groups = set[str]()

    def log(self, group: str, values: Values, step: int) -> None:
        """Record the measures of a step. Each group has a separate count of steps, `group/step`."""
        if group not in self._groups:
            self._groups.add(group)
            self._run.define_metric(f"{group}/*", step_metric=f"{group}/step")
        self._run.log({f"{group}/step": step, **{f"{group}/{name}": value for name, value in values.items()}})

    @override
    def close(self, *, failed: bool = False) -> None:
        self._run.finish(exit_code=int(failed))


@contextlib.contextmanager
def tracked(spec: JobSpec, title: str, artifact: str, board: Path | None = None) -> Iterator[Sink]:
    """Give a sink for an artifact's measures. `board` is TensorBoard's folder. Trackers that fail are left out."""
    trackers = list[Tracker]() if board is None else [TensorBoard(board)]
    try:
        trackers += [] if spec.track is None else [_opened(spec, title, artifact)]
    except Exception as error:  # noqa: BLE001  whatever a library raises
        say(f"  track: {_line(error)}. Measures do not go there")
    sink = Sink(trackers)
    try:
        yield sink
    except BaseException:
        sink.close(failed=True)
        raise
    sink.close()


def located(spec: JobSpec) -> JobSpec:
    """Make the tracker's path valid in every process of this machine. InputError if the path is invalid."""
    match spec.track:
        case MlflowTracker(file=str(file)) as tracker:
            placed = {"uri": f"{SQLITE}{resolve('track.uri', file)}"}
        case _:
            return spec
    return spec.model_copy(update={"track": tracker.model_copy(update=placed)})


def check(spec: JobSpec) -> None:
    """Check the spec's tracker. InputError if the tracker is not installed, does not answer or cannot write."""
    match spec.track:
        case MlflowTracker() as tracker:
            mlflow = _import("mlflow")
            for left in reversed(range(TRIES)):  # at first, processes may make the tables of one file together
                try:
                    mlflow.MlflowClient(tracker.uri, registry_uri=tracker.uri).search_experiments(max_results=1)
                    break
                except Exception as error:  # noqa: BLE001  whatever a library raises
                    if not left or tracker.file is None:
                        raise InputError(f"track.uri: {tracker.uri} does not answer: {_line(error)}") from None
                    time.sleep(1)
        case WandbTracker():
            wandb, folder = _import("wandb"), os.environ.get("WANDB_DIR", ".")
            if os.environ.get("WANDB_MODE", "online") == "online" and wandb.api.api_key is None:
                raise InputError("track: no key of W&B; allowed: $WANDB_API_KEY, or $WANDB_MODE=offline")
            try:
                files.probe(Path(folder))
            except OSError as error:
                raise InputError(f"$WANDB_DIR: {folder} cannot be written: {error.strerror}") from None
        case None:
            pass


def flat(spec: JobSpec) -> dict[str, str]:
    """List the values of a spec as texts by their dotted names, such as train.epochs. Null values are left out."""
    return dict(_flat("", spec.model_dump(mode="json", exclude_none=True, exclude={"track"})))


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", str(value)


def _opened(spec: JobSpec, title: str, artifact: str) -> Tracker:
    if isinstance(spec.track, MlflowTracker):
        return Mlflow(spec.track, spec, title, artifact)
    return Wandb(spec, title, artifact)


def _import(name: str) -> Any:
    """Import a tracker's package without its usage statistics. InputError says what to install."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(f"track: {name} is not installed: pip install 'rayhier[{EXTRAS[name]}]'") from error
    logging.getLogger(name).setLevel(logging.WARNING)
    return module


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_\-./: ]", "_", name)


def _line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
