"""Keys and values of older specs that went, each with what to write instead."""

REMOVED: dict[str, str] = {
    "corpus.documents_config": "leave the key out: documents are in the configuration corpus, as in BEIR's data sets",
    "corpus.judgements_config": "leave the key out: judgements are in the data set's only configuration, as in BEIR's",
    "corpus.limits": "leave the section out: longer titles than 1,000 characters and texts than 100,000 are cut",
    "corpus.queries_config": "leave the key out: queries are in the configuration queries, as in BEIR's data sets",
    "corpus.suffixes": "leave the key out: files that end in .txt, .md or .rst are read",
    "cross_encoder.batch_size": "leave the key out: a forward pass reads at most 64 pairs",
    "cross_encoder.device": "leave the key out: CUDA is used if there is such a device",
    "cross_encoder.train.batch_size": "leave the key out: a step reads 16 groups",
    "cross_encoder.train.groups": "leave the section out: its values are constants",
    "cross_encoder.train.lr": "leave the key out: the rate is 1e-4",
    "cross_encoder.train.most_pairs": "leave the key out: an epoch reads at most 100,000 pairs of a corpus",
    "cross_encoder.train.seed": "leave the key out: the seed is 0",
    "cross_encoder.train.teacher": "leave the key out: the weight is 0.5",
    "evaluate.baselines=codes": "compare with exact_same_encoder, or with faiss_ivf_same_encoder",
    "factors.batch_size": "leave the key out: a step reads 256 scores",
    "factors.bias": "leave the key out: each document has a bias",
    "factors.epochs": "leave the key out: the number of scores decides",
    "factors.lr": "leave the key out: the number of scores decides",
    "index.second_leaf": "leave the key out: SOAR chooses second leaves",
    "index.spilled": "leave the key out: half of the documents have a second leaf",
    "router.first_pass": "leave the key out: codes of leaves go first if there are many leaves",
    "router.residual": "leave the key out: each level has the layer of the paper",
    "router.rounds": "leave the key out: three rounds of k-means move the centroids",
    "router.teaching": "leave the section out: its values are constants",
    "scores.draw": "leave the key out: the best pairs by the base encoder are scored",
    "search.beam.target": "write search.beam: {recall: 0.98}, a share of what an exact search finds",
    "search.beam.type": "write search.beam: {recall: 0.98}, one beam for all queries, which dev queries choose",
    "search.cache_gb": "leave the key out: at most 50 GB are cached, and RAYHIER_CACHE names the folder",
    "search.how=auto": "write how: leaves, the default, or how: level",
    "search.how=codes": "write how: leaves, and a beam of all leaves to compare all documents",
    "search.rerank.first": "leave the key out: documents are read in the order of the search",
    "search.rerank.mu": "leave the key out: the penalty is 1",
    "train.directions": "leave the key out, or write train.form: paper, which has both directions",
    "train.generated.batch_size": "leave the key out",
    "train.generated.seed": "leave the key out: the seed is 0",
    "train.generated.top_k": "leave the key out: tokens are drawn from the ten likeliest",
    "train.hard_negatives.beam": "leave the key out: a query visits four leaves",
    "train.hard_negatives.unit": "leave the key out: refresh counts epochs",
    "train.loss.intra_leaf_form": "leave the key out: the loss is the paper's Eq. 5",
    "train.measure_every": "leave the key out: a training is measured twenty times, or after each of fewer epochs",
    "train.most_documents": "leave the key out: training keeps at most a million documents",
    "train.most_scale": "leave the key out: the similarity decides",
    "train.optimizer": "leave the key out, or write train.form: paper, which trains by Adafactor",
    "train.patience": "leave the key out: training runs to its last epoch, and the best epoch counts",
    "train.pseudo_weight": "leave the key out: the weight is 0.5",
    "train.reads": "leave the key out, or write encoder.train: none in place of reads: base",
    "train.scale": "leave the key out: the similarity decides",
}
"""A dotted key, or KEY=VALUE, and what a message says after "removed; "."""


def advice(key: str, value: object) -> str | None:
    """Return what to write instead of a key or its value; None if neither was removed."""
    instead = REMOVED.get(key) or REMOVED.get(f"{key}={value}")
    return None if instead is None else f"removed; {instead}"
