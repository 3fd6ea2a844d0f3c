"""The documents that commands print with `--json`, and that the API of the dashboard answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import click

from pgflowd.cli.problems import ShownProblem


def documents() -> dict[str, Any]:
    """Their types by their names: `runs-list`, `runs-log-follow`, `api-flows`."""
    from pgflowd.cli.main import cli

    return {"errors": list[ShownProblem], **dict(_of_commands(cli, [])), **dict(_of_api())}


def _of_commands(command: click.Command, words: list[str]) -> Iterator[tuple[str, Any]]:
    for option, kind in getattr(command, "prints", {}).items():
        if kind is not None:
            yield "-".join([*words, *([option.lstrip("-")] if option else [])]), kind
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from _of_commands(inner, [*words, name])


def _of_api() -> Iterator[tuple[str, Any]]:
    """Of its pages, and of changes of many runs."""
    from pgflowd.web.actions import ChangedRuns
    from pgflowd.web.pages import PAGES

    for page in PAGES:
        name = "-".join(["api", *re.findall(r"\w+", page.path)]) if page.path != "/" else "api"
        yield name, get_type_hints(page.read)["return"]
        for view, shown in page.views.items():
            yield f"{name}-{view}", get_type_hints(shown.read)["return"]
    yield "api-runs-changed", ChangedRuns
