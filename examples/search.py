"""Search an index from Python: `python examples/search.py runs/quickstart "how do I open a zip file"`."""

import sys

import rayhier

if len(sys.argv) != 3:
    sys.exit(__doc__)
workdir, query = sys.argv[1:]
with rayhier.open(workdir) as index:
    for mode in ("hybrid", "dense", "bm25"):
        results = index.search(query, k=3, mode=mode)
        print(mode)
        print(results)
