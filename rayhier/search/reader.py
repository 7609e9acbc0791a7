"""Read leaves, words or a level of the tree from a leaf map, or from a range of its leaves, for a search."""

from dataclasses import dataclass
from typing import Self

from rayhier.dataset.ranking import Ranking
from rayhier.search.hybrid import Lexical, WordScan
from rayhier.search.level import LevelScan
from rayhier.search.level_similarity import LevelSimilarity
from rayhier.search.retrieve import Level, Reading, Scan, Words
from rayhier.search.scan import LeafScan
from rayhier.search.shortlist import Shortlist
from rayhier.spec import JobSpec
from rayhier.storage.leaf_map import LeafMap


@dataclass(frozen=True)
class Reader:
    """The opened leaves of an index, and their words and their level where the spec's searches read these."""

    leaves: LeafScan
    words: WordScan | None = None
    levels: LevelScan | None = None

    @classmethod
    def open(
        cls, spec: JobSpec, leaf_map: LeafMap, similarity: LevelSimilarity | None, leaves: range | None = None
    ) -> Self:
        """Open all leaves of a leaf map, or a range, as a spec searches them; a level too where a similarity is given.

        InputError where a file is not as published, or has no probabilities of leaves, which the level is read from.
        """
        cache_bytes, codec = spec.search.cache_gb * 1e9, spec.search.codec
        scan = LeafScan.mapped(leaf_map, None if codec == "auto" else codec, leaves, cache_bytes)
        levels = None if similarity is None else LevelScan.mapped(similarity, leaf_map, scan, cache_bytes)
        return cls(scan, WordScan(scan) if spec.search.words else None, levels)

    def read(self, work: Reading) -> Ranking | Lexical | Shortlist:
        """Scan leaves, words or a level, as a piece of work says; ValueError where the spec has no BM25 or no level."""
        match work:
            case Scan():
                return self.leaves.scan(
                    work.query_QM, work.leaves_QB, work.k, work.where, with_vectors=work.with_vectors
                )
            case Words():
                if self.words is None:
                    raise ValueError("words: got a query for an index whose spec has no BM25")
                return self.words.scan(work.texts, work.query_QM, work.k, work.where, with_vectors=work.with_vectors)
            case Level():
                if self.levels is None:
                    raise ValueError("level: got a query for an index whose spec searches leaves")
                return self.levels.shortlist(work.query, work.results, work.where, with_vectors=work.with_vectors)

    def intact(self) -> bool:
        """Return True if the files of all open segments are unchanged since they were opened."""
        return self.leaves.intact() if self.levels is None else self.levels.intact()
