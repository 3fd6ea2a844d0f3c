"""The page of the Python API, from signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, get_args

import pgflowd
import pgflowd.testing
from pgflowd.core import documents
from pgflowd.core.definition import options
from pgflowd.core.definition.schedule import Overlap
from pgflowd.core.run_filter import RunsWanted
from pgflowd.core.wishes import By, Wishes
from pgflowd.errors import PgflowdError
from pgflowd.testing import plugin
from pgflowd.testing.scratch import ScratchDatabase
from support.references.markdown import MADE, block, code, item, page, paragraph, prose, table

_ABOUT = f"""\
All names are imported from `pgflowd`; those for tests from `pgflowd.testing`. They are typed.
What is not listed may change in any release. {MADE}"""
_PARTS: dict[str, tuple[str, list[str], str]] = {  # first, the names, heading of the small ones
    "Define flows": (
        "[Flows](../guides/flows.md) shows how.",
        ["Flow", "job", "Schedule", "Limit"],
        "Jobs, schedules, limits",
    ),
    "In handlers": (
        "[Handlers](../guides/handlers.md) says what they may do.",
        ["Context", "Fail", "RetryAfter", "Suspended", "ChildRun", "Undo"],
        "Exceptions and values",
    ),
    "Start and follow runs": (
        "[Start runs](../guides/start-runs.md) shows how.",
        [
            "Client",
            "AsyncClient",
            "Run",
            "RunEvent",
            "RunWithStates",
            "StepState",
            "RunPage",
            "ListedRun",
            "RunCount",
            "OpenTask",
            "StepTasksPage",
            "StepTask",
            "ListedFlow",
            "ListedDaemon",
        ],
        "What clients return",
    ),
}
_OPTIONS = [
    options.FlowOptions, options.StepOptions, options.MapOptions, options.WaitOptions,
    options.JobOptions, options.UndoOptions,
]  # fmt: skip
_OF_OPTIONS = """\
`StepOptions` are those of a step, and so on. What both a flow and its steps take is, in the flow,
the default of all its steps. The `timeout` of a step that waits is that of the wait."""
_TESTS = "[Tests](../guides/testing.md) shows how."
_FIXTURES = [plugin.pgflow_server, plugin.pgflow_db, plugin.pgflow_daemon]
_NOT_MADE = {"Context", "Suspended"}  # by users
Function = ast.FunctionDef | ast.AsyncFunctionDef
_NOTES = {"Annotated", "Hidden", "Inline"}
_ALIASES = {name: getattr(documents, name) for name in ("FlowSlug", "StepSlug", "TaskIndex")}
_ONLY_OURS = {"to_json", "spec", "shape", "written", "steps", "path", "picture", "took_s"}


def api_page() -> str:
    parts = [paragraph(_ABOUT)]
    for title, (first, names, others) in _PARTS.items():
        parts += [f"## {title}", paragraph(first)]
        parts += _entries({name: getattr(pgflowd, name) for name in names}, others)
        if title == "Define flows":
            parts += ["### Options", paragraph(_OF_OPTIONS), _options()]
        if title.startswith("Start"):
            parts += [_line("By", By), *_keywords(Wishes), *_keywords(RunsWanted)]
    parts += ["## Errors", paragraph(_doc(PgflowdError)), _errors()]
    parts += ["## Test flows", paragraph(_TESTS)]
    parts += _entries({name: getattr(pgflowd.testing, name) for name in pgflowd.testing.__all__})
    fixtures = [item(f"{code(each.__name__)}: {_doc(each)}") for each in _FIXTURES]
    parts += ["### Fixtures of pytest", "\n".join(fixtures)]
    parts += _entries({"ScratchDatabase": ScratchDatabase})
    return page("The Python API", *parts)


def _entries(named: dict[str, Any], others: str = "") -> Iterator[str]:
    """Each class that has methods; then a list of functions and of classes with fields alone."""
    small = [name for name, value in named.items() if not _methods(value)]
    for name, value in named.items():
        if name in small:
            continue
        called, fields = _called(name, value), [item(each) for each in _fields(value)]
        yield from (f"### {name}", block(called) if called != name else "", paragraph(_doc(value)))
        yield from ("\n".join(fields), "Methods:" if fields else "")
        yield "" if name == "AsyncClient" else "\n".join(_methods(value))
    yield f"### {others}" if others else ""
    yield "\n".join(_line(name, named[name]) for name in small)


def _line(name: str, value: Any) -> str:
    """A function; or a class, with its fields in one sentence."""
    if not inspect.isclass(value):
        return item(f"{code(_signature(name, [_parsed(value)]))}: {_doc(value)}")
    fields = ", ".join(_fields(value))
    has = f" It has {fields}." if fields else ""
    return item(f"{code(_called(name, value))}: {_doc(value)}{has}")


def _called(name: str, cls: type) -> str:
    """A class with what makes an object of it, if users do so."""
    functions = _functions(cls)
    is_made = "__init__" in functions and name not in _NOT_MADE
    return _signature(name, functions["__init__"]) if is_made else name


def _methods(value: Any) -> list[str]:
    functions = _functions(value) if inspect.isclass(value) else {}
    return [
        item(f"{code(_signature(name, written))}: {_doc_of(written)}")
        for name, written in functions.items()
        if not _is_property(written) and not name.startswith("_") and _doc_of(written)
    ]


def _functions(cls: type) -> dict[str, list[Function]]:
    """The functions of a class as they are written, overloads before what executes them."""
    found: dict[str, list[Function]] = {}
    for each in _written(cls).body:
        if isinstance(each, Function) and each.name not in _ONLY_OURS:
            found.setdefault(each.name, []).append(each)
    return found


def _is_property(written: list[Function]) -> bool:
    names = {ast.unparse(each) for each in written[0].decorator_list}
    return bool(names & {"property", "cached_property"})


def _fields(cls: type) -> Iterator[str]:
    """The fields and properties of a class, without those of a public class that it extends."""
    above = [each.__name__ for each in cls.__bases__ if each.__name__ in pgflowd.__all__]
    yield from (f"all of {code(each)}" for each in above)
    for name, (kind, comment) in (_own_comments(cls) if above else _comments(cls)).items():
        yield _field(f"{name}: {kind}", comment)
    for name, written in _functions(cls).items():
        returns = written[0].returns
        if _is_property(written) and returns is not None and not name.startswith("_"):
            yield _field(f"{name}: {ast.unparse(_bare(returns))}", _doc_of(written))


def _field(what: str, means: str) -> str:
    return f"{code(what)} ({means.removesuffix('.')})" if means else code(what)


def _keywords(cls: type) -> Iterator[str]:
    yield f"### {cls.__name__}"
    yield paragraph(_doc(cls))
    yield "\n".join(
        item(f"{code(f'{name}: {kind}')}: {means}")
        for name, (kind, means) in _comments(cls).items()
    )


def _options() -> str:
    """Each option, what takes it, and what it means there."""
    takers: dict[tuple[str, str], list[str]] = {}
    for cls in _OPTIONS:
        for name, (kind, means) in _comments(cls).items():
            option = f"{name}: {kind.removesuffix(' | None')}"
            taker = cls.__name__.removesuffix("Options").lower()
            takers.setdefault((option, means), []).append(taker)
    rows = [
        [code(option.replace("|", "or")), ", ".join(all_of), prose(means)]
        for (option, means), all_of in takers.items()
    ]
    return table(("option", "of a", "means"), rows)


def _comments(cls: type) -> dict[str, tuple[str, str]]:
    """The type and the comment of each annotated name; a comment also of a class before."""
    found: dict[str, tuple[str, str]] = {}
    known = {
        name: comment
        for each in reversed([cls, *_OPTIONS] if cls in _OPTIONS else [cls])
        for base in reversed(_bases(each))
        for name, (_, comment) in reversed(_own_comments(base).items())
        if comment
    }
    for base in _bases(cls):
        for name, (kind, comment) in _own_comments(base).items():
            found[name] = (kind, comment or known.get(name, ""))
    return found


def _bases(cls: type) -> list[type]:
    """The classes that it extends and itself; a TypedDict forgets them when it is made."""
    names = [ast.unparse(each) for each in _written(cls).bases]
    above = [getattr(sys.modules[cls.__module__], name, None) for name in names]
    ours = [each for each in above if inspect.isclass(each) and each.__module__[:7] == "pgflowd"]
    return [*(base for each in ours for base in _bases(each)), cls]


@cache
def _written(cls: type) -> ast.ClassDef:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    return tree


@cache
def _own_comments(cls: type) -> dict[str, tuple[str, str]]:
    """The type, with the default, and the comment of each name that a class annotates."""
    source = textwrap.dedent(inspect.getsource(cls))
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    return {
        each.target.id: (_kind(each), _meaning(each) or comments.get(each.end_lineno or 0, ""))
        for each in _written(cls).body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and not each.target.id.startswith("_")
        and "ClassVar" not in ast.unparse(each.annotation)
    }


def _kind(field: ast.AnnAssign) -> str:
    kind = ast.unparse(_bare(field.annotation))
    return f"{kind} = {ast.unparse(field.value)}" if isinstance(field.value, ast.Constant) else kind


def _bare(annotation: ast.expr) -> ast.expr:
    """A type without what documents say about it."""
    if isinstance(annotation, ast.Name) and annotation.id == "Overlap":
        return ast.parse(repr(Overlap).removeprefix("typing."), mode="eval").body
    if isinstance(annotation, ast.Name) and annotation.id in _ALIASES:
        return ast.Name(get_args(_ALIASES[annotation.id])[0].__name__)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in _NOTES:
        inner = annotation.slice
        return inner.elts[0] if isinstance(inner, ast.Tuple) else inner
    return annotation


def _meaning(field: ast.AnnAssign) -> str:
    """What a document says about a field."""
    if not isinstance(field.annotation, ast.Subscript):
        return ""
    notes = field.annotation.slice
    if ast.unparse(field.annotation.value) != "Annotated" or not isinstance(notes, ast.Tuple):
        return ""
    texts = [each.value for each in notes.elts if isinstance(each, ast.Constant)]
    return next((each for each in texts if isinstance(each, str)), "")


def _signature(name: str, written: list[Function]) -> str:
    """A function as it is called; of overloads the last one, which takes the most."""
    overloads = [each for each in written if "overload" in map(ast.unparse, each.decorator_list)]
    function = (overloads or written)[-1]
    given = function.args
    for arguments in (given.posonlyargs, given.args):
        if arguments and arguments[0].arg == "self":
            del arguments[0]
    shown = re.sub(r"Unpack\[(\w+)\]", r"\1", ast.unparse(given)).replace("=", " = ")
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{name}({shown.removeprefix('/, ')}){returns}".removesuffix(" -> None")


def _parsed(function: Callable[..., Any]) -> Function:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, Function)
    return tree


def _doc(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split())


def _doc_of(written: list[Function]) -> str:
    found = (ast.get_docstring(each) for each in written)
    return " ".join(next(filter(None, found), "").split())


def _error_names() -> list[str]:
    """The names of errors, each after the one that it extends."""

    def below(cls: type[PgflowdError]) -> Iterator[str]:
        yield cls.__name__
        for inner in cls.__subclasses__():
            yield from below(inner)

    named = dict.fromkeys(below(PgflowdError))
    return [name for name in named if name in pgflowd.__all__]


def _errors() -> str:
    rows = []
    for name in _error_names():
        cls = getattr(pgflowd, name)
        says = "the base of all" if cls is PgflowdError else _doc(cls)
        codes = re.findall(r"E\d(?:\d\d|xx)", says) or [cls.default_code]
        named = [each.__name__ for each in cls.__mro__[1:]]
        above = [each for each in named if each in pgflowd.__all__][:1]
        above += ["TimeoutError"] if "TimeoutError" in named else []
        shown = "" if cls is PgflowdError else ", ".join(codes)
        rows.append([code(name), shown, ", ".join(map(code, above)), prose(says)])
    return table(("error", "code", "is a", "means"), rows)
