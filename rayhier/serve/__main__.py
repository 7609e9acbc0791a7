"""`python -m rayhier.serve jobs/serve.yaml --workdir runs/quickstart`: serve an index here until Ctrl-C."""

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

from rayhier.progress import say
from rayhier.serve.config import ServeConfig, look
from rayhier.spec import InputError

STOPPED = 130
"""Exit code of a server that Ctrl-C stopped."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Deploy a copy of the config, print a sample query and serve until stopped.

    The exit code is 2 for a user's mistake, 130 after Ctrl-C, 0 after SIGTERM.
    """
    given = _parser().parse_args(arguments)
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
    try:
        looked = look(given.config, given.workdir, given.token_file, given.port)
        print(f"starting {looked.spec.name} from {looked.args.workdir}", flush=True)
        _serve(looked)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return STOPPED
    return 0


def _serve(looked: ServeConfig) -> None:
    say("  loading libraries")  # seconds, which is why what is cheap to look at was looked at before
    from rayhier.serve.local import checked, deploy

    local = checked(looked)
    deploy(local)
    try:
        print(hint(local), flush=True)
        _stay()
    finally:
        _end()


def hint(local: ServeConfig) -> str:
    """Lines to print once the server runs: its address and a sample query; names the token's file, never the token."""
    token = local.args.token_file
    header = "" if token is None else f"""\n  -H "Authorization: Bearer $(cat '{token}')" \\"""
    return (
        f"serving at {local.url}; Ctrl-C stops it. In another shell:\n\n"
        f"curl -s {local.url}/v1/search -H 'Content-Type: application/json' \\{header}\n"
        """  -d '{"query": "how do I open a zip file", "k": 3}'\n"""
    )


def _stay() -> None:
    """Wait for Ctrl-C or SIGTERM."""

    def end(*_: int | FrameType | None) -> None:
        sys.exit(0)

    # Ray's own handler of SIGTERM prints a stack and aborts; a shell starts a script's background jobs without SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, end)
    threading.Event().wait()


def _end() -> None:
    """Shut Serve down, whatever signals come meanwhile: a second Ctrl-C would leave replicas behind."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    import ray
    from ray import serve

    print("stopping", flush=True)
    # Ray's listener prints that the controller, which shuts itself down, is gone.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        serve.shutdown()
        ray.shutdown()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rayhier.serve", description="Serve a published index over HTTP.")
    parser.add_argument("config", type=Path, help="Serve config with one application, for instance jobs/serve.yaml")
    parser.add_argument("--workdir", required=True, help="folder, or s3:// or gs:// prefix, where a run built an index")
    parser.add_argument(
        "--token-file", help="file with one line, the token that requests carry (default: the config's)"
    )
    parser.add_argument("--port", type=int, help="port to listen on (default: the config's)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
