"""The command `rayhier serve WORKDIR`: serves an index until Ctrl-C, in one process or by a config on Ray."""

import argparse
import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rayhier.command import run_command
from rayhier.extras import needs
from rayhier.progress import say
from rayhier.serve.config import LOOPBACK, PORT, absolute, check_free, hint, look, read_args, url_of
from rayhier.serve.http.tokens import Tokens
from rayhier.spec import InputError
from rayhier.storage import current
from rayhier.storage.paths import locate


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until stopped. Returns the exit status: 2 for a user's mistake, 130 after Ctrl-C, 0 after SIGTERM."""
    parsed = _parser().parse_args(arguments)
    is_config = parsed.target.endswith((".yaml", ".yml"))
    return run_command(lambda: _deploy(parsed) if is_config else _embed(parsed))


def _embed(parsed: argparse.Namespace) -> None:
    if parsed.workdir is not None:
        raise InputError("--workdir: got a second workdir; allowed: only with a Serve config, like jobs/serve.yaml")
    named = {"token_file": parsed.token_file, "write_token_file": parsed.write_token_file}
    files = {name: str(Path(file).absolute()) for name, file in named.items() if file is not None}
    args, host = read_args(parsed.set, workdir=absolute(parsed.target), **files), parsed.host
    port = PORT if parsed.port is None else parsed.port
    if host not in LOOPBACK and args.token_file is None and args.write_token_file is None:
        raise InputError(
            f"--host: got {host}, which other machines reach, without a token; allowed: with --token-file, or one of "
            f"{', '.join(LOOPBACK)}"
        )
    Tokens(args.token_file, args.write_token_file)
    check_free(host, port)
    say(f"loading index {current.read(locate(args.workdir)).spec.name} from {parsed.target}")
    from rayhier.serve.embedded import serve  # slow to import

    token_file = args.token_file or args.write_token_file
    serve(args, host, port, lambda: print(hint(url_of(host, port), token_file), flush=True))


def _deploy(parsed: argparse.Namespace) -> None:
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
    if parsed.workdir is None:
        raise InputError("--workdir: got none with a Serve config; allowed: the folder in which a run built an index")
    config = look(Path(parsed.target), parsed.workdir, parsed.token_file, parsed.port)
    needs("a Serve config", "ray")
    print(f"starting {config.spec.name} from {config.args.workdir}", flush=True)
    say("  loading libraries")  # takes seconds: the cheap checks were made before
    from rayhier.serve.app import checked, deploy

    local = checked(config)
    deploy(local)
    try:
        print(hint(local.url, local.args.token_file or local.args.write_token_file), flush=True)
        _stay()
    finally:
        _end()


def _stay() -> None:
    def end(*_: int | FrameType | None) -> None:
        sys.exit(0)

    # Ray's own handler of SIGTERM prints a stack and aborts. A shell starts a script's background jobs without SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, end)
    threading.Event().wait()


def _end() -> None:
    """Shut Ray Serve down. Signals are ignored, because a second Ctrl-C would leave replicas running."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    import ray
    from ray import serve

    print("stopping", flush=True)
    # Hide Ray's message that the controller, which shuts itself down, has died.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        serve.shutdown()
        ray.shutdown()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rayhier serve", description="Serve a published index over HTTP.")
    parser.add_argument(
        "target",
        metavar="WORKDIR",
        help="folder, or s3:// or gs:// prefix, in which a run built an index, to serve it from one process without "
        "Ray. Or a Serve config like jobs/serve.yaml, to deploy it on Ray",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine)")
    parser.add_argument("--port", type=int, help=f"port to listen on (default: {PORT}, or the config's)")
    parser.add_argument("--token-file", help="file with one line, the token that requests carry")
    parser.add_argument("--write-token-file", help="file with one line, another token, which also allows writing")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the server, as in `args` of jobs/serve.yaml, repeatable, for instance limits.max_k=100",
    )
    parser.add_argument("--workdir", help="with a Serve config: folder in which a run built an index")
    return parser


if __name__ == "__main__":
    sys.exit(main())
