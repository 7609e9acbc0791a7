"""Search over a published leaf map: encode -> route -> scan leaves -> best k."""

import contextlib
import weakref
from collections.abc import Sequence
from typing import Self

import torch

from rayhier.embed.encode import TextEncoder
from rayhier.model.router import Router, load_router, route_all
from rayhier.search.answer import Answer, merge
from rayhier.search.lazy import LazyMap
from rayhier.search.opened import open_leaves, open_model, reading_leaf_map, spared
from rayhier.spec import JobSpec
from rayhier.storage import current
from rayhier.storage.columns import Floats
from rayhier.storage.paths import Location


class Searcher:
    """An index, open for questions; what it `held` is let go when it is closed or forgotten."""

    def __init__(
        self,
        spec: JobSpec,
        encoder: TextEncoder,
        router: Router,
        leaves: LazyMap,
        held: contextlib.ExitStack | None = None,
    ) -> None:
        self.spec, self.encoder, self.router, self.leaves = spec, encoder, router, leaves
        self.close = weakref.finalize(self, (held or contextlib.ExitStack()).close)

    @classmethod
    def open(cls, workdir: Location) -> Self:
        """The index that `current.json` names, its version kept from vacuum until the searcher is closed or forgotten.

        InputError where there is none or a file is not what was published.
        """
        now = current.read(workdir)
        with contextlib.ExitStack() as held:
            leaf_map = held.enter_context(reading_leaf_map(workdir, now))
            model = open_model(workdir, now)
            encoder = TextEncoder(model.local("encoder"), now.spec.encoder)
            router = spared(load_router(model.local("router")), now.spec.search)
            return cls(now.spec, encoder, router, open_leaves(now.spec, leaf_map), held.pop_all())

    def search(self, queries: Sequence[str], k: int | None = None, beam: int | None = None) -> list[Answer]:
        """The best `k` documents of each query among its `beam` densest leaves, or fewer where the spec spares some."""
        manifest, search = self.leaves.leaf_map.manifest, self.spec.search
        visited = beam or search.leaves_visited(len(manifest.counts), manifest.rows)
        return self.search_vectors(self.encoder.encode(queries), k or search.k, visited)

    def search_vectors(self, query_QM: Floats, k: int, beam: int) -> list[Answer]:
        """The same for trained query vectors [q, m]."""
        leaves_QB = route_all(self.router, torch.from_numpy(query_QM), beam)[0].numpy()
        found = self.leaves.search(query_QM, leaves_QB, k)
        total = self.leaves.leaf_map.manifest.documents
        return [merge([part], leaves, k, total) for part, leaves in zip(found, leaves_QB.tolist(), strict=True)]
