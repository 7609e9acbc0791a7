"""The page in a browser: Chromium by Playwright, over an index of a hundred documents or canned answers."""

import re
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

from rayhier.search.request.hits import Hit
from rayhier.search.segment.stored import Stored
from rayhier.serve.args import ServeArgs
from rayhier.serve.embedded import Embedded
from rayhier.serve.errors import RETRY, ApiError

from .sockets import listening
from .stand_ins import LIMITS, TOKEN, Canned, app_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
MARKUP = "<img src=x onerror=\"document.title='taken'\"><script>alert(1)</script>&lt;b&gt;"
ROOMY = LIMITS.model_copy(update={"max_requests": 64})


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def tab(browser):
    """`tab(port)`: a tab at a server; at the end it had no error and no dialog, and asked no other host."""
    page, wrong = browser.new_context().new_page(), []
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("console", lambda line: wrong.append(line.text) if "Security Policy" in line.text else None)
    page.sent = []
    page.on("request", lambda request: page.sent.append(request.url))

    def open_tab(port):
        page.goto(f"http://127.0.0.1:{port}/")
        return page

    yield open_tab
    host = re.match(r"http://127\.0\.0\.1:\d+/", page.url)[0]
    page.context.close()
    assert wrong == [url for url in page.sent if not url.startswith(host)] == []


@pytest.fixture
def engine():
    return Canned()


@pytest.fixture
def page(tab, engine):
    """A tab at a server of that engine."""
    with listening(app_of(engine, ROOMY)) as port:
        yield tab(port)


def search(page, query="oak"):
    """Type a query and press Enter, without a mouse."""
    page.get_by_label("Query").fill(query)
    page.keyboard.press("Enter")


def ids(page):
    return page.locator("#results code").all_inner_texts()


def says(page, text):
    """Wait until the status line says a text."""
    page.locator("#status", has_text=text).wait_for()


@pytest.fixture
def real(tab, published):
    """A tab at a server of the published index."""
    opened = Embedded(ServeArgs(workdir=str(published), limits={"queue_seconds": 30}))
    with listening(opened.app()) as port:
        yield tab(port)
    opened.close()


def test_a_search_and_a_document_by_keyboard(real):
    page = real
    expect(page.locator("#query")).to_be_focused()
    page.keyboard.type("the oak elmleaf")
    page.keyboard.press("Enter")
    says(page, "10 results.")
    page.reload()  # the address has the query
    says(page, "10 results.")
    assert len(ids(page)) == 10
    assert {word.lower() for word in page.locator("#results mark").all_inner_texts()} == {"oak", "elmleaf"}
    expect(page.locator("#route").get_by_text("of 120")).to_have_count(1)
    title, detail = page.locator("#results .title").first, page.locator("#detail")
    title.focus()
    page.keyboard.press("Enter")
    detail.locator(".text").wait_for()
    assert detail.locator("code").inner_text() == ids(page)[0]
    page.keyboard.press("Escape")
    expect(detail).to_be_hidden()
    page.locator("#filters summary").click()
    page.get_by_label("from", exact=True).fill("1910")
    page.get_by_label("to", exact=True).fill("1912")
    search(page)
    says(page, "3 results; no more documents match.")


def test_markup_stays_text(page, engine):
    engine.hit = Hit(MARKUP, 0.5, 3, MARKUP, f"oak {MARKUP}", {"year": 1999})
    engine.stored = [Stored(MARKUP, MARKUP, MARKUP, None, {MARKUP: MARKUP}, [3])]
    before = page.evaluate("document.querySelectorAll('script, img').length")
    search(page)
    says(page, "1 result.")
    assert page.locator("#results .snippet").inner_text() == f"oak {MARKUP}"
    assert ids(page) == [MARKUP]
    page.locator("#results .title").click()
    page.locator("#detail .text").wait_for()
    expect(page.locator("#detail dl").get_by_text(MARKUP, exact=True)).to_have_count(3)
    assert page.evaluate("document.querySelectorAll('script, img').length") == before
    assert page.title() == "canned · rayhier"


def test_a_token_is_asked_for_once_and_kept_in_the_tab(tab, held):
    with listening(app_of(Canned(), ROOMY, held)) as port:
        page = tab(port)
        dialog = page.locator("#token-dialog")
        dialog.wait_for()
        page.keyboard.type("sesame-2")
        page.keyboard.press("Enter")
        dialog.get_by_text("The server refused this token.").wait_for()
        assert page.evaluate("sessionStorage.length") == 0
        page.keyboard.type(TOKEN)
        page.keyboard.press("Enter")
        page.get_by_label("Query").wait_for()
        page.reload()
        search(page)
        says(page, "1 result.")
        expect(dialog).to_be_hidden()
        assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
        assert page.evaluate("Object.values(sessionStorage)") == [TOKEN]
        assert not any(TOKEN in url for url in page.sent)


def test_errors_and_lost_parts_are_shown_in_plain_words(page, engine):
    alert = page.get_by_role("alert")
    for refusal, said in (
        (ApiError(422, "invalid", "k: got 0; allowed: 1"), "cannot answer this query: k: got 0; allowed: 1"),
        (ZeroDivisionError(), "status 500: "),
        (ApiError(503, "overloaded", "busy", RETRY), "cannot answer now: busy. Try again in 1 second."),
    ):
        engine.error = refusal
        search(page)
        alert.get_by_text(said).wait_for()
    engine.error, engine.gone = None, ["shards-1", "reranker"]
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("Results may be missing: shards-1 did not answer.").wait_for()
    page.get_by_text("The cross-encoder did not answer").wait_for()


def test_the_tree_opens_step_by_step_and_what_is_served_is_told(page):
    page.get_by_role("link", name="Tree").press("Enter")
    node = page.get_by_role("button", name="6 1:1 leaf moss")
    node.press("Enter")
    assert node.get_attribute("aria-expanded") == "true"
    page.get_by_role("button", name="4 leaf 3 word3").press("Enter")
    page.locator("#detail").get_by_role("button", name="d1").click()
    page.locator("#detail").get_by_text("a text").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Served").click()
    for fact in ("ba9876543210", "4, served", "delete, 10 documents"):
        expect(page.locator("#facts").get_by_text(fact)).to_have_count(1)
