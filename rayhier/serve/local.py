"""Deploy a Serve config on the Ray cluster that the spec names, or on a local one."""

import contextlib
import io
import logging
import tempfile
import time
from pathlib import Path

import yaml
from click import Abort
from pydantic import ValidationError
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.schema import ApplicationStatusOverview, ServeDeploySchema
from ray.serve.scripts import cli

from rayhier.progress import say
from rayhier.ray import join
from rayhier.serve.app import check
from rayhier.serve.config import ServeConfig, look, wrong
from rayhier.spec import InputError

POLL_SECONDS = 0.2
SAID_SECONDS = 10.0
"""How often a line says that a deployment is still starting."""


def prepare(template: Path, workdir: str, token_file: str | None, port: int | None) -> ServeConfig:
    """A copy of a Serve config with absolute paths; InputError where it cannot be deployed."""
    return checked(look(template, workdir, token_file, port))


def checked(local: ServeConfig) -> ServeConfig:
    """A config that was looked at, as it is; InputError where Serve or the index does not allow it."""
    try:
        ServeDeploySchema.model_validate(local.config)
    except ValidationError as error:
        raise wrong(local.template, error) from None
    check(local.args)
    return local


def deploy(local: ServeConfig) -> None:
    """Deploy, and return once every deployment runs; where one fails, all are stopped and InputError says why."""
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    say("  joining Ray")
    join(local.spec)
    if serve.status().proxies:
        raise InputError(
            "Serve already runs in this cluster; stop it with serve shutdown, or add to it with serve deploy"
        )
    say("  starting Serve")
    try:
        _run(local)
        _wait(local.config["applications"][0]["name"])
    except BaseException:
        serve.shutdown()
        raise


def _run(local: ServeConfig) -> None:
    """Hand the config to Serve; what Serve's command prints is shown only where it fails."""
    with tempfile.TemporaryDirectory(prefix="rayhier-serve-") as folder:
        copy = Path(folder) / "serve.yaml"
        copy.write_text(yaml.safe_dump(local.config, sort_keys=False))
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                cli.main(["run", "--non-blocking", str(copy)], standalone_mode=False)
        except SystemExit:  # raised after any error, which is printed
            raise InputError(f"not deployed: {_reason([said.getvalue()])}") from None
        except RayActorError:  # Serve ends what of its own does not start within seconds
            raise InputError("not deployed: Serve did not start in time; is this machine busy? Start again") from None
        except Abort:  # what the command makes of Ctrl-C
            raise KeyboardInterrupt from None


def _wait(name: str) -> None:
    """Return once an application runs, and say which deployments are ready."""
    ready, began = set[str](), time.monotonic()
    spoken = began
    while True:
        found: ApplicationStatusOverview | None = serve.status().applications.get(name)
        if found is None or found.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            said = [] if found is None else [found.message, *(each.message for each in found.deployments.values())]
            raise InputError(f"not deployed: {_reason(said)}")
        for one in sorted({one for one, each in found.deployments.items() if each.status == "HEALTHY"} - ready):
            ready.add(one)
            spoken = time.monotonic()
            say(f"  {one} is ready ({len(ready)} of {len(found.deployments)})")
        if found.status == "RUNNING":
            return
        if time.monotonic() - spoken >= SAID_SECONDS:
            spoken = time.monotonic()
            say(f"  starting for {spoken - began:.0f} s: {', '.join(sorted(set(found.deployments) - ready)) or name}")
        time.sleep(POLL_SECONDS)


def _reason(said: list[str]) -> str:
    """Why a deployment failed: an InputError's message where there is one, else the last lines of Serve's output."""
    lines = [line for message in said for line in message.splitlines() if line.strip()]
    own = [line.partition("InputError: ")[2] for line in lines if "InputError: " in line]
    return own[-1] if own else "\n".join(lines[-5:])
