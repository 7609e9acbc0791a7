"""Deploy a Serve config on the Ray cluster that the spec names, or on a local one."""

import contextlib
import errno
import io
import logging
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from ray import serve
from ray.serve.schema import ServeDeploySchema
from ray.serve.scripts import cli

from rayhier.ray import join
from rayhier.serve.app import check
from rayhier.serve.args import ServeArgs
from rayhier.spec import InputError, JobSpec

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Local:
    """A checked Serve config with one application: its args, the index's spec, and the address to listen on."""

    config: dict[str, Any]
    args: ServeArgs
    spec: JobSpec
    host: str
    port: int

    @property
    def url(self) -> str:
        """Address of the server on this machine."""
        return f"http://{'127.0.0.1' if self.host == '0.0.0.0' else self.host}:{self.port}"  # noqa: S104


def prepare(template: Path, workdir: str, token_file: str | None, port: int | None) -> Local:
    """A copy of a Serve config with absolute paths; InputError where it cannot be deployed."""
    config = _read(template)
    application = config["applications"][0]
    given = {"workdir": absolute(workdir), **({} if token_file is None else {"token_file": absolute(token_file)})}
    application["args"] = {**application.get("args", {}), **given}
    options = config.setdefault("http_options", {})
    options["port"] = options.get("port", 8000) if port is None else port
    try:
        args = ServeArgs.model_validate(application["args"])
        schema = ServeDeploySchema.model_validate(config)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise InputError(f"{template}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
    spec = check(args)[0].now.spec
    _check_free(schema.http_options.host, schema.http_options.port)
    return Local(config, args, spec, schema.http_options.host, schema.http_options.port)


def deploy(local: Local) -> None:
    """Deploy, and return once every deployment runs; where one fails, all are stopped and InputError says why."""
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    join(local.spec)
    if serve.status().proxies:
        raise InputError(
            "Serve already runs in this cluster; stop it with serve shutdown, or add to it with serve deploy"
        )
    with tempfile.TemporaryDirectory(prefix="rayhier-serve-") as folder:
        copy = Path(folder) / "serve.yaml"
        copy.write_text(yaml.safe_dump(local.config, sort_keys=False))
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                cli.main(["run", "--non-blocking", str(copy)], standalone_mode=False)
        except SystemExit:  # raised after any error, which is printed
            raise InputError(f"not deployed: {_reason([said.getvalue()])}") from None
    try:
        _wait(local.config["applications"][0]["name"])
    except BaseException:
        serve.shutdown()
        raise


def absolute(text: str) -> str:
    """Make a path absolute, so that every process finds it; an s3:// or gs:// prefix is returned as given."""
    return text if "://" in text else str(Path(text).expanduser().resolve())


def _read(template: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(template.read_text())
    except OSError as error:
        raise InputError(f"{template}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{template}: not YAML: {error}") from None
    applications = config.get("applications") if isinstance(config, dict) else None
    if not isinstance(applications, list) or len(applications) != 1 or not isinstance(applications[0], dict):
        raise InputError(f"{template}: allowed: a Serve config with one application, like jobs/serve.yaml")
    return dict(config)


def _check_free(host: str, port: int) -> None:
    """InputError where the port is not free: Serve itself would retry for a while and then say less."""
    if not 1 <= port <= 65535:
        raise InputError(f"port: got {port}; allowed: 1 to 65535")
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "another process listens there" if taken else f"cannot be listened on: {error}"
        raise InputError(f"port: got {port}; {why}; allowed: a free port of {host}, 1 to 65535") from None


def _wait(name: str) -> None:
    while True:
        found = serve.status().applications.get(name)
        if found is not None and found.status == "RUNNING":
            return
        if found is None or found.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            said = [] if found is None else [found.message, *(each.message for each in found.deployments.values())]
            raise InputError(f"not deployed: {_reason(said)}")
        time.sleep(POLL_SECONDS)


def _reason(said: list[str]) -> str:
    """Why a deployment failed: an InputError's message where there is one, else the last lines of Serve's output."""
    lines = [line for message in said for line in message.splitlines() if line.strip()]
    own = [line.partition("InputError: ")[2] for line in lines if "InputError: " in line]
    return own[-1] if own else "\n".join(lines[-5:])
