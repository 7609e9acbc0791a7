"""An index build that finds no room, a lost ledger, or numbers that are none: said clearly, nothing lost.

The real run command over real artifacts; the actors run in this process, where their faults can be arranged.
"""

import errno
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rayhier.executor import Pool
from rayhier.executor.here import Here
from rayhier.executor.ray import RayExecutor
from rayhier.index.__main__ import main as index
from rayhier.index.verify import verify
from rayhier.model.encoded import Encoded
from rayhier.run import main as run
from rayhier.search.routing import routes
from rayhier.spec import InputError
from rayhier.spec.cluster import Workers
from rayhier.storage import current, files, parquet
from rayhier.storage.ledger import Ledger

from ..conftest import leaf_map_of

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def actors_here(here):
    """Actors in this process; their errors come back as they do from others."""
    here()


def build(built, work, *overrides):
    """An index of four shards beside the one of three that is there."""
    sets = [part for one in (f"workdir={work}", "index.shards=4", *overrides) for part in ("--set", one)]
    return run([str(built / "spec.yaml"), "--stage", "index", *sets])


def full_after(monkeypatch, count, *below):
    """Let writes fail for lack of room after `count` writes. With `below`, only writes to these folders count."""
    write, written = parquet.write, []

    def fails(root, name, groups, schema):
        if name.startswith(below or ""):
            if len(written) == count:
                raise OSError(errno.ENOSPC, "No space left on device", str(root / name))
            written.append(name)
        return write(root, name, groups, schema)

    monkeypatch.setattr(parquet, "write", fails)


@pytest.mark.usefixtures("actors_here")
@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_no_room_while_an_index_is_built(count, built, work, capsys, monkeypatch):
    before = leaf_map_of(work).manifest
    with monkeypatch.context() as patched:
        full_after(patched, count)
        assert build(built, work) == 2
    said = capsys.readouterr().err
    assert "No space left on device. Finished work is kept. Make room and run again" in said
    assert str(work) in said
    assert leaf_map_of(work).manifest == before
    verify(current.artifact(work, current.read(work), "index").root)
    # With room it goes on from where it was.
    routed = list(work.glob("index/*/*/scratch/routed/*.parquet"))
    kept = {path: path.stat().st_mtime_ns for path in routed}
    monkeypatch.setattr(files, "remove", lambda _folder: None)
    assert build(built, work) == 0
    assert all(path.stat().st_mtime_ns == made for path, made in kept.items())
    assert (leaf_map_of(work).manifest.documents, len(leaf_map_of(work).manifest.shards)) == (before.documents, 4)


@pytest.mark.usefixtures("actors_here")
@pytest.mark.parametrize(("key", "what"), [("routed-", "documents"), ("shard-", "rows")])
def test_a_lost_ledger(key, what, built, work, capsys, monkeypatch):
    """Its entry is gone after the output was noted: nobody vouches for it, so nothing is published."""
    before, enter = leaf_map_of(work).manifest, Ledger.enter

    def forgets(ledger, name, entry):
        made = enter(ledger, name, entry)
        if name.startswith(key):
            (ledger.folder / f"{name}.json").unlink()
        return made

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "enter", forgets)
        assert build(built, work) == 2
    assert f"{what} are done. Nothing was published. Run it again" in capsys.readouterr().err
    assert leaf_map_of(work).manifest == before
    assert build(built, work) == 0
    assert leaf_map_of(work).manifest.documents == before.documents


@pytest.mark.usefixtures("actors_here")
def test_shards_of_parts_that_were_then_routed_otherwise_are_made_again(built, work, capsys, monkeypatch):
    """Half of the shards are there already, made by a machine whose arithmetic differs."""
    before = leaf_map_of(work).manifest
    with monkeypatch.context() as patched:
        full_after(patched, 4, "data/", "words/")
        assert build(built, work) == 2
    (scratch,) = work.glob("index/*/attempt-*/scratch")
    shards = {path: path.stat().st_mtime_ns for path in scratch.parent.glob("data/shard-*.parquet")}
    assert len(shards) == 2
    min((scratch / "ledger").glob("routed-*.json")).unlink()
    load = routes.open_router

    def otherwise(*given):
        router = load(*given)
        router.cells.centroid_LM = router.cells.centroid_LM[::-1]
        return router

    monkeypatch.setattr(routes, "open_router", otherwise)
    assert build(built, work) == 0
    assert all(path.stat().st_mtime_ns != made for path, made in shards.items())
    assert leaf_map_of(work).manifest.documents == before.documents
    verify(current.artifact(work, current.read(work), "index").root)
    capsys.readouterr()


@pytest.mark.usefixtures("actors_here")
def test_vectors_that_are_no_numbers(built, work, capsys, monkeypatch):
    before = leaf_map_of(work).manifest

    def broken(_, base_NM, *__):
        return Encoded(np.where(np.arange(len(base_NM))[:, None] == 1, np.nan, base_NM))

    monkeypatch.setattr(routes.Model, "encode_stored", broken)
    assert build(built, work) == 2
    assert "vectors: got 1 of " in (said := capsys.readouterr().err)
    assert "with NaN, infinity or too large a number" in said
    assert leaf_map_of(work).manifest == before


def test_an_encoder_that_makes_no_numbers(built, work, tiny_model, tmp_path, capsys, here):
    """Said before anything is trained on its vectors."""
    here()
    broken = shutil.copytree(tiny_model, tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    weights["embeddings.LayerNorm.weight"][3] = np.nan
    save_file(weights, broken / "model.safetensors")
    before = sorted(work.glob("*/*/record.json"))
    sets = ["--set", f"workdir={work}", "--set", f"encoder.model={broken}"]
    assert run([str(built / "spec.yaml"), "--stage", "embed", "--stage", "train", *sets]) == 2
    said = capsys.readouterr().err
    assert re.search(
        r"encoder.model: (\d+) of \1 vectors of \S+ hold NaN or infinity: '.*'.*, …; allowed: weights", said
    )
    assert sorted(work.glob("*/*/record.json")) == before


@pytest.mark.parametrize("command", ["add", "delete", "compact"])
@pytest.mark.usefixtures("actors_here")
def test_no_room_while_an_index_is_changed(command, work, tmp_path, capsys, monkeypatch):
    (tmp_path / "new.jsonl").write_text('{"_id": "new", "title": "new", "text": "oak elm"}\n')
    given = {"add": [str(tmp_path / "new.jsonl")], "delete": ["d1"], "compact": []}[command]
    assert index(["delete", str(work), "d2"]) == 0  # so that there is something to compact
    before = leaf_map_of(work).manifest
    full_after(monkeypatch, 0)
    assert index([command, str(work), *given]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert leaf_map_of(work).manifest == before
    verify(current.artifact(work, current.read(work), "index").root)


@pytest.mark.parametrize("executor", [Here(), RayExecutor()], ids=["here", "ray"])
def test_an_actor_without_room_says_so(executor, cluster):
    """An actor's full disk reaches the driver as one sentence."""

    class Full:
        def __call__(self, item):
            yield item
            raise OSError(errno.ENOSPC, "No space left on device", "/full")

    class Broken:
        def __call__(self, item):
            yield item
            raise InputError("vectors: 1 of 2 hold NaN")

    for actor, said in ((Full, "/full: No space left on device. Finished"), (Broken, "vectors: 1 of 2 hold NaN")):
        with pytest.raises(InputError, match=said):
            list(executor.stream([{"n": 1}, {"n": 2}], Pool(actor, {}, Workers(workers=1))))
