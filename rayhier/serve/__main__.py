"""`python -m rayhier.serve jobs/serve.yaml --workdir runs/quickstart`: serve an index here until Ctrl-C."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rayhier.spec import InputError

if TYPE_CHECKING:
    from rayhier.serve.local import Local


def main(arguments: Sequence[str] | None = None) -> int:
    """Deploy a copy of the config, print a sample query and serve until stopped; exit code 2 for a user's mistake."""
    given = _parser().parse_args(arguments)
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
    from rayhier.serve.local import deploy, prepare

    try:
        local = prepare(given.config, given.workdir, given.token_file, given.port)
        print(f"starting {local.spec.name} from {local.args.workdir}", flush=True)
        deploy(local)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(hint(local), flush=True)
    _stay()
    return 0


def hint(local: "Local") -> str:
    """Lines to print once the server runs: its address and a sample query; names the token's file, never the token."""
    token = local.args.token_file
    header = "" if token is None else f"""\n  -H "Authorization: Bearer $(cat '{token}')" \\"""
    return (
        f"serving at {local.url}; Ctrl-C stops it. In another shell:\n\n"
        f"curl -s {local.url}/v1/search -H 'Content-Type: application/json' \\{header}\n"
        """  -d '{"query": "how do I open a zip file", "k": 3}'\n"""
    )


def _stay() -> None:
    """Wait for Ctrl-C or SIGTERM, then shut Serve down."""
    from ray import serve

    # Ray's own handler of SIGTERM prints a stack and aborts; a shell starts a script's background jobs without SIGINT.
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.default_int_handler)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print("stopping", flush=True)
    finally:
        serve.shutdown()


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
