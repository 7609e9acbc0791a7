"""BM25 by postings of a leaf map, compared with one index of all documents. Words of texts in any script."""

import re
import unicodedata

import bm25s
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rayhier.dataset.words import FREQUENT, language_of, postings, unstemmed, words
from rayhier.index.verify import verify
from rayhier.search.native import extension
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.search.words.bm25 import Bm25Index
from rayhier.search.words.hybrid import WordScan
from rayhier.spec import InputError
from rayhier.storage.leaf_map import LeafMap

from .maps import leaf_map_of_rows, leaf_rows

N, M, LEAVES = 900, 4, 12
QUERIES = 60
ODD = ["", "the of and", "unheard of", "a b c", "\x00", "é" * 10_000, "w1 " * 3_334]


def text(rng, most):
    """Words as rare as Zipf says, a hundred of them in at most two documents."""
    return " ".join(f"w{min(int(rank), 400)}" for rank in rng.zipf(1.3, size=rng.integers(1, most)))


@pytest.fixture
def world(tmp_path, write_map, unit):
    rng = np.random.default_rng(0)
    texts = [text(rng, 60) for _ in range(N)]
    texts[7], texts[8], texts[9] = "", "the of and", texts[10]  # no words, stop words, and a copy
    leaves = [[int(leaf)] for leaf in np.sort(rng.integers(LEAVES, size=N))]
    ids = [f"d{n:04d}" for n in range(N)]
    table = leaf_rows(leaves, unit(rng, N, M), doc_id=ids, text=texts)
    leaf_map = leaf_map_of_rows(tmp_path / "map", write_map, table, LEAVES, 3)
    queries = [text(rng, 9) for _ in range(QUERIES)]
    return leaf_map, dict(zip(ids, texts, strict=True)), queries


def lists_of(leaf_map, leaves=None):
    scan = LeafScan.mapped(leaf_map, leaves)
    return WordScan.mapped(leaf_map, scan).words, scan


def check(leaf_map, texts, queries, k=50):
    """What postings find equals BM25 of the version's documents: scores, and which documents have them."""
    lists, scan = lists_of(leaf_map)
    ids = [name for segment in scan.segments for name in segment.ids().to_pylist()]
    plain = Bm25Index([texts[name] for name in ids])
    score_QK, row_QK = lists.best(queries, k)
    for query, score_K, row_K in zip(queries, score_QK, row_QK, strict=True):
        wanted_N = plain.scores(query)
        wanted_K = np.sort(wanted_N[wanted_N > 0])[::-1][:k]
        count = len(wanted_K)
        np.testing.assert_allclose(score_K[:count], wanted_K, rtol=1e-4)
        assert set(score_K[count:].tolist()) <= ({-np.inf} if count < k else {-np.inf, float(score_K[k - 1])})
        assert ((row_K < 0) == (score_K == -np.inf)).all()
        present = row_K >= 0
        np.testing.assert_allclose(wanted_N[row_K[present]], score_K[present], rtol=1e-4)
    assert lists.documents == len(ids)


@pytest.fixture(params=["native", "numpy"])
def form(request, monkeypatch):
    """The form of BM25: native code, or numpy's without it."""
    if request.param == "numpy":
        monkeypatch.setattr("rayhier.search.words.postings.extension", lambda: None)
    elif extension() is None:
        pytest.skip("no native scan")


def test_words_of_an_older_tokenizer_are_counted_again(monkeypatch, request):
    """Postings as a release before this one wrote them."""

    def others(texts, row_N, _):
        return postings([f"older {text[:9]}" for text in texts], row_N).replace_schema_metadata(None)

    monkeypatch.setattr("rayhier.index.shards.postings", others)
    leaf_map, texts, queries = request.getfixturevalue("world")
    check(leaf_map, texts, ["older", *queries])


def test_stems_of_another_version_are_refused(monkeypatch, world):
    leaf_map, texts, queries = world
    check(leaf_map, texts, queries)
    monkeypatch.setattr("rayhier.storage.schemas.SNOWBALL", "9.9")
    with pytest.raises(InputError, match=r"stems of Snowball \d.* with Snowball 9\.9 here; allowed: .*rayhier upgrade"):
        check(leaf_map, texts, queries)


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("k", [1, 10, N])
def test_equals_one_index_of_all_documents(world, k):
    leaf_map, texts, queries = world
    check(leaf_map, texts, [*queries, *ODD], k)


@given(st.text(st.sampled_from("ab1_ '-.")))
def test_english_words_are_those_of_bm25s_and_single_letters(text):
    theirs = bm25s.tokenize([text], return_ids=False, show_progress=False)[0]
    found = unstemmed(text, "english")
    assert [word for word in found if len(word) > 1] == theirs
    cut_off = {text[place] for place in range(len(text)) if "'" in text[max(0, place - 1) : place + 2]}
    assert {word for word in found if len(word) == 1} >= {*re.findall(r"\b\w\b", text)} - {"a"} - cut_off


@given(st.text(st.sampled_from("aB’é\u0301iशि्कहि中文ひらガがー한국ไท์ยខ្មែរمَا\u200cשָׁ ﬁ①")))
@example("ή İ ß")
def test_words_do_not_depend_on_how_a_text_is_composed(text):
    forms = [words(unicodedata.normalize(form, text)) for form in ("NFC", "NFD", "NFKC", "NFKD")]
    assert forms[0] == forms[1] == forms[2] == forms[3]
    assert all(forms[0])


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("किताब", "हिन्दी में किताब पढ़ना"),
        ("压缩文件", "如何打开压缩文件"),
        ("ファイル", "圧縮ﾌｧｲﾙを開く"),
        ("ภาษา", "ภาษาไทยเป็นภาษาที่สวยงาม"),
        ("cafe\u0301", "le CAFÉ noir"),
        ("كتاب", "كِتَابٌ جَدِيدٌ"),
        ("STRASSE", "die Straße"),
        ("vitamin b", "B-vitamin"),
        ("q", "press ’q’ to quit"),
        ("葛城", "葛\U000e0100城市"),
    ],
)
def test_every_word_of_a_query_is_found_in_the_text(query, text):
    for language in ("none", "english", "turkish"):
        assert words(query, language)
        assert set(words(query, language)) <= set(words(text, language))


FRENCH = ["Le prix de l'or monte depuis un mois.", "On a vu la bague en or."] * 9 + ["The Beatles à Paris"]
GERMAN = ["Die Bank will ein Haus an der Elbe.", "Er war in Rom, das war schön.", "So war es."]
RIGHTS = {
    "arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق، وقد وهبوا عقلا وعليهم أن يعامل بعضهم بعضا من دون",
    "catalan": "Tots els éssers humans neixen lliures i iguals en dignitat. Les lleis dels pobles parlen també amb",
    "czech": "Všichni lidé jsou si rovni, protože je známo, že jsou svobodní, jako byli pro své otce nebo podle",
    "danish": "Alle mennesker er født frie af natur, uden forskel, og mod deres ret er blevet sagt, hvad nogle ville",
    "dutch": "Alle mensen worden vrij geboren. Het recht van een mens is niet voor de koning, het is ook van het volk",
    "english": "All human beings are born free and equal in dignity. They act towards one another with the spirit of",
    "finnish": "Kaikki ihmiset syntyvät vapaina. Ihminen on vapaa, ja se on myös oikeus, joka oli ennen, että ei ole",
    "french": "Tous les êtres humains naissent libres dans le monde et égaux. La loi est une règle pour les peuples",
    "german": "Alle Menschen sind frei geboren. Das Recht der Menschen ist nicht die Gnade, und mit der Freiheit ist",
    "greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι. Η αξία του ανθρώπου είναι το μέτρο της πολιτείας",
    "hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में स्वतन्त्रता प्राप्त है। उन्हें बुद्धि की देन प्राप्त है",
    "hungarian": "Minden ember szabad, és az ember joga az, hogy egy úr se mondja meg, mi nem volt jó, csak az",
    "indonesian": "Semua orang dilahirkan merdeka dan mempunyai hak yang sama. Hak ini tidak datang dari raja untuk",
    "italian": "Tutti nascono liberi. La legge che vale per il popolo non è di un uomo, e le leggi della terra sono",
    "norwegian": "Alle mennesker er født frie av natur, og noen har en rett fra før. Hva som ble sagt etter det, er",
    "persian": "تمام افراد بشر آزاد به دنیا می‌آیند و از حقوق برابر که این قانون را داده است، برخوردارند",
    "polish": "Wszyscy ludzie rodzą się wolni, jest to prawo od dawna, że nie ma panów dla ludzi oraz nie ma wojen",
    "portuguese": "Todos nascem livres e iguais em direitos. A lei do povo não é uma lei da coroa, e os homens vão",
    "romanian": "Toți oamenii se nasc liberi în drepturi. Legea este pentru popor, și cu ea sunt legați toți din",
    "russian": "Все люди рождаются свободными. Это право, что дано им, как было, чтобы она, если его нет, была дана",
    "spanish": "Todos los seres nacen libres e iguales. La ley del pueblo es una regla por la que viven el rey y las",
    "swedish": "Alla människor är födda fria och lika. Det är inte för en kung att ta ett liv från folket, och det",
    "turkish": "Bütün insanlar hür ve eşit doğar. Bu hak bir kral için değil, halk ile olarak çok daha eskidir ve",
}
"""Sentences about human rights, in each language that is detected."""
ENGLISH = ["the small tree", "a shrub with red berries and thorns", "act of giving", "of or like gold"]


def test_texts_tell_their_language():
    named = {language: [text] for language, text in RIGHTS.items()} | {
        "german": GERMAN,
        "english": 9 * ENGLISH + FRENCH,
    }
    assert RIGHTS.keys() == FREQUENT.keys()
    for language, texts in named.items():
        assert language_of(texts) == language_of(texts[::-1]) == language
    for texts in (ENGLISH + GERMAN, ["如何打开压缩文件"], ["Zn 65, Fe 55"], ["Усі люди народжуються вільними"], []):
        assert language_of(texts) == "none"


@pytest.mark.parametrize(
    ("language", "query", "text"),
    [
        ("english", "indexing a library", "Libraries and their indexes"),
        ("german", "Haus", "in den Häusern"),
        ("french", "enfant naturelle", "des enfants naturels"),
        ("russian", "книга", "в книгах"),
        ("finnish", "talo", "talossa"),
    ],
)
def test_forms_of_a_word_are_one_word(language, query, text):
    assert words(query, language)
    assert set(words(query, language)) <= set(words(text, language))
    assert not set(words(query, "none")) <= set(words(text, "none"))
    index = Bm25Index([text, "x y z"], language)
    assert index.scores(query)[0] > index.scores(query)[1] == 0


def test_an_index_without_words_is_refused(world):
    leaf_map, _, _ = world
    shards = [shard.model_copy(update={"postings": None}) for shard in leaf_map.manifest.shards]
    bare = LeafMap(leaf_map.root, leaf_map.manifest.model_copy(update={"shards": shards}))
    assert not bare.manifest.words
    with pytest.raises(InputError, match=r"its words were not counted; allowed: search\.mode dense"):
        lists_of(bare)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_postings_are_refused(world, damage, tmp_path, monkeypatch):
    monkeypatch.setenv("RAYHIER_CACHE", str(tmp_path / "empty"))
    leaf_map, _, _ = world
    path = leaf_map.root / leaf_map.manifest.shards[0].postings.name
    body = path.read_bytes()
    path.unlink() if damage == "missing" else path.write_bytes(body[:-20] + bytes([body[-20] ^ 1]) + body[-19:])
    with pytest.raises(InputError, match=rf"{path.name}.*(rebuild the index|rollback)"):
        lists_of(leaf_map)
    with pytest.raises(InputError, match=path.name):
        verify(leaf_map.root)
