"""An index after it was built: added to, changed, compacted, swept, from the shell, over a real run's artifacts."""

import contextlib
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.index.__main__ import main
from rayhier.inspect.__main__ import main as inspect
from rayhier.run import main as run
from rayhier.search.__main__ import main as search
from rayhier.search.snapshot import Snapshot
from rayhier.storage import current

from ..conftest import leaf_map_of

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def corpus(built):
    """The documents it was built of."""
    return [json.loads(line) for line in (built / "corpus" / "corpus.jsonl").read_text().splitlines()]


def ok(capsys, *arguments):
    assert main([str(one) for one in arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *arguments):
    assert main([str(one) for one in arguments]) == 2
    return "".join(line for line in capsys.readouterr().err.splitlines(True) if not line.startswith("loading index"))


def found(work, queries, **options):
    """Ids and scores of each query's results."""
    with contextlib.closing(Snapshot.open(work)) as searcher:
        return [[(hit.id, hit.score) for hit in answer.hits] for answer in searcher.search(queries, **options)]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_life_of_an_index(work, corpus, tmp_path, capsys):
    new = [{"_id": f"n{n}", "title": f"new {n}", "text": corpus[n]["text"] + " zebra"} for n in range(30)]
    built = leaf_map_of(work).manifest

    assert ok(capsys, "compact", work) == "version 1: nothing to compact, as no row is removed or unsorted\n"
    said = ok(capsys, "add", work, write(tmp_path / "new.jsonl", new))
    assert re.match(r"version 2 \(add\): 270 documents \(\+30\), [0-9]+ rows, 8 files", said)
    answers = found(work, [f"{row['title']} {row['text']}" for row in new[:5]], k=1, beam=8)
    assert [hits[0][0] for hits in answers] == [row["_id"] for row in new[:5]]

    changed = {**corpus[3], "text": "moss moss moss stone"}
    assert "version 3 (upsert): 270 documents (+0)" in ok(
        capsys, "add", work, write(tmp_path / "changed.jsonl", [changed]), "--upsert"
    )
    assert "version 4 (delete): 268 documents (-2)" in ok(capsys, "delete", work, "d7", "n4")
    assert "removed rows" in ok(capsys, "stats", work)
    assert json.loads(ok(capsys, "get", work, "d3"))["text"] == changed["text"]
    listed = [json.loads(line)["id"] for line in ok(capsys, "list", work, "--limit", 300).splitlines()]
    assert listed == sorted({*(f"d{n}" for n in range(240)), *(f"n{n}" for n in range(30))} - {"d7", "n4"})
    after_d3 = [json.loads(line)["id"] for line in ok(capsys, "list", work, "--after", "d3", "--limit", 2).splitlines()]
    assert after_d3 == listed[listed.index("d3") + 1 :][:2]
    assert ok(capsys, "list", work, "--after", "z") == ""
    before = dict(*found(work, ["moss moss moss stone"], k=268, beam=8))
    assert "d3" in before
    assert not {"d7", "n4"} & before.keys()

    assert "version 5 (compact): 268 documents (+0)" in ok(capsys, "compact", work)
    assert dict(*found(work, ["moss moss moss stone"], k=268, beam=8)) == before
    assert "whole: versions 1, 2, 3, 4, 5" in ok(capsys, "verify", work)
    assert len(ok(capsys, "versions", work).splitlines()) == 5

    assert "version 6 (rollback): 240 documents (-28)" in ok(capsys, "rollback", work, 1)
    assert leaf_map_of(work).manifest.counts == built.counts
    assert "removed versions: 1, 2, 3, 4" in ok(capsys, "vacuum", work, "--keep", 2)
    assert "whole: versions 5, 6" in ok(capsys, "verify", work)
    out = ok(capsys, "export", work, tmp_path / "plain.faiss")
    assert f"{leaf_map_of(work).manifest.rows:,} rows in 8 lists" in out
    assert re.search(r"with nprobe = 2, the spec's beam, plain faiss finds \d+\.\d% of what a scan finds", out)
    assert search([str(work), "oak leaf", "-k", "3"]) == 0


def test_leaves_that_grew_are_split(work, corpus, tmp_path, capsys):
    """Many documents of one kind make one leaf dear; maintained, the same documents are found in more leaves."""
    assert re.match(r"version 1: no leaf needs to be split or removed", ok(capsys, "maintain", work))
    text, words = (
        corpus[0]["text"],
        ["amber", "brass", "copper", "dune", "ember", "frost", "grove", "heath", "ivy", "jade"],
    )
    new = [{"_id": f"n{n}", "title": words[n % 10], "text": f"{text} {words[n // 10 % 10]} {n}"} for n in range(200)]
    ok(capsys, "add", work, write(tmp_path / "new.jsonl", new))
    assert "maintain: searches compare" in ok(capsys, "stats", work)
    queries = [f"{row['title']} {row['text']}" for row in [*new[:20], *corpus[:20]]]
    before = found(work, queries, k=20, beam=8)

    assert "(maintain): 440 documents (+0)" in ok(capsys, "maintain", work)
    assert "maintain" not in ok(capsys, "stats", work)
    manifest = leaf_map_of(work).manifest
    assert len(manifest.counts) > 8
    with contextlib.closing(Snapshot.open(work)) as searcher:
        assert len(searcher.model.router.cells.centroid_LM) == len(manifest.counts)
    after = found(work, queries, k=20, beam=manifest.leaves)
    for earlier, later in zip(before, after, strict=True):
        assert [score for _, score in earlier] == pytest.approx([score for _, score in later], abs=1e-5)
    assert inspect([str(work), "--document", "n0"]) == 0
    assert capsys.readouterr().out

    ok(capsys, "add", work, write(tmp_path / "late.jsonl", [{**new[0], "_id": "late"}]))
    assert {"late", "n0"} == dict(*found(work, [queries[0]], k=2)).keys()
    ok(capsys, "compact", work)
    assert "whole" in ok(capsys, "verify", work)
    ok(capsys, "rollback", work, 1)
    assert leaf_map_of(work).router() is None
    assert search([str(work), "oak leaf", "-k", "3"]) == 0


def test_an_index_that_grew_is_the_index_of_all(work, corpus, tmp_path, capsys, here):
    """What is added lies where a build of everything puts it, and a compaction is that build's rows."""
    here()
    whole = rows_of(leaf_map_of(work))
    gone = [f"d{n}" for n in range(100, 140)]
    ok(capsys, "delete", work, *gone)
    ok(capsys, "add", work, write(tmp_path / "again.jsonl", corpus[100:140]))
    ok(capsys, "compact", work)
    again = rows_of(leaf_map_of(work))
    assert again.keys() == whole.keys()
    for key, row in whole.items():
        own = again[key]
        assert {**own, "vector": 0, "log_prob": 0} == {**row, "vector": 0, "log_prob": 0}
        np.testing.assert_allclose(own["vector"], row["vector"], atol=1e-5)
        assert own["log_prob"] == pytest.approx(row["log_prob"], abs=1e-4)


def rows_of(there):
    rows = (row for shard in there.manifest.shards for row in there.read(shard).to_pylist())
    return {(row["doc_id"], row["rank"]): row for row in rows}


BAD = {
    "no file": (["add", "{work}", "{tmp}/none.jsonl"], "none.jsonl: no such file"),
    "id there": (["add", "{work}", "{tmp}/again.jsonl"], "ids: 1 in the index already (version 1): 'd7'"),
    "id twice": (["add", "{work}", "{tmp}/twice.jsonl"], "ids: 1 given more than once: 'x'"),
    "nothing": (["add", "{work}", "{tmp}/empty.jsonl"], "documents: got none"),
    "dimension": (["add", "{work}", "{tmp}/short.parquet"], "vectors: got dimension 3; allowed: 32"),
    "no UTF-8": (["delete", "{work}", "\udcff"], "ids: got an id that is not UTF-8"),
    "no id column": (["add", "{work}", "{tmp}/noid.parquet"], "has no column '_id'"),
    "unknown": (["delete", "{work}", "nobody"], "ids: 1 not in the index (version 1): 'nobody'"),
    "no ids": (["delete", "{work}"], "ids: got none"),
    "no id file": (["delete", "{work}", "--file", "{tmp}/none"], "none cannot be read"),
    "no version": (["rollback", "{work}", "7"], "holds no version 7; allowed: 1"),
    "no workdir": (["stats", "{tmp}/nowhere"], "Build an index with rayhier run"),
}


def test_bad_input_changes_nothing(work, tmp_path, capsys):
    one = {"_id": "x", "title": "", "text": "oak"}
    write(tmp_path / "again.jsonl", [one, {**one, "_id": "d7"}])
    write(tmp_path / "twice.jsonl", [one, one])
    write(tmp_path / "empty.jsonl", [])
    pq.write_table(pa.table({"_id": ["x"], "text": ["oak"], "vector": [[1.0, 0, 0]]}), tmp_path / "short.parquet")
    pq.write_table(pa.table({"name": ["x"], "text": ["oak"]}), tmp_path / "noid.parquet")
    for name, (arguments, said) in BAD.items():
        error = refused(capsys, *(one.format(work=work, tmp=tmp_path) for one in arguments))
        assert said in error, name
        assert error.startswith("error: "), name
    assert leaf_map_of(work).manifest.version == 1
    assert "whole: versions 1" in ok(capsys, "verify", work)


@pytest.mark.parametrize(
    ("command", "given"),
    [("export", "s3://bucket/x"), ("export", ""), ("export", "."), ("export", "/"), ("vacuum", "--hours=nan")],
)
def test_what_no_command_takes(command, given, work, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, str(work), given])
    assert ended.value.code == 2
    assert "allowed: " in capsys.readouterr().err


def test_ids_in_a_file_are_lines_and_nothing_else(work, tmp_path, capsys):
    """A byte order mark, carriage returns and a line separator of Unicode's."""
    odd = "n\u2028x"
    ok(capsys, "add", work, write(tmp_path / "odd.jsonl", [{"_id": odd, "text": "oak"}, {"_id": "n2", "text": "ash"}]))
    (tmp_path / "ids").write_bytes(f"\ufeff{odd}\r\nn2\n\n".encode())
    assert "240 documents (-2)" in ok(capsys, "delete", work, "--file", tmp_path / "ids")


def test_a_measurement_is_of_what_was_built(work, tmp_path, capsys, here):
    """Whatever was added since, and however few or many files there are now."""
    here()
    now = current.read(work)
    index = current.artifact(work, now, "index")
    for name in ("n1", "n2", "n3"):
        ok(capsys, "add", work, write(tmp_path / "new.jsonl", [{"_id": name, "text": f"oak {name}"}]))
        assert BaselineDocuments.of_index(index).counts() == (240, 240)
    ok(capsys, "compact", work)
    assert BaselineDocuments.of_index(index).counts() == (240, 240)


def test_an_open_search_keeps_its_version(work, capsys, here):
    here()
    searcher = Snapshot.open(work)
    ok(capsys, "delete", work, "d1")
    ok(capsys, "compact", work)
    said = ok(capsys, "vacuum", work)
    assert "removed versions: 2" in said
    assert "versions in use, or used by a process killed within five minutes: 1" in said
    assert len(searcher.search(["oak river"], k=5, beam=8)[0].hits) == 5
    searcher.close()
    assert "removed versions: 1" in ok(capsys, "vacuum", work)


def test_another_models_index_is_refused(work, capsys):
    now = current.read(work)
    current.write(work, now.model_copy(update={"artifacts": {**now.artifacts, "model": "0123456789ab"}}))
    for arguments in (["stats", work], ["add", work, work / "new.jsonl"], ["compact", work]):
        assert "got model" in refused(capsys, *arguments)


def test_a_cap_on_leaves(built, work, capsys, here, monkeypatch):
    here()
    monkeypatch.setattr("rayhier.index.stage.LEAF_FACTOR", 1)
    assert run([str(built / "spec.yaml"), "--set", f"workdir={work}", "--stage", "index", "--fresh"]) == 0
    manifest = leaf_map_of(work).manifest
    assert max(manifest.counts) <= -(-manifest.rows // 8)
    assert manifest.moved > 0
    assert current.artifact(work, current.read(work), "index").record.counts["moved"] == manifest.moved
    assert "whole" in ok(capsys, "verify", work)
