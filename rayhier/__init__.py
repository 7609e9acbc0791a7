"""Adapts an encoder and learns an index for your corpus on Ray; builds it, measures what was gained, serves it."""

import os

# OpenMP reads this once, when torch or faiss loads it. Threads that spin while they wait made small training
# steps seventy times slower beside one other busy process (docs/LOG.md).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
