"""Train an encoder and a hierarchical index together on Ray; index, measure and search what came out."""

import os

# OpenMP reads this once, when torch or faiss loads it. Threads that spin while they wait made small training
# steps seventy times slower beside one other busy process (docs/LOG.md).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
