"""Deploys a Ray Serve config on the Ray cluster that the index's spec names, or on a local one."""

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
from rayhier.serve.config import ServeConfig, wrong
from rayhier.spec import InputError

POLL_SECONDS = 0.2
SAID_SECONDS = 10.0
"""Seconds between printed lines that say that a deployment is still starting."""


def checked(local: ServeConfig) -> ServeConfig:
    """Return a config unchanged. InputError where Ray Serve or the index does not allow it."""
    try:
        ServeDeploySchema.model_validate(local.config)
    except ValidationError as error:
        raise wrong(local.template, error) from None
    check(local.args)
    return local


def deploy(local: ServeConfig) -> None:
    """Deploy a config, and return once every deployment runs. InputError where one fails, after all are stopped."""
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
    """Pass the config to Ray Serve; the output of its command is shown only where the command fails."""
    with tempfile.TemporaryDirectory(prefix="rayhier-serve-") as folder:
        copy = Path(folder) / "serve.yaml"
        copy.write_text(yaml.safe_dump(local.config, sort_keys=False))
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                cli.main(["run", "--non-blocking", str(copy)], standalone_mode=False)
        except SystemExit:  # raised after any error, which is printed
            raise InputError(f"not deployed: {_reason([output.getvalue()])}") from None
        except RayActorError:  # Ray Serve ends its own actors that do not start within seconds
            raise InputError("not deployed: Serve did not start in time; is this machine busy? Start again") from None
        except Abort:  # raised by the command on Ctrl-C
            raise KeyboardInterrupt from None


def _wait(name: str) -> None:
    """Wait until an application runs, and print which deployments are ready."""
    ready, began = set[str](), time.monotonic()
    spoken = began
    while True:
        app: ApplicationStatusOverview | None = serve.status().applications.get(name)
        if app is None or app.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            messages = [] if app is None else [app.message, *(part.message for part in app.deployments.values())]
            raise InputError(f"not deployed: {_reason(messages)}")
        healthy = {deployment for deployment, part in app.deployments.items() if part.status == "HEALTHY"}
        for deployment in sorted(healthy - ready):
            ready.add(deployment)
            spoken = time.monotonic()
            say(f"  {deployment} is ready ({len(ready)} of {len(app.deployments)})")
        if app.status == "RUNNING":
            return
        if time.monotonic() - spoken >= SAID_SECONDS:
            spoken = time.monotonic()
            say(f"  starting for {spoken - began:.0f} s: {', '.join(sorted(set(app.deployments) - ready)) or name}")
        time.sleep(POLL_SECONDS)


def _reason(messages: list[str]) -> str:
    """Return why a deployment failed: the message of an InputError if there is one, else the last lines."""
    lines = [line for message in messages for line in message.splitlines() if line.strip()]
    errors = [line.partition("InputError: ")[2] for line in lines if "InputError: " in line]
    return errors[-1] if errors else "\n".join(lines[-5:])
