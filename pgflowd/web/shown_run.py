"""
What a form tells of the run that it was made for, so that nobody acts on what is no longer so.

It is the status of the run, and once that has ended, where the page shows them, the attempt that
failed last. While a run goes on attempts fail and are retried, which makes no form old.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgflowd.core.documents.runs import FailedAttempt, Run

_AND = "."


def shown_of(run: Run, failures: Iterable[FailedAttempt] = ()) -> str:
    """The run as a form tells it."""
    newest = max((attempt.token for attempt in failures), default=None)
    return f"{run.status}{_AND}{newest}" if run.has_ended and newest else str(run.status)


def has_attempt(shown: str) -> bool:
    """Whether the page has shown which attempt failed last."""
    return _AND in shown


def in_words(shown: str) -> str:
    status, _, token = shown.partition(_AND)
    word = status.replace("_", " ")
    return f"{word}, with attempt {token} as the last that failed" if token else word
