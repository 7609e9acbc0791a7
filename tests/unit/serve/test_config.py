"""Addresses that a server may listen on."""

import socket

import pytest

from rayhier.serve.config import check_free, url_of
from rayhier.spec import InputError


@pytest.mark.parametrize(
    ("host", "family", "url"),
    [
        ("127.0.0.1", socket.AF_INET, "http://127.0.0.1:{}"),
        ("::1", socket.AF_INET6, "http://[::1]:{}"),
    ],
)
def test_a_port_of_either_family_is_free_or_taken(host: str, family: int, url: str) -> None:
    with socket.socket(family) as listening:
        listening.bind((host, 0))
        listening.listen()
        port = listening.getsockname()[1]
        with pytest.raises(InputError, match="another process listens there"):
            check_free(host, port)
    check_free(host, port)
    assert url_of(host, port) == url.format(port)
