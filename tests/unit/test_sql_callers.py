"""
The header of each SQL function names its callers, by the rule of `sql/README.md`.

SQL callers are read from the bodies of functions and views, callers in Python and in the installer
from their texts. No database is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from support.covers import covers
from support.definers import DEFINERS

import pgflowd
from pgflowd.core.verbs import VERBS

PACKAGE = Path(pgflowd.__file__).parent
SQL = PACKAGE.parent / "sql"
OURS = {"workers", "the sweeper", "the exporter", "clients", "commands"}  # parts of this package
INSTALLER = "db migrate"
OTHERS = {
    "workers of other runtimes",
    "applications",
    "operators",
    "cron",
    "check constraints",
    "queue triggers",
    "no current release",
}

COMMAND = re.compile(r"`pgflowd [a-z -]+`")
COMMENT = re.compile(r"--[^\n]*")
SIGNATURE = re.compile(r"'pgflowd?\.\w+\([\w ,\[\]]*\)'")  # names a function and does not call it
CALL = re.compile(r"\b(pgflowd?\.\w+)\s*\(")
PGMQ_CALL = re.compile(r"\bpgmq\.(?!%)\w+\s*\(")
HEADER = re.compile(r"Called by: (.+?)\. +Locks: .+\.$")


def calls(texts: Iterable[str]) -> set[str]:
    """The functions that these texts call."""
    codes = (SIGNATURE.sub("", COMMENT.sub("", text)) for text in texts)
    return {name for code in codes for name in CALL.findall(code)}


class SqlFile(NamedTuple):
    """A file of a function or a view: its names, and what it calls."""

    path: str
    schema: str
    name: str
    is_function: bool
    calls: set[str]
    header: str

    def called_by(self, caller: SqlFile) -> bool:
        is_other = (caller.schema, caller.name) != (self.schema, self.name)
        return is_other and self.full_name in caller.calls

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    def named_in(self, header_of: SqlFile) -> str:
        if not self.is_function:
            return f"view {self.name}"
        return self.name if self.schema == header_of.schema else self.full_name

    @property
    def named_callers(self) -> set[str]:
        match = HEADER.search(self.header)
        return set(re.split("[,;] ", match[1])) if match else set()


def read(path: Path) -> SqlFile:
    schema, *_ = path.relative_to(SQL / "schema").parts
    text = path.read_text()
    comments = (line.removeprefix("-- ") for line in text.splitlines() if line.startswith("--"))
    return SqlFile(
        path=path.relative_to(SQL).as_posix(),
        schema=schema,
        name=path.stem,
        is_function=path.parent.name == "functions",
        calls=calls([text]),
        header=" ".join(comments),
    )


FILES = [
    read(path)
    for path in sorted(SQL.glob("schema/**/*.sql"))
    if path.parent.name in ("functions", "views")
]
FUNCTIONS = [file for file in FILES if file.is_function]


def is_outside(caller: str) -> bool:
    return is_ours(caller) or caller in OTHERS or caller == INSTALLER


def is_ours(caller: str) -> bool:
    return caller in OURS or bool(COMMAND.fullmatch(caller))


def test_each_function_has_a_caller_and_its_header_names_it() -> None:
    assert [file.path for file in FUNCTIONS if not file.named_callers] == []


def test_headers_name_exactly_the_sql_functions_and_views_that_call() -> None:
    named = {
        file.path: {caller for caller in file.named_callers if not is_outside(caller)}
        for file in FUNCTIONS
    }

    assert named == {
        file.path: {
            "verbs" if "verbs" in named[file.path] and is_verb(other) else other.named_in(file)
            for other in FILES
            if file.called_by(other)
        }
        for file in FUNCTIONS
    }


def is_verb(file: SqlFile) -> bool:
    return file.full_name in {f"pgflowd.{verb.function}" for verb in VERBS}


def test_headers_name_callers_in_python_and_in_the_installer() -> None:
    in_python = calls(path.read_text() for path in PACKAGE.rglob("*.py"))
    in_python |= {f"pgflowd.{verb.function}" for verb in VERBS}
    in_installer = calls(path.read_text() for path in SQL.glob("install/*.sql"))

    assert {file.path for file in FUNCTIONS if any(map(is_ours, file.named_callers))} == {
        file.path for file in FUNCTIONS if file.full_name in in_python
    }
    assert {file.path for file in FUNCTIONS if INSTALLER in file.named_callers} == {
        file.path for file in FUNCTIONS if file.full_name in in_installer
    }


def test_what_a_file_calls_exists() -> None:
    known = {file.full_name for file in FUNCTIONS}
    for file in FILES:
        ours = {name for name in file.calls if name.startswith("pgflowd._")}
        assert ours <= known, file.path


def test_a_text_that_only_names_a_signature_calls_nothing() -> None:
    text = "if to_regprocedure('pgflow.a(uuid, text[])') is not null then -- pgflow.b(1)\n"

    found = calls([text + "perform pgflow.c(1); execute 'select pgflowd.d()'"])

    assert found == {"pgflow.c", "pgflowd.d"}


def reached_by_definers() -> dict[str, set[str]]:
    """Each function with its owner's rights, and all that it calls, directly or not."""
    by_name: dict[str, list[SqlFile]] = {}
    for file in FILES:
        by_name.setdefault(file.full_name, []).append(file)
    reached = {}
    for definer in (file for file in FUNCTIONS if is_definer(file)):
        found, open_ = {definer.full_name}, [definer]
        while open_:
            for name in open_.pop().calls - found:
                found.add(name)
                open_ += by_name.get(name, [])
        reached[definer.full_name] = found
    return reached


def is_definer(file: SqlFile) -> bool:
    return "security definer" in COMMENT.sub("", (SQL / file.path).read_text())


@covers("attack 1")
def test_no_function_with_its_owner_s_rights_reaches_one_of_pgmq() -> None:
    callers = {
        file.full_name
        for file in FILES
        if PGMQ_CALL.search(COMMENT.sub("", (SQL / file.path).read_text()))
    }

    assert callers == {"pgflow._create_queue", "pgflow.delete_flow_and_data"}
    for definer, reached in reached_by_definers().items():
        assert callers & reached == set(), definer


def test_the_functions_with_their_owner_s_rights_are_the_listed_ones() -> None:
    listed = {file.full_name for file in FUNCTIONS if is_definer(file)}

    assert listed == set(DEFINERS)
