"""Search an index from Python: `python examples/search.py runs/quickstart "how do I open a zip file"`."""

import sys

import rayhier

workdir, query = sys.argv[1:3]
with rayhier.open(workdir) as index:
    for mode in ("hybrid", "dense", "bm25"):
        results = index.search(query, k=3, mode=mode)
        print(mode)
        print(results)
