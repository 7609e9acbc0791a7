"""Every block of Python in docs/neighbours.md runs, over a small index in place of the quickstart's."""

import shutil

import pytest

from ..conftest import make_corpus, write_spec
from ..integration.in_process import make
from ..unit.code_blocks import BLOCKS

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
