"""What `rayhier init` recognises: each spec that it writes is accepted by `rayhier run --plan`."""

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from rayhier import __main__ as door
from rayhier.init import name_of

TREES = [
    {"id": f"d{n}", "title": f"Tree {n}", "text": f"leaf, root and branch {n}", "year": 2000 + n} for n in range(40)
]
QUERIES = [{"id": f"q{n}", "text": f"which tree has branch {n}"} for n in range(40)]
HEADER = "query-id\tcorpus-id\tscore\n"
QRELS = "".join(f"q{n}\td{n}\t1\n" for n in range(40))


def jsonl(rows, **renamed):
    return "".join(json.dumps({renamed.get(name, name): value for name, value in row.items()}) + "\n" for row in rows)


def table(rows, delimiter=",", **renamed):
    written = io.StringIO()
    writer = csv.writer(written, delimiter=delimiter)
    writer.writerows([[renamed.get(name, name) for name in rows[0]], *(list(row.values()) for row in rows)])
    return written.getvalue()


def parquet(rows, **renamed):
    pq.write_table(pa.Table.from_pylist(rows).rename_columns([renamed.get(n, n) for n in rows[0]]), out := io.BytesIO())
    return out.getvalue()


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def init(tmp_path, monkeypatch, capsys):
    """`init(files)`: write files to `mine`, run the command; its exit code, what it printed, and the corpus section."""
    monkeypatch.chdir(tmp_path)

    def run(files, *arguments):
        write(tmp_path / "mine", files)
        code = door.main(["init", *(arguments or ["mine"])])
        printed = capsys.readouterr()
        spec = yaml.safe_load((tmp_path / "mine.yaml").read_text()) if code == 0 else {"corpus": None}
        return code, printed.out + printed.err, spec["corpus"]

    return run


BEIR = {
    "corpus.jsonl": jsonl(TREES, id="_id"),
    "queries.jsonl": jsonl(QUERIES, id="_id"),
    "qrels/train.tsv": HEADER + QRELS[:200],
    "qrels/test.tsv": HEADER + QRELS[200:],
}
LAYOUTS = {
    "beir": (BEIR, {"type": "jsonl", "judgements": {"test": "mine/qrels/test.tsv", "train": "mine/qrels/train.tsv"}}),
    "jsonl": (
        {"a.jsonl": jsonl(TREES, text="body"), "LICENSE": "as is"},
        {"documents": "mine/a.jsonl", "columns": {"id": "id", "title": "title", "text": "body"}},
    ),
    "csv": (
        {"a.csv": table(TREES, ";", id="url", title="name", text="whatever")},
        {"type": "csv", "columns": {"id": "url", "title": "name", "text": "whatever"}},
    ),
    "tsv": ({"a.tsv": table(TREES, "\t", id="docid")}, {"type": "csv", "documents": "mine/a.tsv"}),
    "hugging face": (
        {
            "README.md": "a card",
            "dataset_info.json": "{}",
            "data/train-00000-of-00002.parquet": parquet(TREES[:20]),
            "data/train-00001-of-00002.parquet": parquet(TREES[20:30]),
            "data/test-00000-of-00001.parquet": parquet(TREES[30:]),
        },
        {"type": "parquet", "documents": "mine/data/[tdv]*-[0-9]*-of-[0-9]*.parquet"},
    ),
    "a good file": (
        {
            "README.md": "about " * 999,
            "good.csv": table([tree | {"null": "a", "on": "b", "true": "c"} for tree in TREES]),
            "wide.csv": table(TREES).encode("utf-16"),
            "header.csv": "id,text\n",
            "open.csv": 'id,text\n1,"leaf\n2,root\n',
            "cut.parquet": "PAR",
        },
        {"type": "csv", "documents": "mine/good.csv"},
    ),
    "brackets": (
        {"a [1]/one-1.csv": table(TREES[:20]), "a [1]/one-2.csv": table(TREES[20:])},
        {"documents": "mine/a [[]1]/one-[0-9]*.csv"},
    ),
    "texts": ({"a.txt": "leaf", "deep/b.md": "# Root\n\nand branch"}, {"type": "text", "path": "mine"}),
    "judged texts": (
        {f"d{n}.md": f"leaf {n} " * 99 for n in range(40)}
        | {"queries.jsonl": jsonl(QUERIES)}
        | {"answers.csv": "score,query-id,corpus-id\n" + "".join(f"1,q{n},d{n}.md\n" for n in range(40))},
        {"type": "text", "judgements": {"train": "mine-train.tsv", "test": "mine-test.tsv"}},
    ),
    "judged": (
        {"docs.csv": table(TREES), "questions.csv": table(QUERIES, id="qid", text="question"), "answers.TSV": QRELS},
        {
            "query_columns": {"id": "qid", "text": "question"},
            "judgements": {"train": "mine-train.tsv", "test": "mine-test.tsv"},
        },
    ),
    "judged parquet": (
        {
            "corpus/a.parquet": parquet(TREES),
            "queries/a.parquet": parquet(QUERIES, id="_id"),
            "qrels.parquet": parquet([{"query-id": f"q{n}", "corpus-id": f"d{n}", "score": 1} for n in range(40)]),
        },
        {"judgements": {"train": "mine-train.tsv", "test": "mine-test.tsv"}},
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_recognised_makes_a_spec_that_runs_as_it_is(layout, init, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("rayhier.init.FEW", 40)
    files, expected = LAYOUTS[layout]
    code, printed, corpus = init(files)
    assert code == 0, printed
    assert {name: corpus[name] for name in expected} == expected
    assert "wrote mine.yaml\nnext: rayhier run mine.yaml --plan" in printed
    spec = tmp_path / "mine.yaml"
    spec.write_text(spec.read_text().replace("# fields:", "fields:"))
    assert door.main(["run", "mine.yaml", "--plan"]) == 0, capsys.readouterr().err
    planned = capsys.readouterr().out
    assert ("evaluate: left out" in planned) == ("judgements" not in corpus)
    if "judgements" not in expected:
        return
    split = {name: (tmp_path / path).read_text().splitlines() for name, path in corpus["judgements"].items()}
    asked = {name: {line.split("\t")[0] for line in lines} - {"query-id"} for name, lines in split.items()}
    assert not asked["train"] & asked["test"]
    assert len(asked["train"] | asked["test"]) == 40


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "mine holds no documents: no files; allowed: files of .jsonl"),
        ({"a.pdf": "%PDF"}, "mine holds no documents: left out: 1 files .pdf; allowed"),
        (
            {"a.jsonl": jsonl([{"id": 1, "size": 2}])},
            "a.jsonl: no column of texts, or none of ids that differ: id, size",
        ),
        (
            {"a.jsonl": jsonl([{"id": 1, "text": "a"}] * 2)},
            "a.jsonl: no column of texts, or none of ids that differ",
        ),
        ({"a.csv": table(TREES).encode("utf-16")}, "left out: mine/a.csv: line 1: not UTF-8"),
        ({"a.csv": "id,text\n"}, "left out: mine/a.csv: no rows"),
        (
            {"a.csv": "id,text\n1,cr\u00e8me\n".encode("latin-1")},
            "left out: mine/a.csv: row 1: invalid UTF-8; iconv",
        ),
        ({"a.json": '[{"id": 1}]\n'}, "a.json: row 1: not an object, the beginning of an array; allowed"),
        ({"a.json": '[\n{"id": 1}\n]\n'}, "a.json: row 1: not JSON, the beginning of an array; allowed"),
        (
            BEIR | {"qrels/train.tsv": "other\td1\t1\n", "qrels/test.tsv": ""},
            "train.tsv: no query of mine/queries.jsonl has an answer",
        ),
        ({"a.tsv": "1\thow do I prune a tree\n2\twhen\n"}, "a.tsv: no column of texts, or none of ids"),
        ({"a.parquet": "PAR"}, "left out: mine/a.parquet: cannot be read as parquet"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(files, said, init, tmp_path):
    (tmp_path / "mine").mkdir()
    code, printed, _ = init(files)
    assert (code, printed.count("error: ")) == (2, 1)
    assert said in printed
    assert not (tmp_path / "mine.yaml").exists()


def test_few_judged_queries_are_all_for_test(init):
    code, printed, corpus = init(BEIR | {"qrels/train.tsv": HEADER + QRELS, "qrels/test.tsv": ""})
    assert code == 0, printed
    assert corpus["judgements"] == {"test": "mine/qrels/train.tsv"}


def test_several_candidates_are_named_and_one_can_be_chosen(init, capsys):
    files = {
        "new.jsonl": jsonl(TREES),
        "old.jsonl": jsonl(TREES[:9]),
        "about.txt": "leaf",
        "ask/queries.csv": table(QUERIES),
    }
    code, printed, corpus = init(files)
    assert (code, corpus["documents"]) == (0, "mine/new.jsonl")
    assert "left out: mine/old.jsonl, which may be documents. To take it: rayhier init mine/old.jsonl" in printed
    assert "left out: mine/ask/queries.csv, because there are no judgements: a .tsv file with lines of" in printed
    code, printed, _ = init({}, "mine/old.jsonl", "--out", "mine.yaml")
    assert (code, "--out: mine.yaml exists; allowed: a new file" in printed) == (2, True)
    code, printed, _ = init({}, "mine/old.jsonl")
    assert (code, "documents: mine/old.jsonl" in printed) == (0, True)
    assert init({}, "nowhere")[1].startswith("error: DIR: got 'nowhere', no such file or folder")


def test_a_folder_of_texts_that_would_hold_its_results_is_refused(init):
    code, printed, _ = init({"a.txt": "leaf"}, ".")
    assert (code, "which would hold runs/" in printed) == (2, True)


def test_names_that_cannot_be_a_spec_or_workdir_are_refused(init, tmp_path, capsys):
    code, printed, _ = init({"a\nb/a.txt": "leaf"}, "mine/a\nb")
    assert (code, "got 'mine/a\\nb'; allowed: names of printable" in printed) == (2, True)
    assert door.main(["try", "mine", "--workdir", "s3://b/x"]) == 2
    assert "got 's3://b/x'; allowed: a folder on this machine" in capsys.readouterr().err
    (tmp_path / "docs-1.0").mkdir()
    assert (name_of(tmp_path / "docs-1.0"), name_of(tmp_path / "docs-1.csv")) == ("docs-1-0", "docs-1")


def test_texts_that_are_not_utf8_are_named(init):
    code, printed, _ = init({"a.txt": "leaf", "b.txt": "cr\u00e8me".encode("latin-1")})
    assert (code, "left out: mine/b.txt: invalid UTF-8; iconv" in printed) == (0, True)
