"""Check that the packages of an extra are installed."""

from importlib.util import find_spec

from rayhier.spec.errors import InputError


def needs(what: str, *packages: str) -> None:
    """Check that packages are installed. InputError with the command to install if a package is missing."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        install = "pip install 'rayhier[train,cpu]' (any machine) or 'rayhier[train,gpu]' (CUDA)"
        raise InputError(f"{what} needs {', '.join(missing)}; run {install}")
