"""Fixtures of several tests of search."""

import pytest


@pytest.fixture(params=[False, True], ids=["documents", "passages"])
def passages(request):
    return request.param
