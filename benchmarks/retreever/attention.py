"""Splits by attention to tokens, one seed and few steps, beside linear splits and adapters with as many steps."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import torch
from numpy.lib.format import open_memmap
from torch import Tensor
from torch.nn import functional as F

from benchmarks.retreever.bench import Bench, Row, Sizes, resolved, training
from benchmarks.training import train
from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.documents import texts_of
from rayhier.embed.encode import TextEncoder
from rayhier.model.retreever import AttentionSplits, Representations, RetreeverRouter
from rayhier.spec.router import RetreeverRouting
from rayhier.train.loop import Phase
from rayhier.train.retreever.grow import grow
from rayhier.train.retreever.matching import size_all
from rayhier.train.tower import Side, TextTower

AT_ONCE = 256
"""Texts whose tokens are read at a time."""
CHUNK = 64
"""Texts that are encoded at a time."""


class Attended:
    """Trees that attend to float16 vectors of the tokens of documents, train, dev and asked queries, in a folder."""

    def __init__(self, bench: Bench) -> None:
        """Read the vectors, by the base encoder, or store them first."""
        self.bench, self.setting = bench, bench.setting(0)
        collection, folder = bench.collection, bench.workdir / bench.name / f"tokens-{bench.split}"
        sides: dict[Side, Sequence[str]] = {
            "document": texts_of(collection.corpus, collection.documents.ids),
            "query": collection.examples.query_texts,
            "dev": [*collection.dev.texts, *bench.queries.texts],
        }
        self.asked_row = len(collection.dev)
        """Row of the first asked query on the side of dev queries."""
        if not folder.is_dir():
            encoder = TextEncoder(collection.model, collection.spec.encoder.model_copy(update={"precision": "float32"}))
            arrays = {side: pa.chunked_array([pa.array(texts)]) for side, texts in sides.items()}
            tower = TextTower(encoder, "all", arrays, torch.float32)
            unfinished = folder.with_name(f"{folder.name}-unfinished")
            unfinished.mkdir(parents=True, exist_ok=True)
            for side, texts in sides.items():
                if (unfinished / f"{side}-begins.npy").is_file():  # of a run that was cut off
                    continue
                tokens = [np.zeros((0, 0), np.float16)] * len(texts)
                order_N = np.argsort([len(text) for text in texts], kind="stable")  # like lengths need little padding
                for rows in np.array_split(order_N, -(-len(texts) // CHUNK)):
                    token_NTM, mask_NT = tower.read(side, rows)
                    for row, token_TM, mask_T in zip(rows.tolist(), token_NTM, mask_NT.bool(), strict=True):
                        tokens[row] = token_TM[mask_T].numpy().astype(np.float16)
                begin_N = np.cumsum([0, *map(len, tokens)])
                shape = (int(begin_N[-1]), encoder.dimension)
                stored_AM = open_memmap(unfinished / f"{side}.npy", "w+", np.float16, shape)
                for begin, token_TM in zip(begin_N.tolist(), tokens, strict=False):
                    stored_AM[begin : begin + len(token_TM)] = token_TM
                stored_AM.flush()
                np.save(unfinished / f"{side}-begins.npy", begin_N)
            unfinished.rename(folder)
        self._stored = {
            side: (np.load(folder / f"{side}.npy", mmap_mode="r"), np.load(folder / f"{side}-begins.npy"))
            for side in sides
        }

    def read(self, side: Side, rows: Ints) -> tuple[Tensor, Tensor]:
        """Vectors [n, t, m] of the tokens of the rows' texts, and a mask [n, t], 1 on tokens."""
        token_AM, begin_N = self._stored[side]
        count_N = begin_N[rows + 1] - begin_N[rows]
        place_NT = begin_N[rows][:, None] + np.arange(count_N.max())
        mask_NT = place_NT < begin_N[rows + 1][:, None]
        token_NTM = token_AM[np.where(mask_NT, place_NT, 0)].astype(np.float32)
        return torch.from_numpy(token_NTM), torch.from_numpy(mask_NT.astype(np.int64))

    def router(self, row: Row) -> RetreeverRouter:
        """The trained tree of a row."""
        spec, router = training(row), RetreeverRouting.model_validate({"type": "retreever", **row.router})
        own = self.setting

        def run(name: str, phase: Phase) -> None:
            train(phase, own.path(name, resolved(spec, router.splits), router.model_dump()))

        return grow(own.tower, own.examples, router, spec, own.seed, own.measure, run, self.read).eval()

    @torch.no_grad()
    def scores(self, representations: Representations, side: Side, row_N: Ints) -> Floats:
        """Scores [n, w] for rows of a side; texts of like length are read together."""
        begin_N = self._stored[side][1]
        order_N = np.argsort(begin_N[row_N + 1] - begin_N[row_N], kind="stable")
        parts = np.array_split(row_N[order_N], len(row_N) // AT_ONCE + 1)
        sorted_NW = np.concatenate([representations.scores(*self.read(side, part)).numpy() for part in parts])
        score_NW = np.empty_like(sorted_NW)
        score_NW[order_N] = sorted_NW
        return score_NW

    def values(self, row: Row) -> dict[int, dict[str, Values]]:
        """Each measure of every query at each size, size -> measure -> [1, q]."""

        def make() -> Sizes:
            router, asked = self.router(row), self.asked_row + np.arange(len(self.bench.queries))
            documents = np.arange(len(self.setting.examples.document_NM))
            own = router.representations
            scores = [self.scores(own, "document", documents), self.scores(own, "dev", asked)]
            return self.bench.judged_sizes(own.similarity, (size_all(own, score_NS) for score_NS in scores))

        sizes = self.setting.kept_sizes(make, "attention", self.bench.split, row.train, row.router)
        return {size: {name: own_Q[None] for name, own_Q in own.items()} for size, own in sizes.items()}

    def distances(self, row: Row) -> dict[str, Values]:
        """Mean cosine [d] of the embeddings of two splits by their distance in the tree, and standard deviation [d]."""
        splits = self.router(row).splits
        assert isinstance(splits, AttentionSplits)
        embedding_SM = F.normalize(splits.embedding_SM.detach(), dim=1).numpy()
        cosine_SS, apart_SS = embedding_SM @ embedding_SM.T, tree_distances(splits.depth)
        upper = np.triu_indices(len(embedding_SM), 1)
        cosine_P, apart_P = cosine_SS[upper], apart_SS[upper]
        every = np.unique(apart_P)
        return {
            "distance": every.astype(np.float64),
            "cosine": np.array([cosine_P[apart_P == one].mean() for one in every]),
            "deviation": np.array([cosine_P[apart_P == one].std() for one in every]),
        }


def tree_distances(depth: int) -> Ints:
    """Edges between every two splits [s, s] of a perfect binary tree, breadth first."""

    def apart(a: int, b: int) -> int:
        return 0 if a == b else 1 + (apart(a >> 1, b) if a > b else apart(a, b >> 1))

    return np.array([[apart(a, b) for b in range(1, 2**depth)] for a in range(1, 2**depth)])
