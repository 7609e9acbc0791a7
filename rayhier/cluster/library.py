"""Import faiss, or say what to install: two packages provide it."""

from rayhier.extras import needs

needs("this command", "faiss")
import faiss  # noqa: E402
from faiss.contrib import ivf_tools  # noqa: E402

__all__ = ["faiss", "ivf_tools"]
