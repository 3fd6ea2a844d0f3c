"""The page of the configuration and the file config/pgflowd.toml, from the keys of the sections."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from pgflowd import examples
from pgflowd.core.settings.keys import FlowList, Key, keys_of
from pgflowd.core.settings.load import toml_value
from pgflowd.core.settings.sections import SECTIONS, FlowSettings
from support.references.markdown import MADE, WIDTH, code, page, paragraph, prose, table

_ABOUT = f"""\
Every key has a default, but a daemon needs `flows`.
`config/pgflowd.toml` is a file with all of them. `pgflowd config
show --origin` prints the values in force and where each comes from, `pgflowd check` what is
wrong, `pgflowd config schema` a JSON Schema for editors. {MADE}"""
_FILES = """\
The first of these files is read: `--config FILE`, `$PGFLOWD_CONFIG`, `./pgflowd.toml`,
`[tool.pgflowd]` in `./pyproject.toml`, `/etc/pgflowd/pgflowd.toml`. With `--instance NAME` it
is `/etc/pgflowd/NAME.toml` and nothing else. In a pyproject.toml the keys of `[pgflowd]` may
stand in `[tool.pgflowd]` itself. No file is needed."""
_ORDER = """\
For each key: flag, else environment, else file, else default. The variable of a key has its
section and name, as `PGFLOWD__WORKER__MAX_CONCURRENCY`, and of a flow
`PGFLOWD__FLOWS__<SLUG>__MAX_CONCURRENCY`, all in capitals; `pgflowd config env` lists them.
Lists are JSON there. For a text a variable with `_FILE` at its end names a file that has it."""
_VALUES = {
    "Durations": 'have units, from the largest to the smallest: "250ms", "30s", "1h30m", "7d".',
    "Sizes": 'have one: "16MiB", "64KiB", "1GB", "512B".',
    "Paths": "are relative to the file.",
    "Texts": 'may be elsewhere: "env:NAME" is a variable, "file:PATH" a file, "cred:NAME" a '
    "credential of systemd.",
}
_VARIABLES = {
    "PGFLOWD_CONFIG": "the config file, unless `--config` or `--instance` names one",
    "PGHOST, PGDATABASE, PGSERVICE, …": "those of libpq, where `[database] url` is empty",
    "NO_COLOR": "no colours, unless `--color always`",
    "PAGER": "what shows long pages of `pgflowd docs`; else `less`",
    "RUNTIME_DIRECTORY, XDG_RUNTIME_DIR": "where the control socket is by default",
    "STATE_DIRECTORY": "where reports of bugs in pgflowd are written",
    "CREDENTIALS_DIRECTORY": 'where "cred:NAME" is found; systemd sets it',
    "NOTIFY_SOCKET, WATCHDOG_USEC, JOURNAL_STREAM": "set by systemd: notifications, the journal",
    "OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES": "what spans say of this service",
    "OTEL_EXPORTER_OTLP_…": "those of the OpenTelemetry SDK: endpoint, headers, timeout, protocol",
}
_HEAD = """\
# The configuration of pgflowd. Every key except `flows` has its default here, so you may remove any
# line. Replace the examples by your flows. The first of these files is read:
#
#   --config FILE, $PGFLOWD_CONFIG, ./pgflowd.toml, [tool.pgflowd] in ./pyproject.toml,
#   /etc/pgflowd/pgflowd.toml (with --instance NAME: /etc/pgflowd/NAME.toml and nothing else)
#
# For each key: flag > environment > file > default. `pgflowd config show --origin` shows which,
# `pgflowd config env` the variables, such as PGFLOWD__WORKER__MAX_CONCURRENCY.
#
# Durations and sizes have units: "250ms", "1h30m", "7d", "16MiB". Paths are relative to this
# file. A text may be elsewhere: "env:NAME", "file:PATH", "cred:NAME" (a systemd credential).
# This file and docs/reference/config.md are made by `make references`.
"""
_OF_ONE_FLOW = """\

# Any key of [worker] for one flow alone, and whether it is served:
#
#   [flows.send_email]
#   enabled         = true
#   max_concurrency = 2
"""
_COMMENT_COLUMN = 34  # of config/pgflowd.toml, where a value is not longer


def config_page() -> str:
    values = [f"- {name} {prose(text)}" for name, text in _VALUES.items()]
    parts = [paragraph(_ABOUT), "## Where values come from", paragraph(_FILES), paragraph(_ORDER)]
    parts += ["## Values", "\n".join(values)]
    for name, section in SECTIONS.items():
        parts += _section(f"[{name}]", section, keys_of(section))
        if name == "worker":
            own = {key: keys_of(FlowSettings)[key] for key in ("enabled",)}
            parts += _section("[flows.SLUG]", FlowSettings, own)
    about = "They are read besides the variables of keys."
    rows = [[_names(names), prose(text)] for names, text in _VARIABLES.items()]
    parts += ["## Other variables", paragraph(about), table(("variable", "is"), rows)]
    return page("Configuration", *parts)


def _section(title: str, section: type, keys: dict[str, tuple[str, Key]]) -> list[str]:
    rows = [
        [code(name), code(toml_value(key.default)), f"{prose(key.doc)} ({key.means})"]
        for name, (_, key) in keys.items()
    ]
    about = (section.__doc__ or "").strip()
    return [f"## {title}", paragraph(about), table(("key", "default", "is"), rows)]


def _names(names: str) -> str:
    return ", ".join(each if each == "…" else code(each) for each in names.split(", "))


def config_file() -> str:
    """The text of config/pgflowd.toml."""
    lines = [_HEAD]
    for name, section in SECTIONS.items():
        about = (section.__doc__ or "").strip().rstrip(".")
        lines.append(f"[{name}]{' ' * (_COMMENT_COLUMN - len(name) - 2)}# {about}")
        lines += [line for key in keys_of(section) for line in _lines(section, key)]
        lines.append(_OF_ONE_FLOW if name == "worker" else "")
    return "\n".join(lines).rstrip() + "\n"


def _lines(section: type, name: str) -> Iterator[str]:
    """A key with its default, and its comment behind that and below."""
    key = keys_of(section)[name][1]
    width = max(map(len, keys_of(section)))
    text = f"{name:<{width}} = {toml_value(key.default)}"
    comment = textwrap.wrap(
        key.doc, WIDTH - _COMMENT_COLUMN - 2, break_long_words=False, break_on_hyphens=False
    )
    if isinstance(key, FlowList):
        yield f"{f'{name:<{width}} = [':<{_COMMENT_COLUMN}}# {comment[0]}"
        yield from (f"{'':<{_COMMENT_COLUMN}}# {each}" for each in comment[1:])
        yield from (f'  "pgflowd.examples.{module}",' for module in _example_modules())
        yield "]"
        return
    gap = max(_COMMENT_COLUMN - len(text), 2)
    yield f"{text}{' ' * gap}# {comment[0]}"
    yield from (f"{'':<{_COMMENT_COLUMN}}# {each}" for each in comment[1:])


def _example_modules() -> list[str]:
    names = {path.stem for path in Path(examples.__path__[0]).glob("*.py")}
    return sorted(names - {"__init__"})
