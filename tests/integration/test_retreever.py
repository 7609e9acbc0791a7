"""ReTreever from a folder to a served level of its tree: trained on Ray, indexed with sidecars, searched, changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from rayhier import run
from rayhier.index import __main__ as index
from rayhier.search import __main__ as search
from rayhier.search.searcher import Searcher
from rayhier.storage import current, files
from rayhier.storage.leaf_map import LeafMap

pytestmark = pytest.mark.usefixtures("cluster")

TRAIN = "type: retreever, epochs: 2, batch_size: 64"


def test_a_tree_over_vectors_is_trained_searched_by_level_and_changed(
    embedded: Path, tiny_spec: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command on Ray: contrast, adapter and tree; then an added document, and the shell."""
    work = shutil.copytree(embedded / "work", tmp_path / "work")
    spec = tiny_spec(
        train=f"{{{TRAIN}}}",
        router="{type: retreever, depth: 5}",
        search="{k: 5, how: level, level: 3, finish: vectors, shortlist: 60}",
        evaluate="{measures: [R@10], baselines: [exact_same_encoder], visited: [1.0]}",
    )
    assert run.main([str(spec)]) == 0
    now = current.read(work)
    model = current.artifact(work, now, "model")
    history = files.read_json(model.path("metrics.json"))
    assert list(history) == ["encoder", "adapter", "tree"]
    assert [row["epoch"] for row in history["tree"]] == [0, 1, 2]
    report = files.read_json(work / "report.json")
    (point,) = report["curves"]["retreever"]
    assert point["visited_mean"] == 1.0
    assert point["cost_mean"] < 1.0
    there = LeafMap.open(current.artifact(work, now, "index").root)
    assert all(shard.sidecars["nodes"].maker == now.artifacts["model"] for shard in there.manifest.shards)
    capsys.readouterr()

    new = tmp_path / "new.jsonl"
    new.write_text(json.dumps({"_id": "fresh", "title": "", "text": "quixotic zebra umbrella"}) + "\n")
    assert index.main(["add", str(work), str(new)]) == 0
    capsys.readouterr()
    assert search.main([str(work), "quixotic zebra umbrella", "-k", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "fresh" in said[0]
    assert said[-1] == (
        "compared all 241 documents by 8 numbers, level 3 of the tree, 60 of them again by their vectors"
    )
    assert search.main([str(work), "quixotic zebra umbrella", "--beam", "3"]) == 2
    assert capsys.readouterr().err.startswith("error: beam: got 3, but search.how is level")


def test_a_tree_over_tokens(
    embedded: Path, tiny_spec: Callable[..., Path], tiny_model: Path, tmp_path: Path, here: Callable[..., None]
) -> None:
    """Attention inside a frozen encoder: documents are encoded again to be routed; the deepest level ranks."""
    here()
    work = shutil.copytree(embedded / "work", tmp_path / "work")
    spec = tiny_spec(
        encoder=f"{{model: {tiny_model}, max_length: 32, precision: float32, train: none}}",
        train=f"{{{TRAIN}, similarity: tv}}",
        router="{type: retreever, depth: 4, splits: attention, propagation: learned, dropout: 0.1}",
        search="{k: 5, how: level, level: 2, finish: level}",
    )
    assert run.main([str(spec), "--stage", "train", "--stage", "index"]) == 0
    model = current.artifact(work, current.read(work), "model")
    assert list(files.read_json(model.path("metrics.json"))) == ["tree"]
    assert not (model.path("encoder") / "2_Dense").exists()
    base, kept = load_file(tiny_model / "model.safetensors"), load_file(model.path("encoder/model.safetensors"))
    assert all((base[name] == kept[name]).all() for name in kept)
    searcher = Searcher.open(work)
    lines = (embedded / "corpus" / "corpus.jsonl").read_text().splitlines()
    documents = [json.loads(line) for line in lines[:20]]
    answers = searcher.search([f"{one['title']} {one['text']}" for one in documents], k=3)
    found = [answer.hits[0].id == one["_id"] for one, answer in zip(documents, answers, strict=True)]
    assert sum(found) >= 18


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"router": "{type: retreever, depth: 0}"}, "router.depth: got 0; allowed: greater than or equal to 1"),
        ({"router": "{type: retreever, depth: 17}"}, "router.depth: got 17; allowed: less than or equal to 16"),
        ({"router": "{type: retreever, depth: 8}"}, "router.depth: got 8, 256 leaves; allowed: at most as many leaves"),
        ({"search": "{how: level}"}, "search.how: got 'level' with router.type learned_ivf; allowed: leaves"),
        (
            {"router": "{type: retreever, depth: 4}", "search": "{how: level, level: 5}"},
            "search.level: got 5; allowed: at most 4, router.depth",
        ),
        (
            {"router": "{type: retreever, depth: 4}", "search": "{k: 50, how: level, shortlist: 49}"},
            "search: got ",
        ),
        (
            {"router": "{type: retreever, depth: 4}", "search": "{how: level, level: 4, finish: level}"},
            "search.finish: got 'level' with search.level 4, the deepest; allowed: none, vectors, or a smaller level",
        ),
        ({"search": "{level: 4}"}, "search.level: got 4; allowed: the default; others only where how is level"),
        (
            {"router": "{type: retreever, splits: linear, aggregation: shared}"},
            "router.aggregation: got 'shared'; allowed: the default; others only where splits is attention",
        ),
        (
            {"router": "{type: retreever, splits: attention}", "train": "{type: retreever, start: mrl}"},
            "train.start: got 'mrl' with router.splits attention; allowed: auto, random",
        ),
        (
            {
                "router": "{type: retreever, depth: 4}",
                "train": "{type: retreever, objective: supervised}",
                "corpus": None,
            },
            "train.objective: got 'supervised'",
        ),
        (
            {"router": "{type: retreever, splits: mlp}", "train": "{type: retreever, start: kmeans}"},
            "train.start: got 'kmeans' with router.splits mlp; allowed: auto, random, mrl",
        ),
        ({"encoder": "none"}, "encoder.train: got 'none' with train.type contrast, which trains it; allowed: head"),
    ],
)
def test_what_does_not_fit_is_one_line(
    sections: dict[str, str | None],
    said: str,
    tiny_spec: Callable[..., Path],
    tiny_corpus: Path,
    tiny_model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = dict(sections)
    if "corpus" in given:
        given["corpus"] = f"{{type: jsonl, documents: {tiny_corpus}/corpus.jsonl, columns: {{id: _id}}}}"
    if "encoder" in given:
        given["encoder"] = f"{{model: {tiny_model}, max_length: 32, train: none}}"
    assert run.main([str(tiny_spec(**given)), "--plan"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]
