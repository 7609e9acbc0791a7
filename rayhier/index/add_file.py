"""Add the documents of a file to an index: encode them, route them to leaves, publish a version."""

from pathlib import Path

from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.index.incoming import batches
from rayhier.index.pack import packed
from rayhier.search.index import open_leaf_map
from rayhier.search.routing.routes import Model
from rayhier.storage import current
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import Location


def add_file(
    workdir: Location, file: Path, *, upsert: bool = False, id_column: str | None = None, model: Model | None = None
) -> LeafMap:
    """Add the documents of a JSON lines, CSV, TSV or parquet file. InputError if a document does not fit the corpus."""
    now = current.read(workdir)
    leaf_map = open_leaf_map(workdir, now)
    model = model or Model.of_workdir(workdir, now, leaf_map)
    assign = Assigner(model.router, now.spec, now.artifacts["model"])
    is_cosine = now.spec.encoder.similarity == "cosine"
    documents = batches(file, now.spec.corpus, id_column, model.encode, unit=is_cosine)
    put = change.upsert if upsert else change.add
    return packed(put(leaf_map.root, assign, documents))
