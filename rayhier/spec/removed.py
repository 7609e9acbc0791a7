"""Keys and values of older specs that were removed, each with what to write instead."""

from collections.abc import Mapping

NAMES = """
  corpus.documents_config corpus.judgements_config corpus.limits corpus.queries_config
  cross_encoder.batch_size cross_encoder.device cross_encoder.train.batch_size cross_encoder.train.groups
  cross_encoder.train.lr cross_encoder.train.most_pairs cross_encoder.train.pairs cross_encoder.train.seed
  cross_encoder.train.teacher encoder.batch_size evaluate.visited index.max_leaf_factor index.second_leaf
  index.spilled router.first_pass router.residual router.rounds router.teaching scores.draw search.codec
  search.finish search.hybrid.depth search.memory_gb search.rerank.first search.rerank.mu search.widest track.project
  train.hard_negatives.beam train.hard_negatives.refresh train.hard_negatives.top train.hard_negatives.unit
  train.loss.margin train.loss.unlike train.measure_every train.most_documents train.most_scale train.patience
  train.pseudo_queries.spans train.pseudo_weight train.scale
"""
GONE = frozenset(NAMES.split())
"""Dotted keys that you can leave out, as the spec then means the same or nearly the same."""
INSTEAD = {
    "cluster.scores": "leave the key out, or write cluster.embed, whose workers score pairs too",
    "cluster.tokenise": "let several processes share a GPU: cluster.embed: {workers: 8, cpus: 2, gpus: 0.5}",
    "corpus.judgements_revision": "write corpus.judgements: ID@REVISION",
    "corpus.revision": "write corpus.path: ID@REVISION",
    "corpus.suffixes": "leave the key out: files that end in .txt, .md or .rst are read",
    "cross_encoder.layers": "leave the key out, or give a model with fewer layers",
    "encoder.device": "leave the key out: CUDA is used if it is there, unless CUDA_VISIBLE_DEVICES= hides it",
    "evaluate.baselines=codes": "compare with exact_same_encoder, or with faiss_ivf_same_encoder",
    "factors": "write scores.factors: transductive, inductive, or bias (before: vectors: none)",
    "run": "write track: in place of run: {track: ...}",
    "scores.titles": "leave the key out, or write scores.spans: spans of documents are queries",
    "search.cache_gb": "leave the key out: at most 50 GB are cached, and RAYHIER_CACHE names the folder",
    "search.beam.target": "write search.beam: {recall: 0.98}, a share of what an exact search finds",
    "search.beam.type": "write search.beam: {recall: 0.98}, one beam for all queries, which dev queries choose",
    "search.how=auto": "write how: leaves, the default, or how: level",
    "search.how=codes": "write how: leaves, and a beam of all leaves to compare all documents",
    "track.folder": "leave the key out, and set $WANDB_DIR",
    "track.mode": "leave the key out, and set $WANDB_MODE",
    "train.directions": "leave the key out, or write train.form: paper, which has both directions",
    "train.generated.type=file": "write the path alone: train.generated: PAIRS.jsonl",
    "train.generated.type=model": "write train.generated: PAIRS.jsonl, a file of pairs that any tool can write",
    "train.micro_batch": "write cluster.train.micro_batch",
    "train.optimizer": "leave the key out, or write train.form: paper, which trains by Adafactor",
    "train.reads": "leave the key out, or write encoder.train: none in place of reads: base",
    "train.start": "leave the key out. With train: {type: hce, form: paper}, training starts at the base encoder",
}
"""Name of a removed key, or KEY=VALUE -> what a message says to write instead."""


def advice(key: str, value: object) -> str | None:
    """Return what to write instead of a key or its value. None if neither was removed."""
    if key in GONE:
        return "leave the key out: rayhier decides this now"
    kind = value.get("type") if isinstance(value, Mapping) else None
    return INSTEAD.get(key) or INSTEAD.get(f"{key}={value}") or INSTEAD.get(f"{key}.type={kind}")
