"""What bad input gets: one message, exit code 2, and no work lost."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rayhier import run
from rayhier.job.plan import make_plan
from rayhier.spec import load
from rayhier.storage import current

pytestmark = pytest.mark.usefixtures("cluster")

ONE_SCREEN = 24


@dataclass(frozen=True)
class Case:
    """Lines of the spec that differ, changes made beforehand, and what the message must say."""

    said: list[str]
    lines: dict[str, str] | None = None
    overrides: tuple[str, ...] = ()
    prepare: Callable[[Path, Path], object] = lambda corpus, work: None


def unknown_judgements(corpus: Path, work: Path) -> None:
    (corpus / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tnowhere\t1\n")


CASES = {
    "unknown key": Case(
        ["router.branchin", "got 8", "did you mean branching?"], {"router": "{type: learned_ivf, branchin: 8}"}
    ),
    "no accepted train judgements": Case(
        ["no train judgement accepted", "unknown document 1"],
        {"train": "{objective: supervised}"},
        prepare=unknown_judgements,
    ),
    "cluster too small": Case(
        ["cluster.embed", "got 9 workers x 1 CPUs", "8 CPUs"],
        overrides=("cluster.embed.workers=9", "cluster.address=local"),
    ),
    "a GPU that torch does not see": Case(
        ["cluster.embed.gpus: got 1", "torch sees no CUDA device", "rayhier[gpu]"],
        overrides=("cluster.embed.gpus=1", "cluster.address=local"),
    ),
    "unwritable workdir": Case(["workdir", "cannot be written"], overrides=("workdir=/proc/nowhere",)),
    "workdir below a file": Case(["workdir", "is not a folder"], {"workdir": "CORPUS/corpus.jsonl/work"}),
    "stage without its input": Case(
        ["--stage", "corpus, embed, train seed 0, not published", "also --stage corpus --stage embed --stage train"],
        overrides=("--stage", "index"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name, tiny_spec, tiny_corpus, tmp_path, capsys, here):
    here()
    case = CASES[name]
    case.prepare(tiny_corpus, tmp_path / "work")
    lines = {key: value.replace("CORPUS", str(tiny_corpus)) for key, value in (case.lines or {}).items()}
    arguments = [str(tiny_spec(**lines))]
    for override in case.overrides:
        arguments += [override] if override.startswith("--") or arguments[-1] == "--stage" else ["--set", override]
    assert run.main(arguments) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    message = error[error.index("error: ") :]
    assert len(message.splitlines()) <= ONE_SCREEN
    for fragment in case.said:
        assert fragment in message
    assert not list(tmp_path.glob("work/*/*/record.json"))


@pytest.fixture
def work(embedded, tmp_path):
    """A workdir whose corpus is published, and no more."""
    shutil.copytree(embedded / "work" / "corpus", tmp_path / "work" / "corpus")
    return tmp_path / "work"


def test_a_changed_artifact_is_refused_by_name(tiny_spec, work, capsys, here):
    here()
    spec = tiny_spec()
    root = next((work / "corpus").glob("*/attempt-*"))
    part = root / "documents" / "part-00000.parquet"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    assert run.main([str(spec)]) == 2
    error = capsys.readouterr().err
    assert "part-00000.parquet: SHA-256" in error
    assert "--fresh --stage corpus" in error
    assert not (work / current.NAME).exists()
    assert run.main([str(spec), "--fresh", "--stage", "corpus"]) == 0


ELSEWHERE = {
    "a cluster that does not answer": ("", "cluster.address=127.0.0.1:1", "nothing answers there"),
    "a hub that does not answer": (
        "import os; os.environ['HF_ENDPOINT'] = 'http://127.0.0.1:1'",
        "encoder.model=nobody/nothing",
        "encoder.model: got 'nobody/nothing': no such folder, not complete in the hub's local cache",
    ),
    "no faiss": ("sys.modules['faiss'] = None", "cluster.address=local", "rayhier[train,cpu]"),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_bad_surroundings(name, tiny_spec):
    """In a process that has no cluster yet."""
    before, override, said = ELSEWHERE[name]
    code = f"import sys; {before}\nfrom rayhier import run\nsys.exit(run.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, str(tiny_spec()), "--set", override]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    *_, message = ended.stderr.splitlines()
    assert message.startswith("error: ")
    assert said in message


REFUSED = {
    "a cluster too small": ["--set", "cluster.embed.workers=99", "--set", "cluster.address=local"],
    "an input that is gone": ["--stage", "index"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_fresh_run_removes_nothing(name, tiny_spec, work, capsys):
    spec = tiny_spec()
    for step in make_plan(load(spec)).steps:
        if step.stage == "index":
            shutil.copytree(next((work / "corpus").iterdir()), step.place.folder)
    before = sorted(work.rglob("*"))
    assert run.main([str(spec), "--fresh", *REFUSED[name]]) == 2
    assert sorted(work.rglob("*")) == before
    assert "error: " in capsys.readouterr().err


def test_a_damaged_record_is_mended_by_fresh(tiny_spec, work, capsys, here):
    here()
    spec = tiny_spec()
    record = next((work / "corpus").glob("*/record.json"))
    record.write_text("{")
    assert run.main([str(spec), "--stage", "corpus"]) == 2
    assert "--fresh --stage corpus" in capsys.readouterr().err
    assert run.main([str(spec), "--plan"]) == 0
    assert run.main([str(spec), "--stage", "corpus", "--fresh"]) == 0
