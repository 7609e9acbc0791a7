"""Import faiss, or say which of two packages to install."""

from rayhier.extras import needs

needs("this command", "faiss")
import faiss  # noqa: E402
from faiss.contrib import ivf_tools  # noqa: E402

__all__ = ["faiss", "ivf_tools"]
