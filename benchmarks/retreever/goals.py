"""Goals that were set before anything was measured, and what came out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.goals import Goal
from benchmarks.retreever import rows
from benchmarks.retreever.bench import MEASURES, Sized
from benchmarks.retreever.levels import Speeds
from benchmarks.statistics import Curve
from rayhier.arrays import Values

RECALL, NDCG, DEEP = "R@10", "nDCG@10", "R@100"


@dataclass(frozen=True)
class Findings:
    """All that is measured of one collection."""

    name: str
    about: str
    told: Sized
    """Rows at every size."""
    leaves: Mapping[str, Mapping[str, Values]]
    """Tree -> what its best leaf alone finds."""
    curves: Mapping[str, Curve]
    """Tree, or lists of k-means -> recall at documents visited."""
    similarities: Mapping[str, Mapping[str, Values]]
    """Tree -> cosines of documents by the depth of their lowest common ancestor."""
    stored: Mapping[int, Mapping[str, Values]]
    """Level -> what it finds as an index stores it."""
    shortlists: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    """How a shortlist is made -> what it finds."""
    times: Speeds | None = None
    attending: Sized | None = None
    """Splits by attention beside others, of as many steps."""
    distances: Mapping[str, Values] | None = None
    """Cosines of the embeddings of splits by their distance."""

    @property
    def exact(self) -> Mapping[str, Values]:
        """Measures [s, q] of an exact search by the trained encoder's vectors."""
        return self.told.found[rows.TRAINED.name][self.told.full(rows.TRAINED.name)]


def goals_of(found: Findings) -> Iterator[Goal]:
    """Goals of one collection."""
    told = found.told
    whole = {name: {one: told.mean(name, told.full(name), one) for one in MEASURES} for name in told.found}
    for measure in (RECALL, NDCG):
        ratio = whole[rows.SHIPPED.name][measure] / whole[rows.LINEAR.name][measure]
        yield Goal(f"1,024 numbers over the linear adapter, {measure}", ratio, 0.98)
        yield Goal(f"1,024 numbers over the linear adapter, {measure} (the stretch)", ratio, 1.0)
        points = told.difference(rows.SHIPPED.name, rows.NO_TREE.name, measure).value
        yield Goal(f"1,024 numbers over no tree, {measure}, points", points, -1.0)
    if found.name == "oewn_examples":
        points = told.difference(rows.SHIPPED.name, rows.UNTOUCHED.name, RECALL).value
        yield Goal(f"1,024 numbers over the untouched encoder, {RECALL}, points", points, 6.0)
    for measure in (RECALL, NDCG):
        best = max(told.coarse(row.name, measure).mean() for row in told.rows if row.kind == "matryoshka")
        for name in (rows.SHIPPED.name, rows.MLP.name):
            ratio = told.coarse(name, measure).mean() / best
            yield Goal(f"{name}: mean of 4 to 32 numbers over the best MRL adapter, {measure}", float(ratio), 0.90)
            yield Goal(f"{name}: 4 to 32 numbers over the best MRL adapter, {measure} (the stretch)", float(ratio), 1.0)
    pairs = {
        "": (rows.STOCHASTIC.name, rows.CONSTANT.name),
        " from a random start, one seed": (rows.FROM_RANDOM["stochastic"].name, rows.FROM_RANDOM["constant"].name),
    }
    for start, (stochastic, constant) in pairs.items():
        for measure in MEASURES:
            ratio = told.coarse(stochastic, measure).mean() / told.coarse(constant, measure).mean()
            least = None if measure == DEEP else 1.4
            yield Goal(f"mean of 4 to 32 numbers, stochastic over constant{start}, {measure}", float(ratio), least)
    points = told.difference(rows.CONSTANT.name, rows.STOCHASTIC.name, RECALL).value
    yield Goal("1,024 numbers, constant over stochastic, R@10, points", points, -0.5)
    for name in (rows.KMEANS.name, rows.MIXTURES.name):
        share = found.leaves[name][RECALL].mean() / whole[rows.SHIPPED.name][RECALL]
        least = 0.5 if found.name == "oewn_examples" else 0.0
        yield Goal(f"{name}, best leaf: what it misses of the tree's R@10, as a part", float(1 - share), least)
    for name in (rows.SHIPPED.name, rows.VARIATION.name):
        cosine, error = (found.similarities[name][one] for one in ("cosine", "error"))
        yield Goal(f"{name}: cosine of documents, depth 10 over depth 0", float(cosine[-1] - cosine[0]), 0.05)
        rise = np.diff(cosine) / np.hypot(error[1:], error[:-1])
        yield Goal(f"{name}: least rise between neighbouring depths, standard errors", float(rise.min()), -2.0)
    for level, stored in found.stored.items():
        change = abs(float(stored[RECALL].mean() - told.seeds(rows.SHIPPED.name, 2**level, RECALL)[0]))
        yield Goal(f"float16 of level {level}, 1 - change of R@10", 1 - change, 0.998)
    yield from shortlists(found)
    yield from speeds(found)
    yield from attention(found)


def shortlists(found: Findings) -> Iterator[Goal]:
    """Parts of an exact search that a shortlist of level 6 keeps."""
    least = {"tree, cosine, 300": (0.98, 0.93), "tree, L1, 1,000": (0.97, 0.90)}
    for name, asked in least.items():
        if name in found.shortlists:
            for measure, share in zip((RECALL, DEEP), asked, strict=True):
                value = found.shortlists[name][measure].mean() / found.exact[measure][0].mean()
                yield Goal(f"level 6 finished by vectors, {name}, part of the exact {measure}", float(value), share)


def speeds(found: Findings) -> Iterator[Goal]:
    """How many times as fast few numbers are; inner products by what is faster, faiss or a matrix product."""
    if found.times is None:
        return
    for batch, ms, least in (("batches of 64", found.times.batched, 20.0), ("alone", found.times.alone, 15.0)):
        few = ms["L1, 32"]
        yield Goal(f"L1 of 32 over L1 of 1,024 numbers, {batch}, times as fast", ms["L1, 1024"] / few, least)
        vectors = min(value for name, value in ms.items() if "encoder" in name)
        yield Goal(f"L1 of 32 numbers over the encoder's inner products, {batch}", vectors / few, 5)


def attention(found: Findings) -> Iterator[Goal]:
    """Attention beside the Matryoshka adapter of as many steps, as the paper claims it for few numbers."""
    if found.attending is None:
        return
    for measure in (RECALL, NDCG):
        tree, adapter = (
            found.attending.coarse(name, measure).mean()
            for name in (rows.ATTENDING.name, rows.BESIDE_ATTENDING[-1].name)
        )
        title = f"attention, mean of 4 to 32 numbers over the MRL adapter of as many steps, {measure}"
        yield Goal(title, float(tree / adapter), 1.0)
