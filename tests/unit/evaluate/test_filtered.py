"""An evaluation by a filter measures as an evaluation of the matching documents alone does; no Ray."""

import json

import numpy as np
import pyarrow as pa
import pytest

from rayhier.evaluate import evaluation as module
from rayhier.evaluate.baselines.bm25 import Bm25
from rayhier.evaluate.output import as_markdown
from rayhier.evaluate.report import Report
from rayhier.index.assign import Assigner
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import open_router
from rayhier.spec import InputError, JobSpec
from rayhier.spec.filter import Bound
from rayhier.storage import schemas

from ...toys import artifact, evaluated
from . import judged
from .judged import IDS, MEASURES, SPEC, B, N, corpus_of, recall, under

texts, heads, vectors, trained_without = (getattr(judged, name) for name in ("texts", "heads", "vectors", "trained"))
FIELDS = {"year": "int"}
YEARS = [None if n % 10 == 9 else 2000 + n % 10 for n in range(N)]
WANTED = {"year": {"gte": 2000, "lt": 2004}}
KEPT = np.array([n for n in range(N) if n % 10 < 4])
DECLARED = {**SPEC, "corpus": {"type": "jsonl", "documents": "d", "fields": FIELDS}}


@pytest.fixture(scope="module")
def corpus(texts, tmp_path_factory):
    schema = schemas.documents(FIELDS, passages=False)
    documents = pa.table([IDS, IDS, [f"word{n % 24} common" for n in range(N)], YEARS], schema=schema)
    return corpus_of(tmp_path_factory.mktemp("corpus"), texts, documents, "word")


@pytest.fixture(scope="module")
def trained(trained_without, texts, heads, tmp_path_factory, write_map):
    made = {}
    documents = pa.table([IDS, IDS, IDS, YEARS], schema=schemas.documents(FIELDS, passages=False))
    for seed, (model, _) in trained_without.items():
        index = artifact(tmp_path_factory.mktemp("index"), "index")
        assign = Assigner(open_router(model.path("router")), JobSpec.model_validate(SPEC))
        write_map(index.root, assign(documents, Encoded(under(heads[seed], texts[0]))), B, 5, model="f")
        made[seed] = (model, index)
    return made


def filtered(*names, where=WANTED, **given):
    evaluating = {"measures": MEASURES, "baselines": names, "seeds": [0], "filter": where}
    evaluating |= {"lists": 12} if any("ivf" in name for name in names) else {}
    return JobSpec.model_validate({**DECLARED, "evaluate": {**evaluating, **given}})


@pytest.fixture(scope="module")
def answers(texts):
    kept = [np.intersect1d(rows, KEPT) for rows in texts[2][:16]]
    return [n for n in range(16) if len(kept[n])], [rows for rows in kept if len(rows)]


def test_every_system_sees_only_what_matches(corpus, vectors, trained, texts, heads, answers):
    spec = filtered("exact", "exact_same_encoder", "faiss_ivf", "faiss_ivf_same_encoder", "faiss_ivf_spill")
    found = evaluated(spec, corpus, vectors, {0: trained[0]})
    asked, rows = answers
    assert (found.documents, found.corpus, found.queries) == (len(KEPT), N, len(asked))
    assert found.left_out == 16 - len(asked) > 0
    (result,) = found.seeds
    places = [np.searchsorted(KEPT, own) for own in rows]
    for name, under_ in {"exact": lambda x: x, "exact_same_encoder": lambda x: under(heads[0], x)}.items():
        documents, queries = under_(texts[0][KEPT]), under_(texts[1][asked])
        expected = {f"R@{k}": recall(documents, queries, places, k) for k in (10, 100)}
        assert result.rows[name] == pytest.approx({**expected, "visited": 1.0})
    kept = {IDS[row] for row in KEPT}
    for run in result.runs.values():
        assert set(run) == {f"q{n}" for n in asked}
        assert {name for scores in run.values() for name in scores} <= kept
    assert result.curves["faiss_ivf_spill"][-1].visited_mean == 1
    bm25 = Bm25.of_corpus(corpus, Bound("year", "lt", 2004)).rank(["word3 common"], N)
    assert set(bm25.ids[bm25.row_QK[0][bm25.row_QK[0] >= 0]]) == {IDS[row] for row in KEPT}
    assert bm25.visited_Q.tolist() == [len(KEPT)]


def test_the_report_says_what_was_left_out(corpus, vectors, trained, answers):
    spec = filtered("exact")
    report = Report.of(spec, evaluated(spec, corpus, vectors, {0: trained[0]}))
    shown = {"and": [{"year": {"gte": 2000}}, {"year": {"lt": 2004}}]}
    assert (report.filter, report.corpus, report.left_out) == (shown, N, 16 - len(answers[0]))
    page = as_markdown(spec, report)
    assert f"{len(KEPT)} documents of {N} that match `{json.dumps(shown)}` (jsonl), {len(answers[0])} test" in page
    assert f"({16 - len(answers[0])} queries without a matching answer are left out)" in page


def test_a_filter_that_no_answer_matches_is_refused(corpus, vectors, trained, monkeypatch):
    with pytest.raises(InputError, match=r"evaluate\.filter: no answer of 16 test queries matches; allowed"):
        evaluated(filtered("exact", where={"year": 1}), corpus, vectors, {0: trained[0]})
    monkeypatch.setattr(module, "about_matching", lambda some, _: some.about(set() if "q16" in some.ids else set(IDS)))
    with pytest.raises(InputError, match=r"evaluate\.lists: got 'auto', but no dev answer matches the filter"):
        evaluated(filtered("faiss_ivf", lists="auto"), corpus, vectors, {0: trained[0]})
