"""A bucket as the workdir: planned without a cluster, refused at once where it cannot be used."""

import re

import pytest

from rayhier import run
from rayhier.storage import files
from rayhier.storage.paths import locate

EMPTY = '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>'
DENIED = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


def test_a_plan_leaves_the_bucket_as_it_is(tiny_spec, s3, capsys):
    assert run.main([str(tiny_spec(workdir=f"{s3}/runs/")), "--plan"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(f"workdir {s3}/runs")
    assert sum("  to do  " in line for line in lines) == 7
    assert files.below(locate(s3)) == []


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "cannot be opened: NoSuchBucket: "),
        (None, "cannot be opened: .*http://127.0.0.1:1/.*AWS_"),
        ({"GET": (403, DENIED)}, "cannot be opened: AccessDenied: Access Denied; allowed: .*credentials, region"),
        ({"GET": (200, EMPTY), "PUT": (403, DENIED)}, "cannot be written: AccessDenied: Access Denied"),
    ],
    ids=["no bucket", "no answer", "closed", "open for reading alone"],
)
def test_a_bucket_that_cannot_be_used(answers, said, request, tiny_spec, bucket, monkeypatch, capsys):
    if answers:
        request.getfixturevalue("answering")(**answers)
    elif answers is None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert run.main([str(tiny_spec(workdir="s3://no-such-bucket/a"))]) == 2
    error = capsys.readouterr().err
    assert re.match(f"error: workdir: s3://no-such-bucket/a {said}", error, re.DOTALL)
    assert "Traceback" not in error
