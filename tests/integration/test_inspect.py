"""Inspection of a built index: the tree, a node, paths with probabilities, and a page that holds all it needs."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rayhier.index import __main__ as index
from rayhier.index import describe
from rayhier.inspect import __main__ as inspect
from rayhier.storage import current

from ..conftest import leaf_map_of

pytestmark = pytest.mark.usefixtures("cluster")

EVIL = "<script>document.title='taken'</script></script><!-- & \u2028"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert inspect.main([*arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_tree_of_a_built_index(built, capsys):
    work = str(built / "work")
    heading, *lines = said(capsys, work, "--brief")
    manifest = leaf_map_of(built / "work").manifest
    assert heading.startswith(f"240 documents, {sum(manifest.counts)} rows in 8 leaves of learned_ivf, ")
    sizes = [int(line.split()[1].replace(",", "")) for line in lines]
    assert sizes == sorted((count for count in manifest.counts if count), reverse=True)
    stored = pq.read_table(leaf_map_of(built / "work").root / "leaves.parquet").to_pylist()
    assert [row["size"] for row in stored] == manifest.counts
    first = Counter[int]()  # documents whose first leaf it is; other rows are of documents that lie there second
    for shard in manifest.shards:
        rows = leaf_map_of(built / "work").read(shard, ["leaf", "rank"]).to_pylist()
        first.update(row["leaf"] for row in rows if row["rank"] == 0)
    for line in lines:
        node = int(line.split()[0].removeprefix("1:"))
        assert line.split()[2:] == stored[node]["keywords"][:8]
        assert len(stored[node]["documents"]) == min(3, first[node])


def test_documents_and_queries_stand_below_their_node(built, capsys):
    """Titles of the documents that leaves.parquet names, and queries whose paths lead there."""
    _, *lines = said(capsys, str(built / "work"))
    corpus = [json.loads(line) for line in (built / "corpus" / "corpus.jsonl").read_text().splitlines()]
    titles = {row["_id"]: inspect.short(row["title"] or row["text"], inspect.SHORT) for row in corpus}
    stored = pq.read_table(leaf_map_of(built / "work").root / "leaves.parquet").to_pylist()
    asked = 0
    for number, line in enumerate(lines):
        if line.startswith("1:"):
            node = stored[int(line.split()[0].removeprefix("1:"))]
            assert lines[number + 1] == f"      documents: {' | '.join(titles[name] for name in node['documents'])}"
        elif line.startswith("      queries: "):
            asked += 1
            text = line.removeprefix("      queries: ").split(" | ")[0]
            path = said(capsys, str(built / "work"), "--query", text)
            assert path[0].split()[1] == lines[number - 2].split()[0]
    assert asked > 0


def test_a_reader_that_has_seen_enough(built):
    command = [sys.executable, "-m", "rayhier.inspect", str(built / "work")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_paths_and_a_node(built, capsys):
    work = str(built / "work")
    first = json.loads((built / "corpus" / "corpus.jsonl").read_text().splitlines()[0])
    (own,) = said(capsys, work, "--document", first["_id"])
    probability, node, *_ = own.split()
    assert 0 < float(probability) <= 1
    rows = [row for shard in leaf_map_of(built / "work").manifest.shards for row in _rows(built, shard)]
    assert node == f"1:{next(leaf for name, leaf in rows if name == first['_id'])}"
    (asked,) = said(capsys, work, "--query", f"{first['title']} {first['text']}")
    assert asked.split()[1].startswith("1:")
    shown = said(capsys, work, "--node", node)
    assert shown[0].startswith(f"{node}  ")
    assert "documents:" in shown


def _rows(built: Path, shard: object) -> list[tuple[str, int]]:
    table = leaf_map_of(built / "work").read(shard, ["doc_id", "leaf", "rank"])  # type: ignore[arg-type]
    return [(row["doc_id"], row["leaf"]) for row in table.to_pylist() if row["rank"] == 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--node", "1:8"], "--node: got '1:8', which is not in this tree; allowed: 1:0 to 1:7"),
        (["--node", "2:0"], "--node: got '2:0', which is not in this tree; allowed: LEVEL:NUMBER, levels 1 to 1"),
        (["--document", "none"], "--document: got 'none', which is not in the index; allowed: an id of a document"),
        (["--query", "  "], "--query: got no words in UTF-8; allowed: a text"),
        (["--html", "/usr"], "--html: /usr cannot be written: Is a directory"),
    ],
)
def test_what_is_not_there(built, capsys, arguments, message):
    assert inspect.main([str(built / "work"), *arguments]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


@pytest.mark.parametrize("kind", ["corpus", "vectors", "test"])
def test_queries_that_are_not_as_published_are_named(kind, work, capsys):
    path = current.artifact(work, current.read(work), kind).path("queries.parquet")
    whole = path.read_bytes()
    for data, said in ((whole[:-5], ""), (whole[:-1] + b"?", ""), (None, "was published, but is missing")):
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        assert inspect.main([str(work), "--node", "1:0"]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: {path}: ")
        assert said in error


@pytest.fixture
def page(work, tmp_path, capsys, monkeypatch):
    """A page of an index with a document whose id, title and words are markup, and which its node names."""
    monkeypatch.setattr(describe, "DOCUMENTS", 1_000)
    new = tmp_path / "new.jsonl"
    new.write_text(json.dumps({"_id": EVIL, "title": EVIL, "text": "script document title taken " * 9}) + "\n")
    assert index.main(["add", str(work), str(new)]) == 0
    file = tmp_path / "tree.html"
    assert inspect.main([str(work), "--html", str(file)]) == 0
    assert re.search(r"tree\.html: 8 nodes, 0\.\d MB", capsys.readouterr().out)
    return file


def test_a_page_shows_markup_as_text_and_asks_for_nothing(page):
    text = page.read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    held = json.loads(data)
    assert not set("<>&\u2028") & set(data)
    assert any(EVIL in node["documents"] for node in held["nodes"])
    assert EVIL.split()[0] in held["titles"][EVIL]
    words = {word for node in held["nodes"] for word in node["keywords"]}
    assert "script" in words
    assert all(word.isalnum() for word in words)
    assert text.count("<script") == text.count("</script>") == 2
    assert not re.search(r"(src|href|url)\s*[=(]|https?://|@import|fetch\(|XMLHttpRequest|innerHTML", text)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium here")
def test_a_browser_shows_the_page(page):
    asked = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    dom = subprocess.run([*asked, page.as_uri()], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "<title>tiny</title>" in dom
    assert "<h1>tiny: 241 documents</h1>" in dom
    assert dom.count('class="row"') == 8
    assert "&lt;script&gt;document.title='taken'&lt;/script&gt;" in dom
    assert dom.count("<script") == 2
