"""The train stage on Ray Train: what trains, and that the number of workers changes nothing but the time."""

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

from rayhier import run
from rayhier.dataset.documents import document_texts
from rayhier.embed import stage as embedding
from rayhier.embed.encode import TextEncoder
from rayhier.evaluate import stage as evaluation
from rayhier.evaluate.report import Report
from rayhier.index import stage as index
from rayhier.model import adoption
from rayhier.model.adoption import Adoption
from rayhier.search.index import open_leaf_map
from rayhier.search.snapshot import Snapshot
from rayhier.spec import JobSpec
from rayhier.storage import columns, current, files
from rayhier.storage.artifact import Artifact
from rayhier.train import stage as train

from ..conftest import WORDS, leaf_map_of, one_worker_each
from ..toys import tiny_t5
from .in_process import make

pytestmark = pytest.mark.usefixtures("cluster")

TRAIN = "{epochs: 2, batch_size: 17, encoder_lr: 1e-3}"
SETTINGS = {
    "learned_ivf": (TRAIN, "{type: learned_ivf, branching: 8}"),
    "hce": (TRAIN.replace("{", "{type: hce, tree: {recluster: every}, "), "{type: hce}"),
}
PHASES = {"learned_ivf": {"encoder": [0, 1, 2], "router": [0, 1, 2, 3, 4, 5]}, "hce": {"encoder": [0, 1, 2]}}


def model(work: Path) -> Artifact:
    return Artifact.open(next((work / "model").iterdir()))


@pytest.mark.slow
@pytest.mark.parametrize("training", SETTINGS)
def test_two_workers_train_what_one_does(training, embedded, tiny_spec, tmp_path):
    """By one worker in this process, then by two of Ray from the same artifacts: who works is in no fingerprint."""
    encoder = tiny_spec().read_text().splitlines()[3].removeprefix("encoder: ").replace("}", ", train: all}")
    trains, router = SETTINGS[training]
    work = shutil.copytree(embedded / "work", tmp_path / "work")
    names = ("router/router.safetensors", "encoder/model.safetensors")
    histories, weights = [], []
    for workers in (1, 2):
        cluster = f"{{train: {{workers: {workers}, checkpoint_seconds: 0, micro_batch: 5}}}}"
        spec = tiny_spec(encoder=encoder, router=router, train=trains, cluster=cluster)
        if workers == 1:
            make(spec, "train")
        else:
            assert run.main([str(spec), "--stage", "train", "--fresh"]) == 0
        histories.append(files.read_json(model(work).path("metrics.json")))
        weights.append({name: load_file(model(work).path(name)) for name in names})
    for history in histories:
        assert {phase: [row["epoch"] for row in rows] for phase, rows in history.items()} == PHASES[training]
    for phase in PHASES[training]:
        for one, other in zip(*(history[phase] for history in histories), strict=True):
            assert one == pytest.approx(other, abs=1e-4)
    for name in names:
        assert weights[0][name].keys() == weights[1][name].keys()
        for tensor in weights[0][name]:
            np.testing.assert_allclose(weights[0][name][tensor], weights[1][name][tensor], atol=1e-4)


@pytest.mark.parametrize("training", ["learned_ivf", "ehi"])
def test_a_trained_last_layer_is_what_indexes_and_searches(
    training, embedded, tiny_spec, tmp_path, tiny_model, monkeypatch, here
):
    """The last layer moves, the rest does not; index, evaluation and search all use it, and embed's precision."""
    here()
    followed: list[str] = []
    for stage in (train, index, evaluation):
        follow = partial(_follow, followed, stage.__name__, stage.as_embedded)
        monkeypatch.setattr(stage, "as_embedded", follow)
    work = shutil.copytree(embedded / "work", tmp_path / "work")
    adopt = ", adopt: always" if training == "learned_ivf" else ""
    spec = tiny_spec(
        encoder=f"{{model: {tiny_model}, max_length: 32, precision: float32, train: last_layer{adopt}}}",
        train="{epochs: 2, batch_size: 16, encoder_lr: 1e-2, hard_negatives: {source: exact}}",
        router=f"{{type: {training}, branching: 8}}",
        cluster=one_worker_each(),
    )
    assert run.main([str(spec)]) == 0
    before, after = (
        load_file(tiny_model / "model.safetensors"),
        load_file(model(work).path("encoder/model.safetensors")),
    )
    moved = {name for name in after if not np.array_equal(before[name], after[name])}
    assert moved
    assert all(name.startswith("encoder.layer.0.") for name in moved)
    searcher = Snapshot.open(work)
    texts = ["leaf river 3", "ash elm wolf"]
    wanted = SentenceTransformer(str(model(work).path("encoder")), device="cpu").encode(texts)
    np.testing.assert_allclose(searcher.model.text_encoder.encode(texts), wanted, atol=1e-5)
    leaf_map = open_leaf_map(work, current.read(work))
    row = leaf_map.read(leaf_map.manifest.shards[0]).slice(0, 1).to_pylist()[0]
    found = searcher.model.text_encoder.encode([f"{row['title']} {row['text']}".strip()])
    np.testing.assert_allclose(found[0], row["vector"], atol=1e-5)
    assert current.read(work).spec.encoder.train == "last_layer"
    evaluated = "rayhier.evaluate.stage"
    assert followed == [evaluated, "rayhier.train.stage", "rayhier.index.stage", evaluated]
    assert model(work).record.counts["precision"] == "float32"


@pytest.mark.parametrize("adopt", ["auto", "always", "none"])
def test_an_encoder_of_which_nobody_says_that_it_gains_stays_the_base(
    adopt, embedded, tiny_spec, tmp_path, tiny_model, monkeypatch, here
):
    """The vectors of the index are then those of the base encoder; folds of train queries tell, as dev has few."""
    here()
    monkeypatch.setattr(adoption, "ERRORS", 1e9)
    work = shutil.copytree(embedded / "work", tmp_path / "work")
    part = "train: none" if adopt == "none" else f"train: head, adopt: {adopt}"
    spec = tiny_spec(
        encoder=f"{{model: {tiny_model}, max_length: 32, precision: float32, {part}}}",
        train="{epochs: 8, batch_size: 16, encoder_lr: 1e-2, anchor: 0}",
        cluster=one_worker_each(),
    )
    assert run.main([str(spec)]) == 0
    texts = ["leaf river 3", "ash elm wolf"]
    trained = Snapshot.open(work).model.text_encoder.encode(texts)
    base = TextEncoder(tiny_model, current.read(work).spec.encoder).encode(texts)
    assert np.allclose(trained, base, atol=1e-5) == (adopt != "always")
    report = Report.read(work / "report.json")
    published = Adoption.open(model(work))
    phases = ["router"] if adopt == "none" else ["encoder", "router"]
    assert list(files.read_json(model(work).path("metrics.json"))) == phases
    if adopt != "auto":
        assert (published, report.adoptions) == (None, [])
        return
    assert published is not None
    assert report.adoptions == [published]
    assert (published.adopted, published.source) == (False, "train queries in folds")
    assert 60 < published.queries <= 80
    assert "so the base encoder stays" in (work / "report.md").read_text()


@pytest.mark.parametrize("part", ["head", "last_layer", "all"])
def test_a_t5_with_prompts_trains_and_searches(part, tiny_spec, tmp_path):
    """Stored vectors of documents, and vectors of searched queries, are those of the trained encoder's folder."""
    modules = [Transformer(str(tiny_t5(tmp_path / "t5", WORDS))), Pooling(32, "mean"), Normalize()]
    SentenceTransformer(modules=modules, prompts={"query": "ask: "}, device="cpu").save(str(tmp_path / "base"))
    given = f"{tmp_path / 'base'}, document_prefix: 'river: ', max_length: 32, precision: float32"
    make(tiny_spec(encoder=f"{{model: {given}, train: {part}, adopt: always}}", train="{epochs: 1, encoder_lr: 1e-2}"))
    work = tmp_path / "work"
    trained, searcher = SentenceTransformer(str(model(work).path("encoder")), device="cpu"), Snapshot.open(work)
    texts = ["leaf river 3", "ash elm wolf"]
    query_QM = trained.encode_query(texts)
    np.testing.assert_allclose(searcher.model.encode_queries(texts).numpy, query_QM, atol=1e-5)
    base_QM = TextEncoder(tmp_path / "base", current.read(work).spec.encoder).encode(texts, "query")
    assert np.abs(base_QM - query_QM).max() > 1e-3
    rows = leaf_map_of(work).read(leaf_map_of(work).manifest.shards[0])
    wanted = trained.encode_document(document_texts(rows))
    np.testing.assert_allclose(columns.matrix(rows["vector"]), wanted, atol=1e-5)


def _follow(
    followed: list[str], stage: str, as_embedded: Callable[..., JobSpec], spec: JobSpec, vectors: Artifact, gpus: float
) -> JobSpec:
    """Note a stage that asks for embed's precision, and say that this was float32."""
    followed.append(stage)
    assert as_embedded(spec, vectors, gpus).encoder.precision == spec.encoder.precision == "float32"
    return spec


def test_a_run_says_how_much_its_encoders_worked(embedded, tiny_spec, tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(embedding, "log", said.append)
    shutil.copytree(embedded / "work" / "corpus", tmp_path / "work" / "corpus")
    make(tiny_spec(workdir=str(tmp_path / "work")), "embed")
    assert re.fullmatch(r"  encoders: [\d,]+ tokens, at work \d+% of their time, .* each", "".join(said))
