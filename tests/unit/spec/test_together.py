"""What does not go together, or says nothing: refused with its key, what was given and what is allowed."""

import re

import pytest
import yaml

from rayhier.spec import InputError, load
from rayhier.spec.corpus import RESERVED

LEAST = {
    "name": "t",
    "workdir": "w",
    "corpus": {"type": "jsonl", "documents": "d", "fields": {"year": "int"}},
    "encoder": {"model": "m"},
}

REFUSED = """
corpus: {type: jsonl, documents: d, passages: {words: 3, stride: 4}}      # corpus.passages: at most words
corpus: {type: jsonl, documents: d, passages: {words: 3}}                 # corpus.passages.stride: required
corpus: {type: jsonl, documents: d, fields: {year: integer}}              # corpus.fields.year: 'bool'
corpus: {type: jsonl, documents: d, fields: {a year: int}}                # corpus.fields.a year: letters, digits
corpus: {type: jsonl, documents: d, judgements: {test: t.tsv}}            # corpus: judgements with queries
corpus: {type: jsonl, documents: d, queries: q, judgements: {train: a, test: a}}  # corpus.judgements: different files
corpus: {type: jsonl, documents: d, columns: {id: ""}}                    # corpus.columns.id: 1 character
corpus: {type: python_docs, fields: {year: int}}                          # corpus.fields: type
router: {type: retreever, splits: attention, depth: 13}                   # router: depth of at most 12
train: {type: contrast, hard_negatives: {source: query_leaves}}           # train.hard_negatives.source: 'exact'
train: {type: contrast, hard_negatives: {source: none, per_query: 3}}     # train.hard_negatives.per_query: not none
train: {type: ehi, loss: {semantic: 0, indexing: 0, intra_leaf: 0}}       # train.loss: nothing is learned
train: {type: hce, form: paper, hierarchy: 0.5, hard_negatives: {source: none}}   # train.hierarchy: form is single
train: {type: hce, form: paper}                                           # train: form is paper
train: {type: hce, hierarchy: 0, siblings: 0, tree: {branching: 4}}       # train.tree: siblings is above 0
train: {type: hce, hierarchy: 0.5, tree: {levels: 0}}                     # train.hierarchy: levels is above 0
train: {type: hce, tree: {levels: 0, branching: 4}}                       # train.tree.branching: levels is not 0
train: {objective: supervised, pseudo_queries: {source: spans}}           # train.pseudo_queries: not supervised
train: {objective: documents, hard_negatives: {per_query: 1}}             # train.hard_negatives: not documents
train: {type: hce, objective: documents, generated: p}                    # train.generated: not documents
train: {pseudo_queries: {length: 32}}                                     # train.pseudo_queries.length: not titles
train: {pseudo_queries: {source: spans, length: 256}}                     # train.pseudo_queries.length: at most 255
train: {pseudo_queries: {source: simcse}}                                 # train.pseudo_queries.source: last_layer
train: {type: retreever, similarity: tv, anchor: 5}                       # train.anchor: similarity is cosine
train: {type: retreever, objective: documents, documents: 2}              # train.documents: judged queries train too
{train: {type: contrast}, router: {type: hce}}                            # train.type: hce, or router.type learned_ivf
{train: {type: contrast}, router: {type: ehi}}                            # train.type: ehi, or router.type learned_ivf
{train: {type: ehi}, router: {type: learned_ivf}}                         # train.type: or router.type ehi
{train: {type: hce, tree: {levels: 0}}, router: {type: hce}}              # train.tree.levels: 1 or more
{train: {type: retreever, objective: documents}, encoder: {model: m, train: all}}  # encoder.train: head, none
{index: {leaves_per_document: 1}, evaluate: {baselines: [exact, hnsw], lists: 64}}  # evaluate.lists: faiss_ivf
evaluate: {filter: {year: x}}                                             # evaluate.filter.year: a whole number
evaluate: {filter: {year: 1}, baselines: [hnsw]}                          # evaluate.baselines: exact_same_encoder
{cross_encoder: {model: m}, scores: {judged: 0}}                          # scores: judged or spans above 0
{cross_encoder: {model: m}, scores: {judged: 5, per: item, count: 6}}     # scores: at most the number of queries (5)
{cross_encoder: {model: m}, scores: {count: all, per: item}}              # scores.per: count is a number
router: {type: retreever, depth: 0}                                       # router.depth: greater than or equal to 1
router: {type: retreever, depth: 17}                                      # router.depth: less than or equal to 16
router: {type: retreever, splits: linear, aggregation: shared}            # router.aggregation: splits is attention
{router: {type: retreever, splits: attention}, train: {type: retreever, start: mrl}}    # train.start: auto, random
{router: {type: retreever, splits: mlp}, train: {type: retreever, start: kmeans}}       # train.start: mrl
{encoder: {model: m, train: none}, train: {type: hce}}                                 # encoder.train: head
search: {how: level}                                                      # search.how: leaves
search: {level: 4}                                                        # search.level: only if how is level
{router: {type: retreever, depth: 4}, search: {how: level, level: 5}}     # search.level: at most 4
{router: {type: retreever, depth: 4}, search: {k: 50, how: level, shortlist: 49}}  # search: shortlist of at least k
search: {rerank: {type: axn}}                                             # search.rerank.type: cross_encoder
scores: {judged: 10}                                                      # scores: cross_encoder
{cross_encoder: {model: m}, search: {rerank: {type: axn, budget: 4, rounds: 5}}}  # search.rerank: budget of at least
{cross_encoder: {model: m}, search: {rerank: {type: rnr, budget: 0}}}     # search.rerank.budget: greater than
{cross_encoder: {model: m}, search: {rerank: {type: rnr, budget: 12, pool: 10}}}  # search.rerank: pool of at least
{cross_encoder: {model: m}, search: {rerank: {type: adacur}}}             # search.rerank.type: rnr, axn
{cross_encoder: {model: m}, search: {rerank: {type: axn, lambda: 0.5}}}   # search.rerank.lambda: fit
{cross_encoder: {model: m}, scores: {judged: 9}, search: {rerank: {type: axn, fit: lstsq}}}   # search.rerank.fit: ridge
track: {type: mlflow, uri: "ftp://x"}                                     # track.uri: pattern
track: {type: mlflow, uri: "https://me:secret@x"}                         # track.uri: without a password
"""
"""Sections of a spec, the key that is refused, and a part of what is allowed there."""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_does_not_go_together_is_refused_by_its_key(line):
    given, _, said = line.rpartition("# ")
    key, _, part = said.partition(": ")
    with pytest.raises(InputError) as refused:
        load(LEAST | yaml.safe_load(given))
    (message,) = str(refused.value).splitlines()
    allowed = re.fullmatch(rf"spec: {re.escape(key)}: (?:got .+?|missing); allowed: (.+)", message)
    assert allowed, message
    assert part in allowed[1]
    assert "secret" not in message


@pytest.mark.parametrize("name", RESERVED)
def test_names_that_rows_have_are_no_fields(name):
    with pytest.raises(InputError, match=rf"corpus\.fields\.{name}: got 'int'; allowed: a name other than"):
        load(LEAST | {"corpus": {"type": "jsonl", "documents": "d", "fields": {name: "int"}}})
