"""Reads and checks a Ray Serve config before Ray and torch are imported, so that mistakes are reported at once."""

import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from rayhier.serve.args import Auditing, RequestLimits, ServeArgs, WriteLimits
from rayhier.serve.http.tokens import Tokens
from rayhier.spec import InputError, JobSpec
from rayhier.storage import current
from rayhier.storage.paths import locate

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Addresses that no other machine reaches."""
HA_PROXY = "RAY_SERVE_ENABLE_HA_PROXY"
"""Environment variable that makes Ray Serve start HAProxy, which listens on every address of the machine."""
HOST, PORT = "127.0.0.1", 8000
"""Ray Serve's address and port, used if the config names none."""


@dataclass(frozen=True)
class ServeConfig:
    """A checked Ray Serve config with a single application."""

    template: Path
    config: dict[str, Any]
    args: ServeArgs
    spec: JobSpec
    host: str
    port: int

    @property
    def url(self) -> str:
        return url_of("127.0.0.1" if self.host == "0.0.0.0" else self.host, self.port)  # noqa: S104


def look(template: Path, workdir: str, token_file: str | None, port: int | None) -> ServeConfig:
    """Read a Ray Serve config without Ray and torch, and make its paths absolute. InputError if the config is wrong."""
    config = _read(template)
    application = config["applications"][0]
    paths = {"workdir": absolute(workdir), **({} if token_file is None else {"token_file": absolute(token_file)})}
    application["args"] = {**(application.get("args") or {}), **paths}
    options = config["http_options"] = {"host": HOST, "port": PORT} | (config.get("http_options") or {})
    options["port"] = options["port"] if port is None else port
    try:
        args = ServeArgs.model_validate(application["args"])
    except ValidationError as error:
        raise wrong(template, error) from None
    host, number = options["host"], options["port"]
    limited, guarded = args.behind_front or os.environ.get(HA_PROXY) == "1", args.token_file or args.write_token_file
    if host not in LOOPBACK and not (limited and guarded):
        raise InputError(
            f"{template}: http_options.host: got {host!r}, which other machines reach; allowed: "
            f"{', '.join(LOOPBACK)}, or any with args.token_file and a proxy that limits heads of requests. Such a "
            f"proxy is {HA_PROXY}=1, or your own in front of Serve with args.behind_front: true"
        )
    if isinstance(host, str) and isinstance(number, int):  # Ray Serve's own check reports other types
        check_free(host, number)
    Tokens(args.token_file, args.write_token_file)
    return ServeConfig(template, config, args, current.read(locate(args.workdir)).spec, host, number)


def read_args(pairs: Sequence[str], **given: str | None) -> ServeArgs:
    """Make a server's settings from `NAME=VALUE` pairs and keyword arguments. InputError if a setting is wrong."""
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        if not equals:
            raise InputError(f"--set: got {pair!r}; allowed: NAME=VALUE, for instance limits.max_k=100")
        *sections, name = path.split(".")
        place = values
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise InputError(f"--set {path}: got a name below {section}, a value; allowed: limits.NAME=VALUE")
        try:
            place[name] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise InputError(f"--set {path}: got {text!r}; allowed: a YAML value") from None
    try:
        return ServeArgs.model_validate(values)
    except ValidationError as error:
        raise InputError(f"--set {_problem(error, ())}") from None


def hint(url: str, token_file: str | None) -> str:
    """Return the lines to print once a server runs: its address, and a sample query that reads the token file."""
    header = "" if token_file is None else f"""\n  -H "Authorization: Bearer $(cat '{token_file}')" \\"""
    return (
        f"serving at {url} (a search page, and HTTP). Ctrl-C stops it. In another shell:\n\n"
        f"curl -s {url}/v1/search -H 'Content-Type: application/json' \\{header}\n"
        """  -d '{"query": "a few words", "k": 3}'\n"""
    )


def url_of(host: str, port: int) -> str:
    """Return the address of a server, with brackets around an IPv6 host."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def absolute(text: str) -> str:
    """Make a path absolute, so that every process finds it. An s3:// or gs:// address is returned unchanged."""
    return text if "://" in text else str(Path(text).expanduser().resolve())


def wrong(template: Path, error: ValidationError) -> InputError:
    return InputError(f"{template}: {_problem(error, ('applications', 0, 'args'))}")


def _problem(error: ValidationError, place: tuple[str | int, ...]) -> str:
    problem = error.errors(include_url=False)[0]
    path = problem["loc"]
    name = ".".join(map(str, path))
    if problem["type"] != "extra_forbidden":
        return f"{name}: got {problem['input']!r:.80}: {problem['msg']}"
    section = path[len(place) :] if path[: len(place)] == place else path
    sections: dict[str | int, type[BaseModel]] = {"limits": RequestLimits, "writes": WriteLimits, "recall": Auditing}
    model = sections.get(section[0], ServeArgs) if len(section) > 1 else ServeArgs
    return f"{name}: got no argument of a server; allowed: {', '.join(model.model_fields)}"


def _read(template: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(template.read_text())
    except OSError as error:
        raise InputError(f"{template}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{template}: not YAML: {error}") from None
    applications = config.get("applications") if isinstance(config, dict) else None
    if not isinstance(applications, list) or len(applications) != 1 or not isinstance(applications[0], dict):
        raise InputError(f"{template}: applications: got none or several; allowed: one, as in jobs/serve.yaml")
    for name, part in (("http_options", config), ("args", applications[0])):
        if not isinstance(part.get(name) or {}, dict):
            raise InputError(f"{template}: {name}: got {part[name]!r}; allowed: keys and values, as in jobs/serve.yaml")
    return dict(config)


def check_free(host: str, port: int) -> None:
    """Raise InputError if the port is not free. Ray Serve itself would retry, and then print a vaguer error."""
    if not 1 <= port <= 65535:
        raise InputError(f"port: got {port}; allowed: 1 to 65535")
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        reason = "where another process listens" if taken else f"which cannot be listened on ({error})"
        raise InputError(f"port: got {port}, {reason}; allowed: a free port of {host}, 1 to 65535") from None
