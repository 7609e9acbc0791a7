"""Time a sample of a job's documents by its encoder, for `rayhier run SPEC --plan --measure`."""

import time
from collections.abc import Iterator
from itertools import islice

import torch

from rayhier.corpus import sources
from rayhier.corpus.check import Entry
from rayhier.dataset.documents import document_text, document_texts
from rayhier.embed.encode import TextEncoder
from rayhier.job import rates
from rayhier.job.estimate import stage_cost, tokens
from rayhier.job.plan import Plan
from rayhier.spec import InputError
from rayhier.spec.corpus import FileCorpus
from rayhier.storage import files

TOKENS, TEXTS = 1_000, 100
"""Tokens of a sample, about, and its most texts."""


def measure(plan: Plan) -> None:
    """Note the rate at which this process encodes some documents. InputError if they cannot be read yet."""
    spec, texts, count = plan.spec, list[str](), 0.0
    for text in islice(_texts(plan), TEXTS):
        texts.append(text)
        count += tokens(spec, len(text.encode()))
        if count >= TOKENS:
            break
    if not texts:
        raise InputError("--measure: got a corpus without documents")
    torch.set_num_threads(spec.cluster.embed.cpus)
    encoder = TextEncoder(plan.model.path, spec.encoder)
    encoder.encode(texts[:1])  # what loads at first use
    began = time.monotonic()
    encoder.encode(texts)
    cost = stage_cost("embed", spec, plan.work)
    devices = spec.cluster.embed.cpus if cost.device == "core" else 1
    rates.note(cost.of, count / (time.monotonic() - began) / devices)


def _texts(plan: Plan) -> Iterator[str]:
    corpus = plan.step("corpus").place.published()
    if corpus is not None:
        yield from document_texts(files.read_table(corpus.path(corpus.names("documents/")[0])).slice(0, TEXTS))
    elif isinstance(plan.spec.corpus, FileCorpus):
        reader = sources.ranged(plan.spec.corpus)
        rows = (row for piece in reader.ranges() for row in reader.documents(piece))
        yield from (document_text(row.title, row.text) for row in rows if isinstance(row, Entry))
    else:
        raise InputError("--measure: got a corpus that was not read yet; allowed: after --stage corpus")
