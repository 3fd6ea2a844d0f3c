"""
Prints how large the house is: of each row what it is now, what was committed, and the goal.

`make figures` fails if a row is worse than its committed number in `tools/figures.toml`, and writes
a lower one there, so nothing grows back. What a row counts is said by its function.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMITTED = ROOT / "tools/figures.toml"
ENGINE_ROOM = (  # what can lose or double a task
    "pgflowd/core/worker/",
    "pgflowd/core/supervision/",
    "pgflowd/core/messages",
    "pgflowd/processes/supervisor/",
    "pgflowd/processes/worker/",
    "pgflowd/processes/zygote/",
    "pgflowd/processes/runner/",
    "pgflowd/processes/sweeper/",
    "pgflowd/processes/listener",
    "pgflowd/db/connection",
    "pgflowd/db/query",
    "pgflowd/db/tasks",
    "pgflowd/db/workers",
    "pgflowd/host/fork",
    "pgflowd/host/process_tree",
    "pgflowd/host/channel",
)
ENGINE_SQL = ["claim", "report", "heartbeat", "sweep", "_free"]
GENERATED_PAGES = ["commands", "config", "log-fields", "metrics", "python-api", "sql", "verbs"]

Import = (ast.Import, ast.ImportFrom)
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def files(pattern: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return [path for path in listed.stdout.splitlines() if (ROOT / path).is_file()]


@cache
def text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def modules() -> list[str]:
    """Those that are written: none that `make clients` has made."""
    return [path for path in files("pgflowd/*.py") if "`make clients`" not in head(path)]


def head(path: str) -> str:
    return text(path).partition("\n")[0]


@cache
def tree(path: str) -> ast.Module:
    return ast.parse(text(path))


def lines_of(paths: list[str]) -> int:
    return sum(len(text(path).splitlines()) for path in paths)


def engine_room_lines() -> int:
    """Python of the engine room, and the SQL that claims, reports, renews, sweeps and frees."""
    functions = set.union(*(reachable(f"pgflowd.{name}") for name in ENGINE_SQL))
    return lines_of([path for path in modules() if path.startswith(ENGINE_ROOM)]) + lines_of(
        [path for path in sql_files() if sql_name(path) in functions]
    )


def import_lines() -> int:
    nodes = (node for path in modules() for node in ast.walk(tree(path)))
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in nodes
        if isinstance(node, Import)
    )


def imports_inside_functions() -> int:
    functions = (
        node for path in modules() for node in ast.walk(tree(path)) if isinstance(node, Function)
    )
    return sum(isinstance(node, Import) for one in functions for node in ast.walk(one))


def helpers_called_once() -> int:
    """Private functions of modules that are named once besides their definition, in a call."""
    return sum(len(_called_once(tree(path))) for path in modules())


def _called_once(module: ast.Module) -> list[str]:
    named = Counter(name for node in ast.walk(module) for name in _names(node))
    called = Counter(
        name
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        for name in _names(node.func)
    )
    return [
        node.name
        for node in module.body
        if isinstance(node, Function)
        and node.name.startswith("_")
        and named[node.name] == called[node.name] == 1
    ]


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr


def generated_lines() -> int:
    pages = [f"docs/reference/{name}.md" for name in GENERATED_PAGES]
    return lines_of(
        files("tests/unit/document_keys.txt") + [page for page in pages if (ROOT / page).exists()]
    )


@cache
def sql_calls() -> dict[str, set[str]]:
    """Of each SQL function the functions that it names in a call."""
    called: dict[str, set[str]] = {}
    for path in sql_files():
        code = re.sub(r"--[^\n]*", "", text(path))
        called[sql_name(path)] = set(re.findall(r"\b(pgflowd?\.\w+)\s*\(", code))
    return called


def sql_files() -> list[str]:
    return [path for path in files("sql/schema/*.sql") if "/functions/" in path]


def sql_name(path: str) -> str:
    return f"{path.split('/')[2]}.{Path(path).stem}"


def reachable(name: str) -> set[str]:
    """The SQL functions that a call may reach besides itself, whatever it is called with."""
    seen: set[str] = set()
    ahead = {name}
    while ahead:
        seen |= ahead
        ahead = {other for one in ahead for other in sql_calls()[one]} & sql_calls().keys() - seen
    return seen - {name}


def modules_of_a_plain_task() -> int:
    page = text("docs/background/life-of-a-task.md")
    return len(set(re.findall(r"`([\w/]+\.py):", page)))


def glossary_rows() -> int:
    after = text("CONTRIBUTING.md").partition("| word | means |")[2]
    return sum(line.startswith("|") for line in after.partition("\n\n")[0].splitlines()) - 1


def words_of_pages() -> int:
    return sum(len(text(path).split()) for path in files("docs/*.md"))


def files_of_a_config_key() -> int:
    """The median, over all keys whose name has a "_", of the modules and templates that define the
    key or read it (`.poll_max_s`). Not the most: several processes read a key such as
    `max_connections`, since it is of use to each, and screens show it."""
    sections = tree("pgflowd/core/settings/sections.py").body
    fields = {
        part.target.id
        for section in sections
        if isinstance(section, ast.ClassDef) and section.name.endswith("Settings")
        for part in section.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    keys = [each for each in fields if "_" in re.sub("(_s|_bytes)$", "", each)]
    readers = [*modules(), *files("pgflowd/*.html")]
    counts = [
        1 + sum(bool(re.search(rf"\.{key}\b", text(path))) for path in readers) for key in keys
    ]
    return round(statistics.median(counts))


def files_of_a_run_verb() -> int:
    """The most product files that spell out a verb on runs."""
    product = [*modules(), *files("pgflowd/*.html"), *files("sql/schema/*.sql")]
    places = (
        r"def {0}\(",  # the client's method
        r"\b(runs|operations)\.{0}\(",
        r"\bpgflowd\.{0}\b",  # in SQL: the function and its callers
        r"\bruns {0}\b",  # the row, and messages that name the command
        r"\b{0}\b.* runs\b",  # a help text
    )

    def naming(verb: str) -> int:
        named = re.compile("|".join(places).format(verb))
        return sum(bool(named.search(text(path))) for path in product)

    return max(map(naming, ("cancel", "pause", "retry", "reschedule")))


def files_of_a_listed_column() -> int:
    """The files of the product that name a column of `runs list`, one that is like any other."""
    product = [*modules(), *files("pgflowd/*.html"), *files("pgflowd/*.js"), *files("sql/schema/*")]
    return sum("steps_done" in text(path) for path in product)


def files_of_a_step_option() -> int:
    """Of three options of steps the most modules and SQL files that name one (`start_delay`,
    `startDelay` or `opt_start_delay`), comments of SQL left out, settings of that name included."""
    readers = [path for path in modules() if not path.startswith("pgflowd/examples/")]
    code = [text(path) for path in readers]
    code += [re.sub(r"--[^\n]*", "", text(path)) for path in files("sql/schema/*.sql")]
    names = (
        "crash_limit|crashLimit",
        "(opt_)?start_delay|startDelay",
        "when_exhausted|whenExhausted",
    )
    return max(sum(bool(re.search(rf"\b({name})\b", each)) for each in code) for name in names)


ROWS: dict[str, Callable[[], int]] = {
    "lines of Python in pgflowd": lambda: lines_of(modules()),
    "modules in pgflowd": lambda: len(modules()),
    "lines of Python in the engine room": engine_room_lines,
    "import lines": import_lines,
    "imports inside functions": imports_inside_functions,
    "private helpers that are called once": helpers_called_once,
    "generated lines that are committed": generated_lines,
    "SQL functions": lambda: len(sql_files()),
    "SQL functions reachable from a claim": lambda: len(reachable("pgflowd.claim")),
    "SQL functions reachable from a report": lambda: len(reachable("pgflowd.report")),
    "modules on the way of a plain task": modules_of_a_plain_task,
    "product files for a verb on runs": files_of_a_run_verb,
    "glossary rows": glossary_rows,
    "words in docs": words_of_pages,
    "product files for a config key": files_of_a_config_key,
    "product files for a column of runs list": files_of_a_listed_column,
    "product files for a step option": files_of_a_step_option,
    "lines of tests/support": lambda: lines_of(files("tests/support/*.py")),
}


def main() -> int:
    committed = tomllib.loads(COMMITTED.read_text("utf-8"))
    now = {name: count() for name, count in ROWS.items()}
    print(f"{'':40}{'now':>8}{'committed':>11}{'goal':>8}")
    for name, number in now.items():
        row = committed[name]
        mark = "  worse" if number > row["now"] else ""
        print(f"{name:40}{number:8,}{row['now']:11,}{row['goal']:8,}{mark}")
    worse = [name for name in now if now[name] > committed[name]["now"]]
    lower = {name: min(now[name], committed[name]["now"]) for name in now}
    COMMITTED.write_text(
        "# What `make figures` compares with. It lowers the numbers by itself; nobody raises one.\n"
        + "".join(
            f'"{name}" = {{ now = {lower[name]}, goal = {committed[name]["goal"]} }}\n'
            for name in now
        ),
        "utf-8",
    )
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
