"""
Checks the slugs of flows and steps.

The SQL allows at most 128 letters, digits and `_`, without a digit at the beginning, and not `run`.
The names of queues allow flows only 47. Newer pgflow releases refuse more, which is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pgflowd.core.definition.spec import RESERVED
from pgflowd.errors import Problem

LONGEST_FLOW = 47
LONGEST_STEP = 128

_LEGAL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NOT_LEGAL = re.compile(r"[^a-zA-Z0-9]+")
_LEGAL_FROM_0_17 = re.compile(r"[a-zA-Z]([a-zA-Z0-9]|_(?=[a-zA-Z0-9]))*")


def slug_problems(slug: object, place: str, *, of_flow: bool) -> Iterator[Problem]:
    """Everything that is wrong with the slug of a flow or a step."""
    kind = "flow" if of_flow else "step"
    longest = LONGEST_FLOW if of_flow else LONGEST_STEP
    if not isinstance(slug, str) or not _LEGAL.fullmatch(slug):
        rule = "a slug has letters, digits and '_' only, and does not begin with a digit"
        yield Problem(
            "E203", f"{kind} slug {slug!r} is illegal: {rule}", place, _remedy(slug, kind)
        )
        return
    if slug == "run" or (not of_flow and slug in RESERVED):
        yield Problem("E203", f"{kind} slug '{slug}' is reserved", place, "choose another")
    if len(slug) > longest:
        text = f"{kind} slug {slug} has {len(slug)} characters; at most {longest} are allowed"
        yield Problem("E208", text, place)
    if not _LEGAL_FROM_0_17.fullmatch(slug):
        rule = "it should begin with a letter, not end with '_', and have no '__'"
        yield Problem("W221", f"pgflow 0.17 and later refuse {kind} slug {slug}", place, rule)


def _remedy(slug: object, kind: str) -> str:
    """Suggest a legal slug like this one, if there is one."""
    legal = _NOT_LEGAL.sub("_", str(slug)).strip("_")
    if not _LEGAL.fullmatch(legal) or not str(slug).isascii() or "<" in str(slug):
        legal = f"my_{kind}"
    return f"give it one, such as '{legal}'" if kind == "flow" else f"write slug='{legal}'"
