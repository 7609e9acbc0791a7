"""A corpus with declared fields, from its file to a report and an answer in the shell, both by a filter."""

import json
from pathlib import Path

import pytest

from rayhier import run
from rayhier.search import __main__ as search

from ..conftest import DOCUMENTS, make_corpus, write_spec
from .in_process import make

pytestmark = pytest.mark.usefixtures("cluster")

FIELDS = "fields: {part: int, even: bool}"
LEAVES = {"evaluate": "{measures: [R@10], lists: 4, filter: {part: {lt: 3}, even: true}}", "search": "{k: 10, beam: 1}"}
LEVEL = {
    "train": "{type: retreever, epochs: 1, batch_size: 64}",
    "router": "{type: retreever, depth: 4}",
    "search": "{k: 10, how: level, level: 2}",
    "evaluate": "{measures: [R@10], lists: 4, filter: {part: {lt: 3}, even: true}}",
}
RERANKED = {**LEAVES, "search": "{k: 10, beam: 1, rerank: {type: rnr, budget: 5}}"}
MATCHING = {f"d{n}" for n in range(DOCUMENTS) if n % 10 < 3 and n % 2 == 0}


def spec(folder: Path, model: Path, **lines: str) -> Path:
    """A spec over the tiny corpus, of which nine tenths of the documents have a part."""
    corpus = make_corpus(folder / "corpus")
    rows = [json.loads(line) for line in (corpus / "corpus.jsonl").read_text().splitlines()]
    for n, row in enumerate(rows):
        row |= {"even": n % 2 == 0} | ({} if n % 10 == 9 else {"part": n % 10})
    (corpus / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return write_spec(folder, corpus, model, corpus=f"{{type: beir, path: {corpus}, {FIELDS}}}", **lines)


@pytest.mark.parametrize("lines", [LEAVES, LEVEL, RERANKED], ids=["leaves", "level", "reranked"])
def test_a_run_and_a_search_by_a_filter(tmp_path, tiny_model, lines, capsys):
    if lines is RERANKED:
        reads = {"model": str(tiny_model), "max_length": 32, "precision": "float32", "head": "emb"}
        lines = {**lines, "cross_encoder": json.dumps(reads)}
    make(spec(tmp_path, tiny_model, **lines))
    report = json.loads((tmp_path / "work" / "report.json").read_text())
    assert (report["documents"], report["corpus"]) == (len(MATCHING), DOCUMENTS)
    assert report["queries"] + report["left_out"] == 40
    assert report["filter"] == {"and": [{"part": {"lt": 3}}, {"even": True}]}
    for path in (tmp_path / "work" / "evaluate").rglob("*.trec"):
        found = {line.split()[2] for line in path.read_text().splitlines()}
        assert found <= MATCHING, path.stem
        assert found, path.stem
    assert ("learned_ivf+rnr" in report["systems"]) == ("cross_encoder" in lines)
    router = report["curves"][report["router"]]
    assert router[-1]["visited_mean"] == 1
    assert report["systems"][report["router"]]["R@10"] > 0
    capsys.readouterr()
    asked = [str(tmp_path / "work"), "leaf root", "-k", "30", "--filter", '{"part": {"exists": false}}']
    assert search.main(asked) == 0
    lines_ = capsys.readouterr().out.splitlines()
    assert "documents that match: 24, fewer than k (30)" in lines_
    assert sum("part=" in line for line in lines_) == 0
    assert search.main([*asked[:-1], '{"parts": 1}']) == 2
    assert "--filter.parts: got no declared field; allowed: and, or, not; fields: part, even" in capsys.readouterr().err


def test_a_filter_by_set(tmp_path, tiny_model, capsys):
    written = spec(tmp_path, tiny_model)
    assert run.main([str(written), "--check", "--set", 'evaluate.filter={"part": {"in": [1, 2]}}']) == 0
    capsys.readouterr()
    for given, said in {
        '{"part": [1]}': "evaluate.filter.part: got a list of 1; allowed: a whole number of 64 bits",
        '{"and": [{"even": 1}]}': "evaluate.filter.and[0].even: got 1; allowed: true or false",
        '{"not":' * 100 + '{"part": 1}' + "}" * 100: "allowed: at most 16 levels of and, or, not",
        "[1]": "evaluate.filter: got [1]",
    }.items():
        assert run.main([str(written), "--check", "--set", f"evaluate.filter={given}"]) == 2
        shown = capsys.readouterr().err
        assert said in shown
        assert "--set evaluate.filter=" in shown
