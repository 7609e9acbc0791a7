"""Opens the parts of a leaf map that searches read: leaves, words (BM25), all documents by a level."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

import pyarrow as pa

from rayhier.dataset.ranking import Ranking
from rayhier.search.flat_scan import FlatScan
from rayhier.search.hybrid import Lexical, WordScan
from rayhier.search.level_similarity import LevelSimilarity, Shortlist
from rayhier.search.retrieve import Exact, Flat, Reading, Scan, Words
from rayhier.search.scan import LeafScan
from rayhier.search.segment import MappedSegment
from rayhier.search.stored import Listing, Lookup, StoredDocuments
from rayhier.spec import JobSpec
from rayhier.spec.search import CACHE_BYTES
from rayhier.storage.leaf_map import LeafMap

WARMED = 0.5
"""Largest share of the machine's memory that vectors which are read ahead may fill."""
GROWN = 4 / 3
"""Growth of an index for which files are made ahead."""


@dataclass(frozen=True)
class Reader:
    """The opened parts of an index, or of a range of its leaves, that a spec's searches read."""

    leaves: LeafScan
    words: WordScan | None = None
    flat: FlatScan | None = None

    @cached_property
    def documents(self) -> StoredDocuments:
        """The documents whose first rows are in the leaves, by their ids."""
        return StoredDocuments(self.leaves)

    @classmethod
    def open(
        cls,
        spec: JobSpec,
        leaf_map: LeafMap,
        similarity: LevelSimilarity | None = None,
        leaves: range | None = None,
    ) -> Self:
        """Open a leaf map's leaves, by default all, as a spec searches them: with `similarity` by a level of a tree.

        Raises InputError where a file is not as published, or lacks the leaf probabilities from which the level is
        read, or `search.memory_gb` is less than is needed.
        """
        cache_bytes, size = CACHE_BYTES, leaf_map.manifest.size
        listed = partial(spec.search.shortlisted, documents=size.documents)
        spec.search.check_memory(size)
        scan = LeafScan.mapped(leaf_map, spec.search.row_codec(size), leaves, cache_bytes, listed)
        flat = None if similarity is None else FlatScan.mapped(similarity, leaf_map, scan, cache_bytes)
        words = WordScan.mapped(leaf_map, scan, cache_bytes) if leaf_map.manifest.words else None
        return cls(scan, words, flat)

    @staticmethod
    def prepare(spec: JobSpec, leaf_map: LeafMap, leaves: range, goes_on: Callable[[], bool]) -> None:
        """Make the files of a codec that a spec's searches will read once the index has grown by a third, if any.

        They wait for none of these then. Ends early where `goes_on` returns False. InputError where a file is not as
        published.
        """
        size, cache_bytes = leaf_map.manifest.size, CACHE_BYTES
        codec = spec.search.row_codec(replace(size, documents=round(GROWN * size.documents)))
        if codec is None or codec == spec.search.row_codec(size):
            return
        scan = LeafScan.mapped(leaf_map, codec, leaves, cache_bytes)
        for shard in leaf_map.manifest.shards:
            if not goes_on():
                return
            if scan.reads(shard):
                MappedSegment.open(leaf_map, shard, scan.codec, cache_bytes, scan.codebook)

    def read(self, work: Reading) -> Ranking | Lexical | Shortlist | pa.Table:
        """Do a piece of work: scan leaves, score by BM25, compare all documents, or read some by their ids.

        ValueError where the index counts no words, or the spec's searches visit leaves.
        """
        match work:
            case Scan():
                return self.leaves.scan(work.query_QM, work.leaves_QB, work.k, work.where, needs=work.needs)
            case Words():
                if self.words is None:
                    raise ValueError("words: got a query for an index that counts no words")
                return self.words.scan(work.texts, work.query_QM, work.k, work.where, needs=work.needs)
            case Flat():
                if self.flat is None:
                    raise ValueError("flat: got a query for an index whose spec searches leaves")
                return self.flat.shortlist(work.query, work.results, work.where, needs=work.needs)
            case Exact():
                return self.leaves.exact(work.query_QM, work.k, work.among, work.where)
            case Lookup() | Listing():
                return self.documents.read(work)

    def open_files(self) -> None:
        """Open every file that searches read now, as a server does; InputError where one is not as published.

        Vectors that rows are scored again by are read ahead, where they fill no more than half of the memory.
        """
        if self.flat is None:
            self.leaves.open()
            self.leaves.warm(WARMED * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        if self.words is not None:
            self.words.open()

    def intact(self) -> bool:
        """Return True if all files that are open are unchanged since they were opened."""
        opened = self.flat or self.leaves
        return opened.intact() and (self.words is None or self.words.intact())
