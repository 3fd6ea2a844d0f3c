"""
What an action is, and what it gets: the fields that somebody has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from pgflowd.core.documents.flows import TaskKey
from pgflowd.core.documents.people import HeldTask
from pgflowd.core.documents.runs import Run
from pgflowd.core.json import decode
from pgflowd.core.payloads import Payloads
from pgflowd.core.text import is_storable
from pgflowd.db.lookup import find_run
from pgflowd.errors import PgflowdError

Connection = psycopg.Connection[Any]
_SHOWN = Payloads()


def bad_field(text: str, next: str | None = None) -> PgflowdError:
    """The error about a field of a form that cannot be used."""
    return PgflowdError(text, code="E511", next=next)


@dataclass(frozen=True)
class Fields:
    """The fields of a form, which are texts, or of a JSON object."""

    values: Mapping[str, Any]
    is_json: bool = False

    def text(self, name: str) -> str | None:
        """A text; None for an empty one."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise bad_field(f"the field '{name}' must be a text")
        if value and not is_storable(value):
            raise bad_field(f"the field '{name}' has a character that no text can hold")
        return value or None

    def required(self, name: str) -> str:
        """A text that is not empty."""
        text = self.text(name)
        if text is None:
            raise bad_field(f"the field '{name}' is missing")
        return text

    def is_set(self, name: str) -> bool:
        """Whether a box is ticked."""
        value = self.values.get(name, False)
        if isinstance(value, bool):
            return value
        return self.text(name) is not None

    def number(self, name: str, high: int) -> int | None:
        """A whole number from 1 on; None without one."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        digits = str(value) if type(value) in (int, str) else ""
        is_whole = digits.isascii() and digits.isdigit() and len(digits) <= len(str(high))
        if not is_whole or not 1 <= int(digits) <= high:
            raise bad_field(f"the field '{name}' must be a whole number from 1 to {high}")
        return int(digits)

    def json(self, name: str, default: Any = None) -> Any:
        """A value: of a JSON object as it is there, of a form from its text."""
        if self.is_json:
            return self.values.get(name, default)
        text = self.text(name)
        if text is None:
            return default
        return decoded(text.encode(), f"the field '{name}'")


def decoded(text: bytes, what: str) -> Any:
    """The value of a JSON text that somebody has sent."""
    try:
        return decode(text)
    except ValueError as error:
        raise bad_field(f"{what} is not JSON: {error}") from None
    except RecursionError:
        raise bad_field(f"{what} is nested too deeply") from None


@dataclass(frozen=True)
class ActionRequest:
    """What somebody asks for."""

    conn: Connection
    path: Mapping[str, str]
    fields: Fields
    actor: str  # `jane (web)`
    payloads: Payloads = _SHOWN

    def run_id(self) -> UUID:
        """The run of the address."""
        return find_run(self.conn, self.path["run"])

    def task(self) -> TaskKey:
        """The task of the address."""
        index = self.path["task"]
        if not (index.isascii() and index.isdigit() and len(index) < 10):
            raise PgflowdError(f"'{index}' is not the number of a task", code="E506")
        return TaskKey(self.run_id(), self.path["step"], int(index))

    def shown(self, document: Run | HeldTask) -> dict[str, Any]:
        """The document with its values as they may be shown."""
        return self.payloads.of(document).to_json()

    @property
    def reason(self) -> str | None:
        return self.fields.text("reason")


@dataclass(frozen=True)
class ActionResult:
    """What an action did: the document of the command, and the page that shows the result."""

    to: str
    document: Mapping[str, Any]


@dataclass(frozen=True)
class PageAction:
    """An action, and the fields that it takes."""

    path: str
    act: Callable[[ActionRequest], ActionResult]
    fields: frozenset[str]
