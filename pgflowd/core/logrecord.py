"""
Formats a log record as a line of text, a line of JSON, or a journal entry.

A record is an event (`task.failed`), a level, a time and fields. The result is always one line
(text, JSON) of at most `MAX_BYTES`, so that a write to a pipe is whole or absent and the lines of
two processes never mix. Only on a terminal a traceback keeps its lines. Values of keys that the
settings name, and text that looks like a secret, are hidden. Pure: the time is an argument.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pgflowd.core.redact import HIDDEN, one_line, redact

LEVELS = {"debug": 7, "info": 6, "warning": 4, "error": 3}  # syslog's numbers
MAX_VALUE_CHARS = 8000  # of one value, before the search for secrets
MAX_BYTES = 4096  # Linux writes this much into a pipe at once
_SUSPICIOUS = frozenset(":=@>%\"' ")
_MAX_BYTES_PER_CHAR = 12  # when JSON escapes it
_JOURNAL = {
    "flow": "PGFLOW_FLOW",
    "run": "PGFLOW_RUN_ID",
    "step": "PGFLOW_STEP",
    "task": "PGFLOW_TASK",
    "attempt": "PGFLOW_ATTEMPT",
    "worker": "PGFLOW_WORKER_ID",
    "trace_id": "PGFLOW_TRACE_ID",
    "span_id": "PGFLOW_SPAN_ID",
}


@dataclass(frozen=True)
class LogRecord:
    """An event with its time and fields."""

    event: str
    level: str
    at: float  # seconds since 1970
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def time(self) -> str:
        moment = datetime.fromtimestamp(self.at, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def redacted(record: LogRecord, keys: Iterable[str] = (), secrets: Iterable[str] = ()) -> LogRecord:
    """Return the record without secrets, without empty fields, and short enough."""
    hidden = {key.lower() for key in keys}
    known = list(secrets)
    fields = {
        key: HIDDEN if key.lower() in hidden else _redacted_value(value, hidden, known)
        for key, value in record.fields.items()
        if value is not None
    }
    record, limit = replace(record, fields=fields), MAX_BYTES
    while not _fits(record):  # shorten long values, more with each round
        limit //= 2
        fields = {key: _shortened(value, limit) for key, value in record.fields.items()}
        record = replace(record, fields=fields if limit else {})
    return record


def as_text(record: LogRecord) -> bytes:
    """Return `time level event key=value …` and a line break."""
    return _bytes(f"{record.time} {record.level:<7} {_message(record)}\n")


def as_lines(record: LogRecord) -> bytes:
    """Return the same for a terminal: values of several lines stand below the record, indented."""
    fields, below = dict(record.fields), ""
    for key, value in record.fields.items():
        if isinstance(value, str) and "\n" in value.rstrip("\n"):
            first, *others = fields.pop(key).rstrip("\n").split("\n")
            below += f"    {one_line(f'{key}: {first}')}\n"
            below += "".join(f"      {one_line(each)}\n" for each in others)
    return as_text(replace(record, fields=fields)) + _bytes(below)


def as_json(record: LogRecord) -> bytes:
    """Return one JSON object and a line break."""
    head = {"time": record.time, "level": record.level, "event": record.event}
    document = {**head, **record.fields}
    return json.dumps(document, default=str, separators=(",", ":")).encode() + b"\n"


def as_journal(record: LogRecord, identifier: str = "pgflowd") -> bytes:
    """Return an entry in the journal's own protocol, with searchable fields."""
    pairs = {
        "MESSAGE": _message(record),
        "PRIORITY": str(LEVELS[record.level]),
        "SYSLOG_IDENTIFIER": identifier,
        "PGFLOWD_EVENT": record.event,
    }
    for key, value in record.fields.items():
        safe = "".join(char if char.isascii() and char.isalnum() else "_" for char in key.upper())
        name = _JOURNAL.get(key, f"PGFLOWD_{safe}"[:64])
        pairs[name] = value if isinstance(value, str) else _shown(value)
    found = [(name.encode(), _bytes(value)) for name, value in pairs.items()]
    sized = (name + b"\n" + len(data).to_bytes(8, "little") + data for name, data in found)
    return b"".join(each + b"\n" for each in sized)


def _message(record: LogRecord) -> str:
    """Return the event and the fields as one line, which `journalctl` shows."""
    pairs = "".join(f" {key}={_shown(value)}" for key, value in record.fields.items())
    return one_line(record.event + pairs)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=str, separators=(",", ":"), ensure_ascii=False)
    text = str(value)
    plain = text and not any(char in text for char in ' "=\\') and text.isprintable()
    return text if plain else json.dumps(text, ensure_ascii=False)


def text_without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """One text, as a record would show it."""
    return str(_redacted_value(text, set(), list(secrets)))


def _redacted_value(value: Any, hidden: set[str], secrets: list[str]) -> Any:
    if isinstance(value, str):
        is_plain = len(value) <= 64 and not _SUSPICIOUS.intersection(value)  # such as a slug
        if is_plain and not any(secret in value for secret in secrets):
            return value
        return redact(_shortened(value, MAX_VALUE_CHARS), secrets)
    if isinstance(value, Mapping):
        return {
            str(key): HIDDEN
            if str(key).lower() in hidden
            else _redacted_value(each, hidden, secrets)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted_value(each, hidden, secrets) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(str(value), secrets)


def _fits(record: LogRecord) -> bool:
    chars = sum(len(v) if isinstance(v, str) else 32 for v in record.fields.values())
    if chars * _MAX_BYTES_PER_CHAR + 40 * len(record.fields) + 200 <= MAX_BYTES and not any(
        isinstance(value, dict | list) for value in record.fields.values()
    ):
        return True
    return len(as_json(record)) <= MAX_BYTES and len(as_text(record)) <= MAX_BYTES


def _shortened(value: Any, limit: int) -> Any:
    """Keep the beginning and the end of a long value."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else _shown(value)
    half = limit // 2
    return value if len(text) <= limit else f"{text[:half]}…{text[len(text) - half :]}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
