"""Import faiss, or say what to install: two packages provide it, so rayhier cannot depend on either."""

from rayhier.spec import InputError

try:
    import faiss
    from faiss.contrib import ivf_tools
except ModuleNotFoundError as error:
    raise InputError(
        "faiss is not installed; choose one: pip install 'rayhier[cpu]' (faiss-cpu, any machine) or "
        "pip install 'rayhier[gpu]' (faiss-gpu, CUDA). Never install both: each provides the module faiss."
    ) from error

__all__ = ["faiss", "ivf_tools"]
