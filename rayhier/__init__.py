"""Train an encoder and an index for your corpus on Ray; build the index, measure the gain, serve searches."""

import os

# OpenMP reads OMP_WAIT_POLICY once, when torch or faiss loads it. Threads that spin while they wait made small
# training steps seventy times slower beside one other busy process (docs/LOG.md).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
