"""The page of verbs, from the rows of `core.verbs`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pgflowd.core.verbs import RUN_VERBS, VERBS
from pgflowd.web.actions import ACTIONS
from support.references.markdown import MADE, code, page, paragraph, table

_ABOUT = f"""\
What people and programs do to runs, tasks, flows, schedules and workers. Each verb is a command, a
function of schema `pgflowd` and, where the dashboard offers it, an action with its own address;
applications have the most usual ones as [methods of the client](python-api.md). However it is
called, it refuses the same, and leaves the same [action](../operate/history.md): that has the name
of the function, for `answer` `approve` or `reject`. {MADE}"""
_ROLES = """\
The role is the least of [roles](../operate/security.md#roles) that may call the function."""
_DASHBOARD = """\
These are POSTs, of a form from a page, or of a JSON object from a program, then below `/api/1`;
[the dashboard](../operate/dashboard.md#what-programs-and-people-may-do) has what they answer."""


def verbs_page() -> str:
    functions = [[code(verb.command), code(verb.function), code(verb.role)] for verb in VERBS]
    statuses = [
        [code(verb.command), _words(verb.allowed), _words(verb.already)]
        for verb in RUN_VERBS
        if verb.allowed
    ]
    actions = [[code(action.path), _words(sorted(action.fields))] for action in ACTIONS]
    return page(
        "Verbs",
        paragraph(_ABOUT),
        paragraph(_ROLES),
        table(("command", "function", "role"), functions),
        "## Which runs allow it",
        table(("command", "runs that are", "those to which it has been done"), statuses),
        "## Actions of the dashboard",
        paragraph(_DASHBOARD),
        table(("path", "fields"), actions),
    )


def _words(words: Iterable[Any]) -> str:
    return ", ".join(map(code, words)) or "none"
