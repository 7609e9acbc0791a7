"""A file of generated pairs: what is refused before any work, and what makes its identity."""

import pytest

from rayhier.spec import InputError
from rayhier.spec.train import PairFile
from rayhier.storage.pair_source import describe


def test_a_file_is_its_content(tmp_path):
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    for path in (one, other):
        path.write_text('{"query": "pine", "doc_id": "d1"}\n\n{}\n')
    found = describe(PairFile(type="file", path=str(one)))
    assert found.lines == 2
    assert found.identity == describe(PairFile(type="file", path=str(other))).identity
    one.write_text("[]")
    assert found.identity != describe(PairFile(type="file", path=str(one))).identity


@pytest.mark.parametrize(
    ("content", "said"), [(None, r"got '.*', no such file; allowed: "), ("\n \n", r".* is empty; allowed: ")]
)
def test_a_file_without_pairs_is_refused(content, said, tmp_path):
    path = tmp_path / "pairs.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=rf"^train\.generated\.path: {said}"):
        describe(PairFile(type="file", path=str(path)))
