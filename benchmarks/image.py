"""Follow the Dockerfile without Docker: run the pip lines of its targets, each stage in a new folder.

`python -m benchmarks.image` installs the packages of target `cpu`, and runs the image's command with `--check`. For
target `gpu`, pip only finds versions, because its packages have gigabytes. Lines that need root do not run.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.package import IMPORTS, ROOT, WHOLE

ROOTS = ("apt-get ", "useradd ")
"""Beginnings of the RUN lines that need root."""
INSTALLS, RESOLVES = {"PIP_NO_COMPILE": "1"}, {"PIP_DRY_RUN": "1"}
"""Settings of pip that the image does not have. The first saves time, and the second installs nothing."""


def main() -> None:
    """Install one target, resolve the other, and print what each took."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        context(place / "context")
        for name in ("native", "cpu"):
            subprocess.run([sys.executable, "-m", "venv", str(place / name / "venv")], check=True)
        began = time.monotonic()
        build("native", place, place / "native" / "venv", {})
        installed = place / "cpu" / "venv"
        command = build("cpu", place, installed, INSTALLS)
        for arguments in ([*command, "--check"], ["python", "-c", f"{IMPORTS[WHOLE]}; {IMPORTS['demo']}"]):
            ran(arguments, place / "cpu" / "app", environment(installed, {}))
        print(f"Dockerfile, target cpu: {time.monotonic() - began:.0f} s. Its command succeeds with --check")
        build("gpu", place, installed, RESOLVES)
        print("Dockerfile, target gpu: pip finds versions of all packages")


def context(folder: Path) -> None:
    """Copy what .dockerignore lets Docker see."""
    everything, *kept, compiled = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")
    ]
    if (everything, compiled) != ("*", "**/__pycache__") or not all(line.startswith("!") for line in kept):
        sys.exit(".dockerignore: allowed: *, then lines of !NAME, then **/__pycache__")
    folder.mkdir()
    for name in kept:
        copied(ROOT / name[1:], folder / name[1:])


def copied(source: Path, target: Path) -> None:
    """Copy a file or folder as COPY does."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the instructions of each stage. Those of its base stage come first."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.split()
            found[name] = list(found.get(base, []))
        elif word not in ("", "#"):
            found[name].append((word, rest))
    return found


def build(name: str, place: Path, venv: Path, variables: dict[str, str]) -> list[str]:
    """Follow a stage's instructions in a folder of its name. Returns the image's command."""
    root, variables, command = place / name, dict(variables), list[str]()
    here = root
    for word, rest in stages()[name]:
        match word:
            case "WORKDIR":
                here = root / rest.lstrip("/")
                here.mkdir(parents=True)
            case "ARG":
                variable, _, value = rest.partition("=")
                variables[variable] = os.environ.get(variable, value.strip('"'))
            case "COPY":
                *sources, target = rest.split()
                origin = place / "context"
                if sources[0].startswith("--from="):
                    origin = place / sources.pop(0).removeprefix("--from=")
                for source in sources:
                    copied(origin / source.lstrip("/"), here / target)
            case "RUN" if not rest.startswith(ROOTS):
                ran(rest, here, environment(venv, variables))
            case "ENTRYPOINT" | "CMD":
                command += json.loads(rest)
            case "RUN" | "USER":
                pass
            case _:
                sys.exit(f"Dockerfile: benchmarks/image.py does not know {word}")
    return command


def environment(venv: Path, variables: dict[str, str]) -> dict[str, str]:
    """Return the variables of a stage: those of this process, with the stage's Python first in PATH."""
    path = f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables | {"PATH": path}


def ran(command: str | list[str], folder: Path, variables: dict[str, str]) -> None:
    """Run a line of the shell, or a program."""
    shell = isinstance(command, str)
    done = subprocess.run(command, shell=shell, cwd=folder, env=variables, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"Dockerfile: {command}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
