"""What the small install of rayhier, for search and serving, does not bring."""

from importlib.util import find_spec

from rayhier.spec.errors import InputError

INSTALL = "pip install 'rayhier[train,cpu]' (any machine) or 'rayhier[train,gpu]' (CUDA)"


def needs(what: str, *packages: str) -> None:
    """Raise InputError with the line to install if a package is missing."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InputError(f"{what} needs {', '.join(missing)}, which is not installed; run {INSTALL}")
