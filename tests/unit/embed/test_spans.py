"""Titles and spans of documents as pseudo-queries: what is drawn, from where, and when nothing is."""

import numpy as np
import pytest

from rayhier.embed.encode import TextEncoder
from rayhier.embed.spans import SpanDrawer, lead
from rayhier.spec import InputError
from rayhier.spec.encoder import EncoderSpec
from rayhier.spec.train import PseudoQueries

from ...conftest import WORDS


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return TextEncoder(tiny_model, EncoderSpec(model=str(tiny_model), precision="float32")).encoder.tokenizer


@pytest.fixture
def drawer(tokenizer):
    """`drawer(max_length=…, source=…, length=…)`."""

    def make(max_length=64, **given):
        return SpanDrawer(tokenizer, max_length, PseudoQueries(**{"source": "titles_and_spans", **given}))

    return make


def words(count, seed=0):
    return " ".join(np.random.default_rng(seed).choice(WORDS, count))


def length(tokenizer, text):
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize(
    ("title", "count", "wanted"), [("", 6, 0), ("oak", 6, 1), ("", 7, 2), ("oak", 7, 3), ("oak", 0, 0), (" ", 7, 2)]
)
def test_none_from_a_text_that_is_no_longer_than_a_span(drawer, title, count, wanted):
    assert len(drawer(length=6).draw(["d"], [title], [words(count)])[0]) == wanted


def test_only_what_the_encoder_reads_is_drawn_from(drawer):
    """Ten tokens, two of them special and one the title's."""
    text = words(40)
    cut = drawer(max_length=10, length=4)
    drawn = {span for name in range(200) for span in cut.draw([f"d{name}"], ["oak"], [text])[1][1:]}
    assert drawn == {" ".join(text.split()[first : first + 4]) for first in range(4)}


def test_a_draw_follows_from_key_and_id_alone(drawer):
    texts = [words(40, seed) for seed in range(3)]
    one = drawer(source="spans", length=8)
    together = one.draw(["a", "b", "c"], [""] * 3, texts)
    apart = one.draw(["c"], [""], texts[2:])
    assert together[1][4:] == apart[1]
    assert one.draw(["c"], [""], texts[2:], key="1")[1] != apart[1]
    assert one.draw(["other"], [""], texts[2:])[1] != apart[1]


def test_a_tokenizer_without_offsets_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(InputError, match=r"train\.pseudo_queries\.source"):
        SpanDrawer(Slow(), 64, PseudoQueries(source="spans"))


LEADS = {"猫在叫。狗在跑。": "猫在叫。", "Is 2.5 out?\nYes.": "Is 2.5 out?", "Cats\n \nThey purr": "Cats"}


@pytest.mark.parametrize("text", [*LEADS, "猫在叫。\n", "Version 2.5", "", "Cats\nDogs"])
def test_the_first_of_several_sentences_leads_where_there_is_no_title(text):
    assert lead(" ", text) == ([LEADS[text]] if text in LEADS else [])
