"""Document trees on a local Ray cluster, and from the shell."""

import re

import faiss
import numpy as np
import pyarrow as pa
import pytest

from rayhier.cluster import __main__ as command
from rayhier.cluster import stored
from rayhier.cluster.ray import grow_streamed
from rayhier.cluster.shape import statistics
from rayhier.spec import InputError
from rayhier.spec.cluster import CpuWorkers
from rayhier.spec.train.hce import node_counts
from rayhier.storage import columns, files, schemas

from .in_process import in_this_process, threads_as_before

pytestmark = pytest.mark.usefixtures("cluster")

BRANCHING, CELL_ROWS, M = 4, 300, 8
PARTS = {"a": 500, "b": 0, "c": 301}


@pytest.fixture(scope="module")
def vectors():
    """Vector of each document, around twenty directions."""
    rng = np.random.default_rng(0)
    found = rng.normal(size=(20, M))[rng.integers(0, 20, sum(PARTS.values()))] + 0.5 * rng.normal(size=(801, M))
    found = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
    return {f"{part}{row}": found[row + 500 * (part == "c")] for part, rows in PARTS.items() for row in range(rows)}


@pytest.fixture(scope="module")
def parts(vectors, tmp_path_factory):
    """Files of them, one empty."""
    folder = tmp_path_factory.mktemp("parts")
    for part in PARTS:
        ids = [name for name in vectors if name.startswith(part)]
        own = np.array([vectors[name] for name in ids], np.float32).reshape(-1, M)
        table = pa.table([ids, columns.vector_column(own, pa.float32())], schema=schemas.vectors("doc_id", M))
        files.write_parquet(folder, f"{part}.parquet", [table], table.schema)
    return [folder / f"{part}.parquet" for part in PARTS]


@pytest.fixture(scope="module")
def trees(cluster, parts, tmp_path_factory):
    """The folder and the levels that one worker made in this process, and two of Ray."""
    made = []
    for workers in (1, 2):
        folder = tmp_path_factory.mktemp(f"tree{workers}")
        scratch, pool = folder / "scratch", CpuWorkers(workers=workers)
        with pytest.MonkeyPatch.context() as patch, threads_as_before():
            if workers == 1:
                in_this_process(patch, "cluster")
            levels = grow_streamed(parts, BRANCHING, 3, folder / "tree", scratch, pool, cell_rows=CELL_ROWS)
        assert files.below(scratch) == []
        made.append((folder / "tree", levels))
    return made


def test_every_document_is_below_one_node_near_it(trees, vectors):
    tree, ids = stored.read(trees[0][0])
    assert len(files.below(trees[0][0])) > 2, "one cell only"
    assert sorted(ids) == sorted(vectors)
    assert [len(one) for one in tree.centroids] == [len(one) for one in tree.parents] == node_counts(801, BRANCHING)
    for parents, above in zip(tree.parents, [1, *tree.centroids], strict=False):
        assert set(parents.tolist()) <= set(range(1 if isinstance(above, int) else len(above)))
    vector_NM = np.stack([vectors[name] for name in ids])
    cosine = np.einsum("nm,nm->n", vector_NM, tree.centroids[-1][tree.leaf_N])
    best = (vector_NM @ tree.centroids[-1].T).max(axis=1)
    assert cosine.mean() > best.mean() - 0.03
    stored_sizes = files.read_table(trees[0][0] / stored.NODES)["size"].to_numpy()
    assert stored_sizes.tolist() == np.concatenate(tree.sizes()).tolist()


def test_streaming_costs_little_of_the_objective_of_flat_k_means(trees, vectors):
    tree, ids = stored.read(trees[0][0])
    vector_NM = np.stack([vectors[name] for name in ids])
    flat = faiss.Kmeans(M, len(tree.centroids[-1]), niter=25, spherical=True, min_points_per_centroid=1)
    flat.train(vector_NM)
    streamed, wanted = (
        (vector_NM @ centroids.T).max(axis=1).mean() for centroids in (tree.centroids[-1], flat.centroids)
    )
    assert streamed > wanted - 0.01, (streamed, wanted)


def test_levels_are_those_of_the_tree(trees, vectors):
    folder, levels = trees[0]
    tree, ids = stored.read(folder)
    wanted = statistics(tree, np.stack([vectors[name] for name in ids]))
    for found, own in zip(levels, wanted, strict=True):
        assert found.cosine == pytest.approx(own.cosine, abs=1e-5)
        assert (found.level, found.nodes, found.empty, found.largest) == (own.level, own.nodes, own.empty, own.largest)
    assert levels[-1].empty == 0


def test_any_number_of_workers_grows_the_same_tree(trees):
    (one, _), (two, _) = trees
    assert files.below(one) == files.below(two)
    assert [(one / name).read_bytes() for name in files.below(one)] == [
        (two / name).read_bytes() for name in files.below(two)
    ]


def test_a_tree_is_not_mixed_with_another(trees, parts, tmp_path):
    with pytest.raises(
        InputError, match=r"holds a tree already; allowed: a folder without nodes.parquet and documents"
    ):
        grow_streamed(parts, BRANCHING, 3, trees[0][0], tmp_path, CpuWorkers())


def test_the_shell_shows_the_tree_of_a_workdir(work, tmp_path, capsys):
    dump, output = tmp_path / "tree.txt", tmp_path / "tree"
    assert command.main([str(work), "--branching", "6", "--dump", str(dump), "--output", str(output)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("240 documents, height 4 (")
    assert [line.split()[:3] for line in said[2:]] == [["1", "2", "0"], ["2", "7", "0"], ["3", "40", "0"]]
    lines = dump.read_text().splitlines()
    assert len(lines) == 1 + 2 + 7 + 40
    assert re.fullmatch(r"      [0-9]+: [0-9]+ documents?: ([a-z]+ [0-9]+|…)(; ([a-z]+ [0-9]+|…))*", lines[3])
    tree, ids = stored.read(output)
    assert sorted(ids) == sorted(f"d{n}" for n in range(240))
    assert [len(one) for one in tree.centroids] == [2, 7, 40]


def test_the_shell_streams_what_is_too_large(parts, tmp_path, capsys, monkeypatch, here):
    here("cluster")
    monkeypatch.setattr(command, "IN_MEMORY", 0)
    dump, output = tmp_path / "tree.txt", tmp_path / "tree"
    own = [str(parts[0].parent), "--branching", "30", "--dump", str(dump), "--depth", "1"]
    assert command.main(own) == 2
    assert "error: --output: needed for 0.0 GB of vectors" in capsys.readouterr().err
    assert command.main([*own, "--output", str(output)]) == 0
    assert capsys.readouterr().out.startswith("801 documents, height 2 (")
    assert len(dump.read_text().splitlines()) == 28
    assert sorted(stored.read(output)[1]) == sorted(
        f"{part}{row}" for part, rows in PARTS.items() for row in range(rows)
    )


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        ("embedding", pa.list_(pa.float32(), 2), "no column vector; it has doc_id, embedding"),
        ("vector", pa.float32(), "vector is float; allowed: a fixed_size_list"),
    ],
)
def test_files_without_vectors(tmp_path, capsys, column, kind, message):
    table = pa.table({"doc_id": ["a"], column: pa.array([[0.6, 0.8]] if pa.types.is_nested(kind) else [0.6], kind)})
    files.write_parquet(tmp_path, "part.parquet", [table], table.schema)
    assert command.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'part.parquet'}: {message}\n"


def test_a_folder_of_nothing(tmp_path, capsys):
    assert command.main([str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {tmp_path / 'none'}: no current.json and no parquet files; allowed:")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("seed", ["-1", "2147483648", "one"])
def test_a_seed_that_k_means_does_not_take(capsys, seed):
    with pytest.raises(SystemExit, match="2"):
        command.main(["anywhere", f"--seed={seed}"])
    assert f"argument --seed: got '{seed}'; allowed: 0 to 2147483647" in capsys.readouterr().err


def test_a_branching_of_one(capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["anywhere", "--branching", "1"])
    assert "argument --branching: got '1'; allowed: 2 or more" in capsys.readouterr().err
