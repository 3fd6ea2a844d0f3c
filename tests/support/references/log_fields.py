"""The page of the log, from `log_events.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pgflowd.core.logrecord import LogRecord, as_journal
from support.references.markdown import MADE, code, page, paragraph, prose, table

FILE = Path(__file__).parents[1] / "log_events.toml"
_ABOUT = f"""\
One record per event, with the same keys as text (`event key=value …`), as JSON and in the
journal. A field without a value is left out. Only in text on a terminal a record may have more
lines, indented: those of a traceback, for example. `ctx.log` and `logging` in handlers carry
the fields of their task too. {MADE}"""
_EVENTS = """\
These may be relied on; others may change in any release. A run that ends inside `start_flow`
has no record."""
_JOURNAL = """\
In the journal a field has a name of its own, so that `journalctl PGFLOW_RUN_ID=…` finds what
happened in a run. A record may have more fields than these: each is `PGFLOWD_` and its name in
capitals there."""
_LEVELS = {
    "debug": "claims and wakes; starts, suspensions and completions of runs, steps and tasks",
    "info": "the daemon's own life; a failed attempt that will be retried; skipped steps, "
    "cancelled runs; tasks that wait for newer code (E425)",
    "warning": "a failed run, a restart, a lost database or lease, a stalled task",
    "error": "what needs a person: parked, gave up, a refused password, E9xx",
}
_IN_JOURNAL = {"time": "", "level": "PRIORITY", "event": "PGFLOWD_EVENT"}  # the first: its own
_VALUE = b"\n\x01\0\0\0\0\0\0\0v\n"  # of the last field of an entry, behind its name


def log_page() -> str:
    tables = tomllib.loads(FILE.read_text("utf-8"))
    fields = tables.pop("fields")
    parts = [paragraph(_ABOUT), "## Levels"]
    parts.append(
        table(("level", "is for"), [(code(name), prose(_LEVELS[name])) for name in _LEVELS])
    )
    parts += ["## Events", paragraph(_EVENTS)]
    rows = [(code(event), prose(text)) for event, text in events().items()]
    parts += [table(("event", "is written when"), rows), "## Fields", paragraph(_JOURNAL)]
    rows_of_fields = [(code(name), _journal(name), prose(fields[name])) for name in fields]
    parts.append(table(("field", "in the journal", "is"), rows_of_fields))
    return page("The log", *parts)


def events() -> dict[str, str]:
    """The events that may be relied on, with what they mean."""
    tables = tomllib.loads(FILE.read_text("utf-8"))
    del tables["fields"]
    return {
        f"{about}.{word}": text for about, each in tables.items() for word, text in each.items()
    }


def _journal(name: str) -> str:
    """The field of the journal that has it."""
    if name in _IN_JOURNAL:
        return code(_IN_JOURNAL[name]) if _IN_JOURNAL[name] else ""
    entry = as_journal(LogRecord("x.y", "info", 0.0, {name: "v"}))
    return code(entry[: entry.rindex(_VALUE)].rpartition(b"\n")[2].decode())
