"""
Which part of the package may import which, read from the imports themselves.

    cli  →  web, client, testing  →  processes, embedded  →  db, host  →  core  →  errors, resources

`db` and `host` do not know each other. `embedded` is the embedded PostgreSQL. `flow`, which users
import, imports only `core`.
`core` decides and touches nothing: no clock, no random numbers, no sockets, no files.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import pgflowd

PACKAGE = Path(pgflowd.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

BELOW: dict[str, set[str]] = {
    "errors": set(),
    "resources": set(),
    "core": {"errors"},
    "flow": {"core", "errors"},
    "db": {"core", "errors", "resources"},
    "host": {"core", "errors", "resources"},
    "embedded": {"host", "core", "errors", "resources"},
    "processes": {"flow", "db", "host", "core", "errors", "resources"},
    "client": {"db", "host", "core", "errors"},
    "async_client": {"db", "host", "core", "errors"},
    "testing": {
        "client",
        "flow",
        "processes",
        "embedded",
        "db",
        "host",
        "core",
        "errors",
        "resources",
    },
    "web": {"client", "db", "host", "core", "errors"},
    "cli": {
        "client",
        "web",
        "testing",
        "flow",
        "processes",
        "embedded",
        "db",
        "host",
        "core",
        "errors",
        "resources",
    },
    "django": {"client", "flow", "db", "core", "errors"},
    "migrate": set(),
    # the package itself, which applications import from
    "": {"async_client", "client", "errors", "flow"},
    "examples": {""},  # applications
    "__main__": {"cli"},
}

IMPURE_MODULES = {
    *("asyncio", "io", "multiprocess", "multiprocessing", "os", "random", "secrets", "select"),
    *("selectors", "shutil", "socket", "ssl", "subprocess", "tempfile", "threading", "time"),
}
PURE_PACKAGES = {"pgflowd", "cronsim", "msgspec", "pydantic", "pydantic_core"}
IMPURE_NAMES = {"open", "print", "input", "now", "utcnow", "today", "uuid1", "uuid4", "Path"}

# twice the usual length
MODULE_LINES = 600
FUNCTION_LINES = 60


class Import(NamedTuple):
    """An import of `module` at `line`, and whether it happens when the importer loads."""

    module: str
    line: int
    at_load: bool


@pytest.mark.parametrize("module", MODULES)
def test_a_part_imports_only_parts_below_it(module: str):
    room = room_of(module)
    assert room in BELOW, f"{module} is in no part of the package; see this test's table"

    for found in imports_of(module):
        target = room_of(found.module)
        if target == "" and target not in BELOW[room]:
            assert version_only(module, found), (
                f"{MODULES[module]}:{found.line} imports from the package, which is for users"
            )
        elif target != room:
            assert target in BELOW[room], f"{MODULES[module]}:{found.line} imports {found.module}"


def test_no_modules_import_each_other_in_a_circle():
    graph = {
        module: {found.module for found in imports_of(module) if found.at_load and found.module}
        for module in MODULES
        if module != "pgflowd"
    }
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " → ".join([*way[way.index(module) :], module])
        if module in done:
            return
        for target in graph.get(module, set()) - {module}:
            visit(target, (*way, module))
        done.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.parametrize("module", [name for name in MODULES if ".core" in name])
def test_core_imports_nothing_with_effects(module: str):
    tree = tree_of(module)
    for_type_checkers = set(type_checking_only(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in for_type_checkers:
            for name in roots_of(node):
                assert name in sys.stdlib_module_names | PURE_PACKAGES, f"{module} imports {name}"
                assert name not in IMPURE_MODULES, f"{module}:{node.lineno} imports {name}"
        elif isinstance(node, ast.Call):
            called = node.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            assert name not in IMPURE_NAMES, f"{module}:{node.lineno} calls {name}"


def test_only_markdown_makes_html_without_jinja():
    """Everything else is escaped by templates, which have no way around that."""
    for module, path in MODULES.items():
        if "Markup" in path.read_text():
            assert module == "pgflowd.web.text", module
    for path in (PACKAGE / "web" / "templates").glob("*.html"):
        text = path.read_text()
        assert not re.search(r"\|\s*safe\b|autoescape|\sstyle=", text), f"{path} goes around it"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_a_docstring_and_is_not_too_long(module: str):
    tree = tree_of(module)
    lines = MODULES[module].read_text().count("\n")

    assert lines == 0 or ast.get_docstring(tree), f"{module} has no docstring"
    assert lines <= MODULE_LINES, f"{module} has {lines} lines"


@pytest.mark.parametrize("module", MODULES)
def test_a_function_is_not_too_long(module: str):
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= FUNCTION_LINES, f"{module}.{node.name} has {lines} lines"


def room_of(module: str) -> str:
    """Return the first name below the package: "db" for `pgflowd.db.tasks`."""
    return f"{module}.".split(".")[1]


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def roots_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    return [(node.module or "pgflowd").split(".")[0]]


def imports_of(module: str) -> Iterator[Import]:
    """Yield what the module imports of the package, be it at the top or inside a function."""
    tree = tree_of(module)
    at_load = set(loaded_with(tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno} has a relative import"
            names = [imported_from(node, alias.name) for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "pgflowd":
                yield Import(name, node.lineno, node in at_load)


def imported_from(node: ast.ImportFrom, name: str) -> str:
    """Return the module that `from … import name` reads: a module itself, or what holds it."""
    whole = f"{node.module}.{name}"
    return whole if whole in MODULES else str(node.module)


def loaded_with(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is loaded; not those for type checkers."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from loaded_with(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for inner in ("body", "orelse", "finalbody"):
                yield from loaded_with(getattr(node, inner, []))


def type_checking_only(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for statement in node.body:
                yield from ast.walk(statement)


def version_only(module: str, found: Import) -> bool:
    """Whether an import from the package itself takes the version and nothing else."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.lineno == found.line:
            names = {alias.name for alias in node.names}
            return {name for name in names if f"pgflowd.{name}" not in MODULES} <= {"__version__"}
    return False
