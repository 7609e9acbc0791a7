"""The blocks of Python in docs/neighbours.md and the files of examples/ run over a small index."""

import runpy
import shutil
import sys

import pytest

from ..conftest import make_corpus, write_spec
from ..integration.in_process import make
from ..unit.code_blocks import BLOCKS, ROOT
from .conftest import server_of

EXAMPLES = [block for block in BLOCKS if block.page.name == "neighbours.md" and block.kind == "python"]


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory, tiny_model):
    folder = tmp_path_factory.mktemp("examples")
    make(write_spec(folder, make_corpus(folder / "corpus"), tiny_model))
    return folder / "work"


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_an_example_runs_and_finds_what_it_wrote(block, quickstart, tmp_path, monkeypatch):
    shutil.copytree(quickstart, tmp_path / "runs" / "quickstart")
    monkeypatch.chdir(tmp_path)
    lines = block.text.splitlines()
    names = {}
    exec("\n".join(lines[:-1]), names)
    last = eval(lines[-1].strip(), names)
    assert isinstance(last, float) or "yak" in str(last)


def run(monkeypatch, name, *arguments):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


@pytest.mark.parametrize("name", ["search.py", "rag.py", "encoder.py"])
def test_a_file_of_examples_runs(name, quickstart, monkeypatch, capsys):
    run(monkeypatch, name, quickstart, "open a zip file")
    assert len(capsys.readouterr().out.splitlines()) > 1


def test_the_example_of_writing_finds_what_it_wrote(quickstart, tmp_path, monkeypatch, capsys):
    with server_of(shutil.copytree(quickstart, tmp_path / "work"), tmp_path / "token") as client:
        run(monkeypatch, "live.py", client.url, tmp_path / "token")
    assert "How do I shave a yak?" in capsys.readouterr().out
