"""The test split: queries and judgements that only evaluation reads, with the base encoder's vectors.

It is an artifact of its own, so that more test queries, or other judgements, change nothing that was trained.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from rayhier.arrays import Floats
from rayhier.corpus import ids, questions, requirements, sources, tables
from rayhier.embed.encode import TextEncoder
from rayhier.progress import here, say
from rayhier.spec import JobSpec
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import columns, files
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Output
from rayhier.storage.paths import Location


def read(spec: JobSpec, corpus: Artifact) -> tuple[pa.Table, questions.Questions]:
    """Read the test split of a spec's source, checked against the published corpus: queries with judgements, all rows.

    InputError if the spec evaluates this split and no judgement in it is above 0.
    """
    everything = questions.read(sources.reader(spec.corpus), _result_ids(corpus))
    rows = everything.of_test()
    requirements.check_judgements(rows.counts())
    if spec.evaluate.split == "test":
        requirements.check_split(spec, rows.counts(), corpus.record.counts)
    judged = {judgement.query_id for judgement in rows.accepted_judgements["test"]}
    return tables.queries_table([query for query in everything.accepted_queries if query.key in judged]), rows


def write(root: Location, queries: pa.Table, vector_QM: Floats, rows: questions.Questions) -> Output:
    counts = rows.counts() | {"judged": len(queries)}
    for line in tables.lines(counts):
        say(line)
    if counts["queries"]["rejected"] or counts["judgements"]["test"]["rejected"]:
        say(f"  rejected rows: {here(root / tables.REJECTED)}")
    with_vectors = queries.append_column("vector", columns.vector_column(vector_QM, pa.float32()))
    return Output(counts, tuple(tables.write(root, with_vectors, rows.splits, rows.rejected())))


def encode(spec: EncoderSpec, model: Path, texts: Sequence[str], cpus: int) -> Floats:
    """Encode texts with the base encoder of a folder, by `cpus` threads: float32 [n, m]."""
    torch.set_num_threads(cpus)
    return TextEncoder(model, spec).encode(texts)


def _result_ids(corpus: Artifact) -> ids.IdSet:
    digests = [ids.NO_DIGESTS]
    for name in corpus.names("documents/"):
        path = corpus.path(name)
        named = files.read_metadata(path).schema.to_arrow_schema().names
        column = "parent" if "parent" in named else "doc_id"
        digests.append(ids.of(columns.read([path], [column])[column].unique().to_pylist()))
    return ids.IdSet(np.concatenate(digests))
