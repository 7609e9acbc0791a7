"""Parts of rayhier that need more than the small install: the extra that brings them."""

from importlib.util import find_spec

from rayhier.spec.errors import InputError


def needs(what: str, *packages: str) -> None:
    """Raise InputError with the line to install if a package is missing."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InputError(
            f"{what} needs {', '.join(missing)}, which rayhier alone does not install; install "
            "pip install 'rayhier[train,cpu]' (any machine) or pip install 'rayhier[train,gpu]' (CUDA)"
        )
