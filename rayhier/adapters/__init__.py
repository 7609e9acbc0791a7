"""Adapters: an index behind the interfaces of other libraries. Each library has a file and an extra of the package."""


def needs(extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Make the error for a library that is not installed, with the extra that brings the library."""
    return ModuleNotFoundError(f"{error.name} is not installed: pip install 'rayhier[{extra}]'", name=error.name)
