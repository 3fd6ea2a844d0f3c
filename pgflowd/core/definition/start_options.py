"""
What a flow says about its starts: title, labels, expiry and singleton key, from the input.

A template is a text with placeholders such as `{run.customer}` or `{run.items[0].name}`; a label is
such a path without braces. The database fills them when a run is started, in whichever way
(`pgflowd.start`), and `filled` is the same for tests. A part that the input does not have, or that
is no text, number, true or false, is missing. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from pgflowd.core.json import SqlNull, dumps
from pgflowd.core.text import is_storable
from pgflowd.core.waiting import seconds_of
from pgflowd.errors import Problem, RunError

MAX_TITLE_CHARS = 120
MAX_TEMPLATE_CHARS = 500
NAMES = ("title", "labels", "expires", "singleton")
_PATH = r"run(?:\.[^\s.\[\]{}!:]+|\[[0-9]{1,9}\])*"
_IS_PATH = re.compile(_PATH)
_PART = re.compile(rf"([^{{}}]+)|\{{({_PATH})\}}")
_STEP = re.compile(r"[^.\[\]]+")
_NUMBER = re.compile("[0-9]{1,9}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def start_problem(name: str, value: Any) -> str | None:
    """What is wrong with one of these options."""
    if name == "expires":
        try:
            return None if seconds_of(value, "it") >= 1 else "it must be a second or more"
        except RunError as error:
            return error.text
    if name == "labels":
        return _labels_problem(value)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEMPLATE_CHARS:
        return f"it must be a text of 1 to {MAX_TEMPLATE_CHARS} characters"
    if not is_storable(value):
        return "it has a character that PostgreSQL cannot store"
    at = 0
    while at < len(value):
        part = _PART.match(value, at)
        if part is None:
            found = re.match(r"\{[^}]*\}?|\}", value[at:])
            return f"{found[0] if found else value[at:]} is no placeholder such as {{run.customer}}"
        at = part.end()
    return None


def start_problems(options: Mapping[str, Any], name: str, place: str) -> Iterator[Problem]:
    for option in NAMES:
        if option in options and (fault := start_problem(option, options[option])):
            text = f"{name}: {option} is {repr(options[option])[:80]}; {fault}"
            yield Problem("E209", text, place, "see docs/guides/planned-runs.md")


def _labels_problem(value: Any) -> str | None:
    if not isinstance(value, Mapping) or not value:
        return 'it must be a dict, such as {"customer": "run.customer"}'
    for label, path in value.items():
        if not isinstance(label, str) or not label or not is_storable(label):
            return f"the label {label!r} must be a text"
        if not isinstance(path, str) or not _IS_PATH.fullmatch(path):
            return f"{path!r} of label {label} is no path into the input, such as run.customer"
    return None


def start_options_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """These options as a shape has them."""
    found = {name: options[name] for name in NAMES if name in options}
    if "expires" in found:
        seconds = round(seconds_of(found["expires"], "expires"), 3)
        found["expires"] = int(seconds) if seconds.is_integer() else seconds
    if "labels" in found:
        found["labels"] = dict(found["labels"])
    return found


def labels_of(options: Mapping[str, Any], input: Any) -> dict[str, str]:
    """The labels that the input gives a run."""
    paths = options.get("labels") or {}
    found = {label: _value(path, input) for label, path in paths.items()}
    return {label: value for label, value in found.items() if value is not None}


def title_of(options: Mapping[str, Any], input: Any) -> str | None:
    """The title that the input gives a run; missing parts are left out."""
    if "title" not in options:
        return None
    text = "".join(part or "" for _, part in _filled(options["title"], input))
    return _CONTROL.sub(" ", text).strip(" ")[:MAX_TITLE_CHARS] or None


def singleton_of(flow: str, options: Mapping[str, Any], input: Any) -> str | None:
    """The singleton key of a run. E432 if a part is missing: strangers would share a line."""
    if "singleton" not in options:
        return None
    parts = list(_filled(options["singleton"], input))
    for path, part in parts:
        if part is None:
            text = f"the singleton key of flow {flow} is made of {path}, which the input lacks"
            raise RunError(text, code="E432", next="give it, or start with a singleton key")
    return "".join(part for _, part in parts if part)


def _filled(template: str, input: Any) -> Iterator[tuple[str, str | None]]:
    for part in _PART.finditer(template):
        yield (part[2], _value(part[2], input)) if part[2] else ("", part[1])


def _value(path: str, input: Any) -> str | None:
    """The text of a scalar of the input; None for anything else."""
    found = input
    for step in _STEP.findall(path)[1:]:
        if isinstance(found, Mapping) and step in found:
            found = found[step]
        elif isinstance(found, list) and _NUMBER.fullmatch(step) and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    if found is None or isinstance(found, Mapping | list | SqlNull):
        return None
    if isinstance(found, float):
        return format(Decimal(repr(found)), "f")  # as PostgreSQL writes it
    return found if isinstance(found, str) else dumps(found)
