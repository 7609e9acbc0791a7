"""Milliseconds that each adapter adds to a search, over an index that is opened and one that is served.

`.venv-neighbours/bin/python -m benchmarks.adapters WORKDIR`: the run's dev queries by the index and by each adapter, by
turns, ten results each; medians, that of the paired differences among them. What a library hands over, such as a frame
of one query, is made before.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import rayhier
from benchmarks.commands import Options, served
from benchmarks.tables import table
from rayhier.dataset.queries import load_split
from rayhier.serve.client import Client
from rayhier.storage import current
from rayhier.storage.paths import locate

PORT, TOKEN = 8917, "benchmark"
K = 10
Search = Callable[[str], Any]


def main() -> None:
    """Measure and print the table."""
    parser = Options("What adapters add to a search.")
    parser.add_argument("workdir")
    parser.add_argument("--queries", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = queries(options.workdir)[: options.queries]
    rows = list[list[str]]()
    with rayhier.open(options.workdir) as index:
        rows += measured("opened", index, lambda text: index.search(text, K), texts)
    with server(options.workdir) as client:
        rows += measured("served", client, lambda text: client.search(text, K), texts)
    head = ["index", "adapter", "itself, ms", "by the adapter, ms", "added, ms", "added"]
    print("\n".join(table(head, rows)))


def queries(workdir: str) -> list[str]:
    """Texts of the dev queries of a run."""
    place = locate(workdir)
    now = current.read(place)
    corpus, vectors = (current.artifact(place, now, kind) for kind in ("corpus", "vectors"))
    return list(load_split("dev", corpus, vectors, None).texts)


@contextmanager
def server(workdir: str) -> Iterator[Client]:
    """A server of the workdir, and its client."""
    with TemporaryDirectory() as folder:
        (token := Path(folder) / "token").write_text(TOKEN)
        command = ["rayhier", "serve", workdir, "--port", str(PORT), "--token-file", str(token)]
        url = f"http://127.0.0.1:{PORT}"
        with served(command, f"{url}/readyz"), Client(url, TOKEN) as client:
            yield client


def measured(name: str, index: Any, itself: Search, texts: list[str]) -> Iterator[list[str]]:
    """Rows of the table for an index: each adapter beside the index itself, query by query."""
    for adapter, search in adapters(index, texts).items():
        took = np.array([both(itself, search, text, n % 2) for n, text in enumerate(texts[:10] + texts)])[10:]
        added, base = np.median(took[:, 1] - took[:, 0]), np.median(took[:, 0])
        yield [name, adapter, f"{base:.2f}", f"{np.median(took[:, 1]):.2f}", f"{added:+.2f}", f"{added / base:+.1%}"]


def both(itself: Search, search: Search, text: str, turn: int) -> tuple[float, float]:
    """Milliseconds of a search by the index and by an adapter, one after the other: whose turn it is is first."""
    if turn:
        by_adapter = timed(search, text)
        return timed(itself, text), by_adapter
    return timed(itself, text), timed(search, text)


def timed(search: Search, text: str) -> float:
    """Milliseconds of a search."""
    began = time.perf_counter()
    search(text)
    return 1e3 * (time.perf_counter() - began)


def adapters(index: Any, texts: list[str]) -> dict[str, Search]:
    """Search of each adapter over an index, as its users call it."""
    import pandas as pd
    from datasets import Dataset

    from rayhier.adapters import haystack, langchain, llama_index, mteb, pyterrier

    chain = langchain.RayhierVectorStore(index)
    stack = haystack.RayhierRetriever(haystack.RayhierDocumentStore(index), top_k=K)
    llama = llama_index.RayhierRetriever(index, similarity_top_k=K)
    terrier = pyterrier.RayhierRetriever(index, num_results=K)
    task = mteb.RayhierSearch(index)
    frames = {text: pd.DataFrame({"qid": ["1"], "query": [text]}) for text in texts}
    sets = {text: Dataset.from_dict({"id": ["1"], "text": [text]}) for text in texts}
    return {
        "LangChain": lambda text: chain.similarity_search(text, K),
        "Haystack": lambda text: stack.run(text),
        "LlamaIndex": lambda text: llama.retrieve(text),
        "PyTerrier": lambda text: terrier.transform(frames[text]),
        "MTEB": lambda text: task.search(sets[text], top_k=K),
    }


if __name__ == "__main__":
    main()
