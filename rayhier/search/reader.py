"""Opens the parts of a leaf map that searches read: leaves, words (BM25), a level of ReTreever's tree."""

from dataclasses import dataclass
from typing import Self

from rayhier.dataset.ranking import Ranking
from rayhier.search.hybrid import Lexical, WordScan
from rayhier.search.level import LevelScan
from rayhier.search.retrieve import Level, Reading, Scan, Words
from rayhier.search.row_codes import Similarity
from rayhier.search.scan import LeafScan
from rayhier.search.shortlist import Shortlist
from rayhier.spec import JobSpec
from rayhier.storage.leaf_map import LeafMap


@dataclass(frozen=True)
class Reader:
    """The opened parts of an index, or of a range of its leaves, that a spec's searches read."""

    leaves: LeafScan
    words: WordScan | None = None
    levels: LevelScan | None = None

    @classmethod
    def open(
        cls,
        spec: JobSpec,
        leaf_map: LeafMap,
        similarity: Similarity | None,
        leaves: range | None = None,
    ) -> Self:
        """Open a leaf map's leaves, by default all, as a spec searches them; a level where `similarity` is given.

        Raises InputError where a file is not as published, or lacks the leaf probabilities from which the level is
        read.
        """
        cache_bytes, codec = spec.search.cache_gb * 1e9, spec.search.codec
        scan = LeafScan.mapped(leaf_map, None if codec == "auto" else codec, leaves, cache_bytes)
        levels = None if similarity is None else LevelScan.mapped(similarity, leaf_map, scan, cache_bytes)
        return cls(scan, WordScan(scan) if spec.search.words else None, levels)

    def read(self, work: Reading) -> Ranking | Lexical | Shortlist:
        """Do a piece of a search's work: scan leaves, score by BM25, or search a level.

        ValueError where the spec's searches do not use BM25, or a level.
        """
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
