"""
Each reference to a page leads somewhere: links of Markdown, and pages cited in code.

In code a page is cited in a docstring or a comment by its path from the root of the repository. A
number (`rule 12`, `row 5`, `section 1`) stands in the same docstring or comment as its page.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUPERVISION, FAILURES = "docs/background/supervision.md", "docs/background/failures.md"
RUNNERS = "docs/background/runners.md"
PAGE_OF = {"rule": SUPERVISION, "row": FAILURES, "trap": RUNNERS, "P": FAILURES, "D": FAILURES}

PATH = re.compile(r"(?<![\w/.:-])(?:[\w.-]+/)*[\w-]+\.md\b")
LIST = r"\d+(?:(?:, | and | to )\d+)*"
NUMBERS = re.compile(
    rf"\b((?i:rule|row|trap|section))s? ({LIST})(?![\w]|\.\d)|\b([PD])([1-9]\d?)\b"
)
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "GUARANTEES.md")),
        *(page for place in ("docs", "sql", "bench") for page in (ROOT / place).rglob("*.md")),
    ]
)


def expanded(numbers: str) -> list[str]:
    """`9, 14 and 22 to 25` as single numbers."""
    found: list[int] = []
    for word in re.findall(r"\d+|to", numbers):
        found.append(-1 if word == "to" else int(word))
    for place, number in enumerate(found):
        if number == -1:
            found[place : place + 1] = range(found[place - 1] + 1, found[place + 1])
    return [str(number) for number in found]


@cache
def anchors_of(page: str) -> frozenset[str]:
    """What `page.md#anchor` may name: explicit anchors, and headings as GitHub names them."""
    text = FENCED.sub("", (ROOT / page).read_text("utf-8"))
    explicit = re.findall(r'<a id="([^"]+)"></a>', text)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    named = [re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings]
    return frozenset([*explicit, *named])


def problems_of(block: str, mentioned: list[str]) -> Iterator[str]:
    """The numbers of a text that none of the mentioned pages explains."""
    for match in NUMBERS.finditer(block):
        kind = match[1].lower() if match[1] else match[3]
        numbers = expanded(match[2]) if match[1] else [match[4]]
        pages = mentioned if kind == "section" else [PAGE_OF[kind]]
        if not set(pages) & set(mentioned):
            yield f"{match[0]!r} without its page"
            continue
        separator = "-" if match[1] else ""
        for number in numbers:
            anchor = f"{kind.lower()}{separator}{number}"
            if not any(anchor in anchors_of(page) for page in pages):
                yield f"{match[0]!r}: {', '.join(pages)} has no #{anchor}"


def docstrings_and_comments(path: Path) -> Iterator[tuple[int, str]]:
    """First line and text of each docstring and each block of comments."""
    source = path.read_text("utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
                yield node.body[0].lineno, " ".join(docstring.split())
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments = [(t.start[0], t.string[1:]) for t in tokens if t.type == tokenize.COMMENT]
    else:
        lines = enumerate(source.splitlines(), 1)
        comments = [(number, line.partition("--")[2]) for number, line in lines if "--" in line]
    yield from joined(comments)


def joined(comments: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Comments on lines that follow each other are one text."""
    begin, last, texts = 0, -1, list[str]()
    for number, text in [*comments, (0, "")]:
        if texts and number != last + 1:
            yield begin, " ".join(" ".join(texts).split())
            texts = []
        begin = begin if texts else number
        texts.append(text)
        last = number


def problems_in_code(path: Path) -> Iterator[str]:
    for line, block in docstrings_and_comments(path):
        mentioned = PATH.findall(block)
        missing = [page for page in mentioned if not (ROOT / page).exists()]
        known = [page for page in mentioned if page not in missing]
        for problem in [*(f"there is no {page}" for page in missing), *problems_of(block, known)]:
            yield f"{path.relative_to(ROOT)}:{line}: {problem}"


def code_under(*roots: str) -> list[Path]:
    files = [path for root in roots for path in (ROOT / root).rglob("*")]
    return [
        path
        for path in sorted(files)
        if path.suffix in {".py", ".sql"} and not {"node_modules", "upstream"} & set(path.parts)
    ]


@pytest.mark.parametrize("root", ["pgflowd", "sql", "bench", "tests"])
def test_code_cites_pages_and_numbers_that_exist(root: str) -> None:
    paths = [path for path in code_under(root) if path != Path(__file__)]

    assert [problem for path in paths for problem in problems_in_code(path)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    """A page of docs/ links to others of docs/ only, since the site and the wheel have no more."""
    broken = []
    for target in (match["target"] for match in LINK.finditer(page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        is_known = not anchor or anchor in anchors_of(str(file.relative_to(ROOT)))
        leaves = page.is_relative_to(ROOT / "docs") and not file.is_relative_to(ROOT / "docs")
        if not file.exists() or not is_known or leaves:
            broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_cites_pages_and_numbers_that_exist(page: Path) -> None:
    text = " ".join(page.read_text("utf-8").split())
    plain = LINK.sub(lambda match: match["text"], text)
    linked = [match["target"].partition("#")[0] for match in LINK.finditer(text)]
    pages = {(page.parent / target).resolve() for target in linked if target.endswith(".md")}
    known = [str(each.relative_to(ROOT)) for each in [page, *pages] if each.exists()]
    cited = [(path, [ROOT / path, page.parent / path]) for path in PATH.findall(LINK.sub("", text))]

    assert [path for path, files in cited if not any(file.exists() for file in files)] == []
    assert list(problems_of(plain, known)) == []


@pytest.mark.parametrize(
    ("block", "problems"),
    [
        ("docs/background/supervision.md, rules 3 and 5 to 7; rule 9", 0),
        ("rule 12", 1),
        ("docs/background/supervision.md, rule 99", 1),
        ("docs/background/failures.md, row 12 and P5, D3", 0),
        ("docs/background/runners.md, sections 5 and 6", 0),
        ("docs/background/runners.md, section 99", 1),
        ("section 1", 1),
        ("the 3 rows of a table; P95", 1),
    ],
)
def test_a_number_needs_its_page(block: str, problems: int) -> None:
    assert len(list(problems_of(block, PATH.findall(block)))) == problems


CODE = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|sql|toml))(?::([\w.]+))?`")
ROOMS = ("", "pgflowd", "tests", "bench")
SQL_FUNCTION = re.compile(r"`(pgflow|pgflowd)\.([a-z_]+)`")
LIFE = (ROOT / "docs/background/life-of-a-task.md").read_text("utf-8")


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/background").glob("*.md")), ids=lambda p: p.stem
)
def test_the_files_and_functions_that_a_page_of_the_background_names_exist(page: Path) -> None:
    missing = []
    for path, name in CODE.findall(page.read_text("utf-8")):
        files = [file for room in ROOMS if (file := ROOT / room / path).exists()]
        defined = rf"^\s*(?:async )?(?:def|class) {name.rpartition('.')[2]}\b"
        if not files or (
            name and not re.search(defined, files[0].read_text("utf-8"), re.MULTILINE)
        ):
            missing.append(f"{path}:{name}")

    assert missing == []


@pytest.mark.parametrize(("schema", "name"), sorted(set(SQL_FUNCTION.findall(LIFE))))
def test_the_life_of_a_task_names_sql_functions_that_exist(schema: str, name: str) -> None:
    places = (ROOT / "sql/schema" / schema).rglob(f"{name}.sql")

    assert list(places), f"{schema}.{name}"
