"""Adapters: an index behind the interfaces of other libraries, a file and an extra of the package each."""


def needs(extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Make the error that says which extra brings a library that is not installed."""
    return ModuleNotFoundError(f"{error.name} is not installed: pip install 'rayhier[{extra}]'", name=error.name)
