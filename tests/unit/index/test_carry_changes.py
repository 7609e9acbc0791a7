"""The changes of an index are in the index of the model that is trained after it."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.index.carry_changes import carry_changes
from rayhier.index.verify import verify
from rayhier.job.run import carry_changes as carry_into
from rayhier.search.routing.routes import Model
from rayhier.search.segment.stored import Listing
from rayhier.search.snapshot import Snapshot
from rayhier.spec import InputError
from rayhier.storage import current, parquet, schemas
from rayhier.storage.artifact import Artifact, Place
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.change_log import Change, ChangeLog
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.writer_lease import leased

from ...draws import unit
from ..serve.conftest import INDEX, OTHER_INDEX, OTHER_MODEL, TEXTS, N, make_published
from .changes import compacted

M = 32
FIELDS = schemas.documents({"year": "int"}, passages=False)


def documents(**texts):
    rows = [{"doc_id": name, "title": "", "text": text, "year": 1800} for name, text in texts.items()]
    return schemas.pa.Table.from_pylist(rows, FIELDS)


class Two:
    """Two models in one workdir, with an index each, built from one corpus."""

    def __init__(self, work, nows):
        self.work, self.nows = work, nows

    @classmethod
    def build(cls, work, tiny_model):
        make_published(work, tiny_model)
        with Attempt.start(Place(work / "corpus" / "c0c0c0c0c0c0")) as attempt:
            built = [{"doc_id": f"d{n}", "title": f"title {n}", "text": TEXTS[n], "year": 1900 + n} for n in range(N)]
            table = schemas.pa.Table.from_pylist(built, FIELDS)
            parquet.write(attempt.root, "documents/0.parquet", [table], FIELDS)
            attempt.publish("corpus", {}, Output({}))
        nows = {INDEX: current.read(work)}
        head = unit(4, M, M)
        make_published(work, tiny_model, model=OTHER_MODEL, index=OTHER_INDEX, head=head.astype(np.float32))
        return cls(work, nows | {OTHER_INDEX: current.read(work)})

    def model(self, index):
        model = Model.of_workdir(self.work, self.nows[index])
        stored = model.spec.index.model_copy(update={"vectors": "float32"})  # as in the indexes built here
        model.spec = model.spec.model_copy(update={"index": stored})
        return model

    def artifact(self, index):
        artifact = Artifact.open(self.work / "index" / index)
        inputs = {**artifact.record.inputs, "corpus": "c0c0c0c0c0c0"}
        return Artifact(artifact.folder, artifact.record.model_copy(update={"inputs": inputs}))

    def root(self, index):
        return self.artifact(index).root

    def put(self, index, number, **texts):
        model = self.model(index)
        assign = Assigner(model.router, model.spec, model.spec.name)
        table = documents(**texts)
        rows = assign(table, model.encode(table["text"].to_pylist()))
        assert ChangeLog(self.root(index)).append(Change(number, "put", rows, documents=len(texts)))

    def delete(self, index, number, *names):
        table = schemas.pa.table({"doc_id": list(names)})
        assert ChangeLog(self.root(index)).append(Change(number, "delete", table, documents=len(names)))

    def add(self, index, **texts):
        """As the shell does: a version, not a change of the log."""
        model = self.model(index)
        table = documents(**texts)
        assign = Assigner(model.router, model.spec, self.nows[index].artifacts["model"])
        change.upsert(self.root(index), assign, [(table, model.encode(table["text"].to_pylist()))], 4)

    def carry(self, source, target):
        return carry_changes(self.artifact(source), self.artifact(target), self.model(target))

    def texts(self, index):
        searcher = Snapshot.of_version(self.work, self.nows[index])
        return {document.id: document.text for document in searcher.documents(Listing("", 1_000))}


@pytest.fixture(scope="module")
def built(tmp_path_factory, tiny_model):
    return Two.build(tmp_path_factory.mktemp("two") / "work", tiny_model)


@pytest.fixture
def two(built, tmp_path):
    """A copy for one test alone."""
    return Two(shutil.copytree(built.work, tmp_path / "work"), dict(built.nows))


BUILT = {f"d{n}": TEXTS[n] for n in range(N)}


@pytest.mark.parametrize("state", ["tail", "folded", "compacted"])
def test_changes_are_carried_wherever_they_are(two, state):
    two.add(INDEX, shell="oak shell", d5="five of the shell")
    change.delete(two.root(INDEX), ["d6"])
    if state == "compacted":
        compacted(two.root(INDEX))
    two.put(INDEX, 1, a="oak a", b="oak b", d7="seven")
    two.delete(INDEX, 2, "b", "d8")
    if state == "folded":
        change.fold(two.root(INDEX))
    carried = two.carry(INDEX, OTHER_INDEX)
    changed = {"shell": "oak shell", "d5": "five of the shell", "a": "oak a", "d7": "seven"}
    expected = {name: text for name, text in (BUILT | changed).items() if name not in ("d6", "d8")}
    assert two.texts(OTHER_INDEX) == expected == two.texts(INDEX)
    assert (carried.written, carried.removed, carried.log) == (4, 2, 2)
    manifest = LeafMap.open(two.root(OTHER_INDEX)).manifest
    assert (manifest.log, manifest.documents, manifest.model) == (2, len(expected), OTHER_MODEL)
    verify(two.root(OTHER_INDEX))
    model = two.model(OTHER_INDEX)
    searcher = Snapshot.of_version(two.work, two.nows[OTHER_INDEX])
    found = searcher.search(model.encode(["oak a"]).numpy, 1)
    assert (found[0].hits[0].id, found[0].hits[0].score) == ("a", pytest.approx(1.0, abs=1e-3))  # float16


def test_back_and_forth(two):
    assert two.carry(INDEX, OTHER_INDEX) is None
    assert LeafMap.open(two.root(OTHER_INDEX)).manifest.version == 1
    assert two.carry(INDEX, OTHER_INDEX) is None
    assert LeafMap.open(two.root(OTHER_INDEX)).manifest.version == 1
    two.put(INDEX, 1, a="oak a", d7="seven", d9="nine")
    two.carry(INDEX, OTHER_INDEX)
    two.delete(OTHER_INDEX, 2, "a")
    two.put(OTHER_INDEX, 3, b="oak b", d7=TEXTS[7])
    carried = two.carry(OTHER_INDEX, INDEX)
    assert two.texts(INDEX) == two.texts(OTHER_INDEX) == BUILT | {"b": "oak b", "d9": "nine"}
    assert (carried.written, carried.removed, carried.log) == (2, 1, 3)
    two.put(INDEX, 4, c="oak c")
    two.carry(INDEX, OTHER_INDEX)
    assert two.texts(OTHER_INDEX) == two.texts(INDEX)
    assert LeafMap.open(two.root(OTHER_INDEX)).manifest.log == 4


def test_a_server_that_stays_at_the_index_before_two_trainings_loses_nothing(two, tiny_model):
    work, third = two.work, "333333333333"
    plan, now = SimpleNamespace(workdir=work), two.nows[OTHER_INDEX]
    current.write(work, two.nows[INDEX])
    with leased(two.root(INDEX)):
        two.put(INDEX, 1, early="new")
        assert carry_into(plan, now.spec, now.artifacts) == INDEX
        two.put(INDEX, 2, later="newer")
        make_published(work, tiny_model, index=third, model="444444444444")
        two.nows[third] = current.read(work)
        current.write(work, now.model_copy(update={"before": INDEX}))
        assert carry_into(plan, two.nows[third].spec, two.nows[third].artifacts) == INDEX
    opened = LeafMap.open(two.root(third))
    assert opened.manifest.log == 2
    ids = {name for shard in opened.manifest.shards for name in opened.read(shard, ["doc_id"])["doc_id"].to_pylist()}
    assert {"early", "later"} <= ids


def test_what_was_written_after_a_carry_is_carried_by_the_same_run_again(two):
    plan, now = SimpleNamespace(workdir=two.work), two.nows[OTHER_INDEX]
    current.write(two.work, two.nows[INDEX])
    two.put(INDEX, 1, early="new")
    assert carry_into(plan, now.spec, now.artifacts) == INDEX
    current.write(two.work, now.model_copy(update={"before": INDEX}))
    before = LeafMap.open(two.root(OTHER_INDEX)).manifest.version
    assert carry_into(plan, now.spec, now.artifacts) == INDEX
    assert LeafMap.open(two.root(OTHER_INDEX)).manifest.version == before, "nothing came since"
    two.put(INDEX, 2, later="newer")
    change.rollback(two.root(INDEX), 1)
    two.put(INDEX, 3, last="newest")
    assert carry_into(plan, now.spec, now.artifacts) == INDEX
    assert LeafMap.open(two.root(OTHER_INDEX)).manifest.log == 3
    assert two.texts(OTHER_INDEX) == BUILT | {"last": "newest"}, "a rollback left the first two behind"


def test_what_a_rollback_undid_after_a_carry_is_undone_by_the_next_carry(two):
    two.add(INDEX, shell="oak shell", d5="five of the shell")
    two.put(INDEX, 1, a="oak a", d7="seven")
    change.fold(two.root(INDEX))
    two.carry(INDEX, OTHER_INDEX)
    two.add(OTHER_INDEX, mine="elm mine")
    change.rollback(two.root(INDEX), 1)
    two.carry(INDEX, OTHER_INDEX)
    assert two.texts(INDEX) == BUILT
    assert two.texts(OTHER_INDEX) == BUILT | {"mine": "elm mine"}
    manifests = [LeafMap.open(two.root(index)).manifest for index in (INDEX, OTHER_INDEX)]
    assert manifests[0].undone_in == manifests[0].version == manifests[1].taken
    assert two.carry(INDEX, OTHER_INDEX).written == 0
    assert LeafMap.open(two.root(OTHER_INDEX)).manifest == manifests[1]


def test_an_index_of_passages_is_not_carried_into_one_of_whole_documents(two):
    two.put(INDEX, 1, a="oak a")
    model = two.model(OTHER_INDEX)
    passages = {"words": 3, "stride": 2}
    spec = model.spec.model_dump() | {"corpus": {**model.spec.corpus.model_dump(), "passages": passages}}
    model.spec = type(model.spec).model_validate(spec)
    with pytest.raises(InputError, match=r"corpus\.passages: got"):
        carry_changes(two.artifact(INDEX), two.artifact(OTHER_INDEX), model)
