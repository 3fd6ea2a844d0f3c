"""
Makes one Settings from the values of flags, environment and file, and lists all mistakes.

`from_document` flattens a parsed TOML document, `from_environ` reads `PGFLOWD__…` variables and
`from_flags` the command line. `lines_of` finds the lines of keys, which `tomllib` does not report.
`build` takes the given values, those of the strongest source first. Every value is checked, even
if another one overrides it, so that all mistakes are shown at once. The first value of each key
counts; a key without a value keeps its default.

The other way, `rows` lists every key with its origin and its value as written in a file; a
reference is shown as such, and a URL without its password. `variables` lists the environment
variables. `json_schema` describes the file for editors: it refuses what a file alone shows to be
wrong. What depends on another key or place it leaves to `pgflowd check`, since the environment may
have that. Each key's description names the codes of what is refused, for `pgflowd explain`.

`contradictions` compares keys with each other (E106), for [worker] and for each flow that
overrides one of them. An address that other machines reach needs a token; who reaches the dashboard
must be asked who he is (E501), a way to log in needs what it reads, and networks have no bits of a
host (E105). A daemon that is about to serve also checks `missing_flows` (E111), `unserved` (E108)
and `socket_too_long` (E112). Pure.
"""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

from pgflowd.core.redact import one_line
from pgflowd.core.settings.keys import (
    GivenValue,
    InvalidValue,
    Key,
    KeyPath,
    LookUp,
    Number,
    Origin,
    keys_of,
)
from pgflowd.core.settings.sections import (
    SECTIONS,
    DaemonSettings,
    FlowSettings,
    Overrides,
    Settings,
    WorkerSettings,
)
from pgflowd.core.settings.values import Ref, format_duration
from pgflowd.core.text import nearest
from pgflowd.errors import Problem

Lines = Mapping[KeyPath, int]

PREFIX = "PGFLOWD__"
MAX_HINTS = 100  # "did you mean": each costs time, so only the first mistakes get one
_TOKEN = re.compile(  # of TOML: a string, a comment, a word or a sign
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}'
    r"|'''(?:[^']|'{1,2}(?!'))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'|#[^\n]*|[A-Za-z0-9_-]+|[ \t\r]+|.",
    re.S,
)


@dataclass(frozen=True)
class LoadedSettings:
    """The settings, all problems, and the keys whose own value is invalid."""

    settings: Settings
    problems: list[Problem]
    invalid: frozenset[KeyPath]


def variable(*path: str) -> str:
    """Return the environment variable of a key, such as PGFLOWD__WORKER__POLL_MIN."""
    return PREFIX + "__".join(part.upper() for part in path)


def lines_of(text: str) -> dict[KeyPath, int]:
    """
    Return the line of each key and table of a TOML text that `tomllib` has accepted.

    Keys inside of a value, as of an inline table, have the line of the key that the value is of.
    """
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    names: list[str] = []
    line, depth = 1, 0  # how many brackets of a value are open
    is_value = is_header = False
    for token in _TOKEN.findall(text + "\n"):
        if is_value:
            depth += (token in "[{") - (token in "]}")
            is_value = token != "\n" or depth > 0
        elif token in ("=", "\n"):
            start = () if is_header else table
            for count in range(1, len(names) + 1):
                found.setdefault((*start, *names[:count]), line)
            table, is_header = (tuple(names), False) if is_header else (table, False)
            names, is_value = [], token == "="
        elif token == "[":
            is_header = True
        elif token[0] in "\"'":
            names.append(tomllib.loads(f"key = {token}")["key"])
        elif token[0] not in "#]. \t\r":
            names.append(token)
        line += token.count("\n")
    return found


def from_document(
    document: Mapping[str, Any], lines: Lines, file: str, base: str, prefix: KeyPath = ()
) -> list[GivenValue]:
    """
    Flatten a document. In a pyproject.toml `prefix` is ("tool", "pgflowd"), and the keys of
    [pgflowd] may be in [tool.pgflowd] itself.
    """

    found: list[GivenValue] = []

    def add(path: KeyPath, raw: Any, at: KeyPath) -> None:
        above = ((*prefix, *at)[:count] for count in range(len(prefix) + len(at), 0, -1))
        line = next((lines[path] for path in above if path in lines), None)
        place = f"{file}:{line}" if line else file
        found.append(GivenValue(path, raw, Origin("file", place), base))

    for section, content in document.items():
        if not isinstance(content, dict):
            is_inside = bool(prefix) and section in keys_of(DaemonSettings)
            add(("pgflowd", section) if is_inside else (section,), content, (section,))
        elif section != "flows" and section not in SECTIONS:
            add((section,), content, (section,))
        else:
            for key, raw in content.items():
                add((section, key), raw, (section, key))
                if section == "flows" and isinstance(raw, dict):
                    for inner, value in raw.items():
                        add((section, key, inner), value, (section, key, inner))
    return found


def every_key(slugs: Iterable[str] = ()) -> dict[KeyPath, tuple[str, Key]]:
    """All keys, those of these flows too, each with the name of its field."""
    tables: list[tuple[KeyPath, type]] = [((name,), kind) for name, kind in SECTIONS.items()]
    tables += [(("flows", slug), FlowSettings) for slug in slugs]
    return {(*path, name): key for path, kind in tables for name, key in keys_of(kind).items()}


def from_environ(
    environ: Mapping[str, str], slugs: Iterable[str], cwd: str
) -> tuple[list[GivenValue], list[Problem]]:
    """
    Read the PGFLOWD__ variables. `slugs` are those of [flows.x] in the file: if one is `sendEmail`,
    then SEND_EMAIL means that.
    """
    known = {variable(*path): path for path in every_key(slugs)}

    def path_of(name: str) -> KeyPath:
        rest = name.removeprefix(PREFIX).lower()
        if name not in known and rest.startswith("flows__"):
            slug, _, key = rest.removeprefix("flows__").rpartition("__")
            return ("flows", slug, key)
        return known.get(name) or tuple(rest.split("__", 1))

    found, problems = [], []
    for name in sorted(name for name in environ if name.startswith(PREFIX)):
        path, raw, plain = path_of(name), environ[name], name.removesuffix("_FILE")
        target = path_of(plain)
        if path not in known.values() and plain != name and (key := key_of(target)) and key.is_text:
            path, raw = target, f"file:{raw}"
            if plain in environ:
                text = f"{one_line(name)} and {one_line(plain)} are both set"
                problems.append(Problem("E106", text, one_line(name), "unset one of them"))
        origin = Origin("environment", one_line(name))
        found.append(GivenValue(path, raw, origin, cwd, is_text=True))
    return found, problems


def from_flags(flags: Mapping[str, tuple[KeyPath, str | None]], cwd: str) -> list[GivenValue]:
    """Read the flags: {"--database-url": (("database", "url"), "postgresql://…")}."""
    return [
        GivenValue(path, raw, Origin("flag", name), cwd, is_text=True)
        for name, (path, raw) in flags.items()
        if raw is not None
    ]


def _section_of(path: KeyPath) -> type | None:
    return FlowSettings if path[0] == "flows" and len(path) > 1 else SECTIONS.get(path[0])


def key_of(path: KeyPath) -> Key | None:
    """The key at a path of a file, if there is one."""
    section = _section_of(path)
    return keys_of(section).get(path[-1], ("", None))[1] if section else None


def build(
    given: Sequence[GivenValue],
    look_up: LookUp,
    *,
    file: str | None = None,
    instance: str | None = None,
) -> LoadedSettings:
    """Return the settings and all problems. If one of these is an error, ignore the settings."""
    parsed: dict[KeyPath, Any] = {}
    origins: dict[KeyPath, Origin] = {}
    invalid: set[KeyPath] = set()
    problems: dict[Problem, None] = {}  # each once, in their order
    slugs: dict[str, str] = {}  # in lower case: as written
    for each in given:
        path, origin = each.path, each.origin
        if _section_of(path) is FlowSettings:
            path = ("flows", path[1].lower(), *path[2:])
        try:
            key = _key(each, slugs, may_hint=len(invalid) < MAX_HINTS)
            if key is None:  # the table of a flow
                origins.setdefault(path, origin)
                continue
            before = origins.get(path) if path in parsed else None
            if before and before.kind == origin.kind == "file":
                # a pyproject.toml has it in [tool.pgflowd] and one level deeper, too
                raise InvalidValue("E106", f"is set twice, also at {before}", "remove one of them")
            value = key.read(each, look_up)
        except InvalidValue as error:
            invalid.add(path)
            text = error.text
            if error.code not in {"E102", "E207"}:  # these name the key
                text = f"{label(each.path)}{'' if text.startswith('[') else ' '}{text}"
            problems[Problem(error.code, text, origin.place, error.next)] = None
            continue
        if path not in parsed and path not in invalid:
            is_reference = isinstance(each.raw, str) and Ref(each.raw).scheme is not None
            # only the reference may be shown
            origins[path] = replace(origin, reference=each.raw) if is_reference else origin
            parsed[path] = value
    if instance is not None:
        parsed.setdefault(("pgflowd", "name"), instance)
        origins.setdefault(("pgflowd", "name"), Origin("instance", "--instance"))
    fields: dict[KeyPath, dict[str, Any]] = {}  # by table
    for path, (name, _) in every_key(slugs).items():
        found = fields.setdefault(path[:-1], {})
        if path in parsed:
            found[name] = parsed[path]
    flows = {
        lower: Overrides(slug, its.pop("enabled", True), its)
        for lower, slug in slugs.items()
        for its in [fields["flows", lower]]
    }
    sections = {name: kind(**fields[name,]) for name, kind in SECTIONS.items()}
    settings = Settings(**sections, flows=flows, file=file, origins=origins)
    return LoadedSettings(
        settings, [*problems, *contradictions(settings, invalid)], frozenset(invalid)
    )


def label(path: KeyPath) -> str:
    """Name a key for people: [worker] poll_min."""
    *section, key = (one_line(part, 60) for part in path)
    return f"[{'.'.join(section)}] {key}" if section else key


def _key(given: GivenValue, slugs: dict[str, str], *, may_hint: bool) -> Key | None:
    """
    Return the key of a value; None for the table of a flow itself. Notes the slug of a flow.

    `may_hint`: suggest a similar name, unless there were very many mistakes.
    """
    path, section = given.path, _section_of(given.path)
    shown = [one_line(part, 60) for part in path]
    if section is FlowSettings:
        written = slugs.setdefault(path[1].lower(), path[1])
        if written != path[1] and given.origin.kind == "file":
            same = f"[flows.{one_line(written, 60)}] and [flows.{shown[1]}]"
            raise InvalidValue("E207", f"{same} differ in case only", "merge them")
    if section and len(path) == (2 if section is FlowSettings else 1):
        if section is FlowSettings and isinstance(given.raw, dict):
            return None
        raise InvalidValue(
            "E103", "is not a table", f"write [{'.'.join(shown)}] on a line of its own"
        )
    if key := key_of(path):
        return key
    if given.origin.kind == "environment":
        flow = path[1] if path[0] == "flows" and len(path) > 2 else "<SLUG>"
        # the whole name of a variable, not only the key
        close = nearest(given.origin.place or "", [variable(*each) for each in every_key([flow])])
        meant = f"did you mean {one_line(close, 120)}?" if close else "see pgflowd config env"
        raise InvalidValue("E102", "this variable belongs to no key", meant)
    homes = [name for name, keys in SECTIONS.items() if path[-1] in keys_of(keys)]
    remedy = f"it belongs in [{homes[0]}]" if homes else None
    if section is not None:
        name, known, form = path[-1], [*keys_of(section)], "'{}'"
        text = f"[{'.'.join(shown[:-1])}] has no key '{shown[-1]}'"
        if isinstance(given.raw, dict):
            text = f"there is no section [{'.'.join(shown)}]"
    elif len(path) == 1 and remedy:
        name, text = path[0], f"'{shown[0]}' is outside of any section"
    else:
        name, known, form, remedy = path[0], [*SECTIONS, "flows"], "[{}]", None
        text = f"there is no section [{shown[0]}]"
    if remedy is None and may_hint and (close := nearest(name, known)):
        remedy = f"did you mean {form.format(close)}?"
    raise InvalidValue("E102", text, remedy)


_DIALECT = "http://json-schema.org/draft-07/schema#"  # which every editor knows
_OTHERS = "Another key is refused as `E102`, another type as `E103`: see `pgflowd explain`."


class Row(NamedTuple):
    """One key of the effective settings."""

    section: tuple[str, ...]  # ("worker",) or ("flows", "send_email")
    key: str
    value: Any  # as written in the file: text, number, switch, list or table
    origin: Origin


class Variable(NamedTuple):
    """One environment variable."""

    name: str
    section: Annotated[str, "of the key"]
    key: str
    default: Any
    takes_file: Annotated[
        bool, "whether the variable with `_FILE` at its end names a file that has the value"
    ]


def rows(settings: Settings) -> Iterator[Row]:
    """List all keys; of a flow only those that were set."""
    for path, (field, key) in every_key(settings.flows).items():
        origin, section = settings.origin_of(*path), path[:-1]
        if path[0] != "flows":
            value = getattr(getattr(settings, path[0]), field)
        elif path in settings.origins:
            flow = settings.flows[path[1]]
            section = ("flows", flow.slug)
            value = flow.enabled if field == "enabled" else flow.worker[field]
        else:
            continue
        yield Row(section, path[-1], origin.reference or key.written(value), origin)


def toml_key(name: str) -> str:
    """Write a key or a part of a section's name for TOML."""
    bare = name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()
    return name if bare else toml_value(name)


def toml_value(value: Any) -> str:
    """Write a value of a key for TOML, on one line."""
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        pairs = ", ".join(f"{toml_key(name)} = {toml_value(each)}" for name, each in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    return one_line(json.dumps(value, ensure_ascii=False))


def variables() -> Iterator[Variable]:
    """List the environment variable of each key."""
    for path, (_, key) in every_key(["<slug>"]).items():
        *section, name = path
        yield Variable(variable(*path), ".".join(section), name, key.default, key.is_text)


def json_schema() -> dict[str, Any]:
    """Return a JSON Schema (draft 7) of pgflowd.toml."""
    about = "The configuration of pgflowd."
    return {"$schema": _DIALECT, "title": "pgflowd.toml", **_table(about, _sections())}


def pyproject_schema() -> dict[str, Any]:
    """Return a JSON Schema (draft 7) of [tool.pgflowd], which has keys of [pgflowd] itself, too."""
    about = "The configuration of pgflowd, unless there is a pgflowd.toml."
    inside, sections = _keys(DaemonSettings), _sections()
    flows = {"anyOf": [inside["flows"], sections["flows"]]}  # a list, or tables of flows
    keys = {**inside, **sections, "flows": flows}
    return {"$schema": _DIALECT, "title": "[tool.pgflowd]", **_table(about, keys)}


def _sections() -> dict[str, Any]:
    sections = {name: _table(kind.__doc__, _keys(kind)) for name, kind in SECTIONS.items()}
    flow = _keys(FlowSettings)
    for name in keys_of(SECTIONS["worker"]):
        del flow[name]["default"]  # it is that of [worker], whatever this says
    flows = _table("A table for each flow whose worker differs from [worker].", {})
    of_each = {"additionalProperties": _table(FlowSettings.__doc__, flow)}
    return {**sections, "flows": {**flows, **of_each}}


def _table(about: str | None, keys: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": f"{about} {_OTHERS}",
        "additionalProperties": False,
        "properties": keys,
    }


def _keys(section: type) -> dict[str, Any]:
    found = {}
    for name, (_, key) in keys_of(section).items():
        between = f" ({key.range})" if isinstance(key, Number) else ""
        codes = ", ".join(f"`{code}`" for code in key.codes)
        about = f"{key.doc}{between}. Refused as {codes}: see `pgflowd explain`."
        found[name] = {"description": about, **key.schema(), "default": key.default}
    return found


MAX_RUNNERS = 1000  # of one flow: each is a process
MAX_SOCKET_PATH_BYTES = 107  # the kernel's sun_path without its NUL
UNIX = "unix"  # in trusted_proxies: whoever comes by the Unix socket


class _Contradiction(NamedTuple):
    """`keys` are keys of the section, `others` further ones that have a part in it."""

    section: KeyPath
    keys: tuple[str, ...]
    text: str
    others: tuple[KeyPath, ...] = ()
    code: str = "E106"
    next: str | None = None


def contradictions(settings: Settings, invalid: Collection[KeyPath] = ()) -> list[Problem]:
    """Return the contradictions between keys, except those of keys whose own value is invalid."""
    found = []
    for each in _found(settings):
        own: list[KeyPath] = [(*each.section, key) for key in each.keys]
        paths = [*own, *each.others]
        if each.section[0] == "flows":
            if settings.origins.keys().isdisjoint(own):  # the flow only inherits them
                continue
            paths += [("worker", key) for key in each.keys]
        if not any(path in invalid for path in paths):
            name = ".".join(one_line(part, 60) for part in each.section)
            places = [settings.origin_of(*path).place for path in paths]
            place = next(filter(None, places), None)
            found.append(Problem(each.code, f"[{name}] {each.text}", place, each.next))
    return found


def _found(settings: Settings) -> Iterator[_Contradiction]:
    database, hang_s, http = settings.database, settings.supervisor.hang_timeout_s, settings.http
    both_s = database.statement_timeout_s + database.connect_timeout_s
    if hang_s <= both_s:
        text = (
            f"hang_timeout ({format_duration(hang_s)}) is not more than [database]"
            f" statement_timeout and connect_timeout together ({format_duration(both_s)})"
        )
        others = (("database", "statement_timeout"), ("database", "connect_timeout"))
        yield _Contradiction(("supervisor",), ("hang_timeout",), text, others)
    yield from _ordered(("database",), database, "reconnect")
    yield from _ordered(("supervisor",), settings.supervisor, "backoff")
    yield from _of_worker(settings, ("worker",), settings.worker)
    for slug in settings.flows:
        yield from _of_worker(settings, ("flows", slug), settings.worker_for(slug))
    if not http.token and http.address is not None and not http.address.is_local:
        text = f"listen = {http.listen} can be reached from other machines, and needs a token"
        remedy = 'write token = "file:/etc/pgflowd/http_token", or env:, or cred:'
        yield _Contradiction(("http",), ("listen", "token"), text, next=remedy)
    web = settings.web
    if web.auth in ("key", "none") and not web.address.is_local:
        by_others = f"listen = {web.listen} is reached by others"
        text = f'{by_others}, and auth = "{web.auth}" is for this machine'
        remedy = 'listen on 127.0.0.1 or unix:PATH, or set auth = "password" or "proxy"'
        yield _Contradiction(("web",), ("listen",), text, code="E501", next=remedy)
    needed = {
        ("password", "users"): 'write users = "/etc/pgflowd/users", then `pgflowd web passwd NAME`',
        ("proxy", "trusted_proxies"): 'write trusted_proxies = ["127.0.0.1"], the address that '
        "the proxy comes from",
    }
    for (auth, key), remedy in needed.items():
        if web.auth == auth and not getattr(web, key):
            text = f'auth = "{auth}" needs {key}'
            yield _Contradiction(("web",), ("auth",), text, next=remedy)
    for each in web.trusted_proxies:
        try:
            ipaddress.ip_network("::" if each == UNIX else each)
        except ValueError:
            text = f"trusted_proxies has {one_line(each, 60)}, which is not an address"
            remedy = 'write for example "10.0.0.7", "10.0.0.0/24"'
            yield _Contradiction(("web",), ("trusted_proxies",), text, code="E105", next=remedy)


def _ordered(section: KeyPath, values: object, stem: str) -> Iterator[_Contradiction]:
    low, high = (getattr(values, f"{stem}_{end}_s") for end in ("min", "max"))
    if low > high:
        text = f"{stem}_min ({format_duration(low)}) is more than {stem}_max"
        keys = (f"{stem}_min", f"{stem}_max")
        yield _Contradiction(section, keys, f"{text} ({format_duration(high)})")


def _of_worker(
    settings: Settings, section: KeyPath, worker: WorkerSettings
) -> Iterator[_Contradiction]:
    yield from _ordered(section, worker, "poll")
    yield from _ordered(section, worker, "backoff")
    lease_s, interval_s = settings.recovery.lease_s, worker.heartbeat_interval_s
    if lease_s < 3 * interval_s:
        text = (
            f"heartbeat_interval ({format_duration(interval_s)}) is more than a third of "
            f"[recovery] lease ({format_duration(lease_s)})"
        )
        yield _Contradiction(section, ("heartbeat_interval",), text, (("recovery", "lease"),))
    shared = worker.tasks_per_runner
    if shared > 1 and worker.isolation == "task":
        text = (
            f'isolation = "task" (a fresh runner for each task) and tasks_per_runner = {shared}'
            " (tasks share one) exclude each other: leave one of them out"
        )
        yield _Contradiction(section, ("isolation", "tasks_per_runner"), text)
    runners = -(-worker.max_concurrency // shared)
    if runners > MAX_RUNNERS:
        text = (
            f"max_concurrency ({worker.max_concurrency}) with tasks_per_runner = {shared} takes"
            f" {runners} runners, more than {MAX_RUNNERS}: raise tasks_per_runner, which async"
            " handlers share, or lower max_concurrency"
        )
        yield _Contradiction(section, ("max_concurrency", "tasks_per_runner"), text)


def missing_flows(settings: Settings, place: str) -> list[Problem]:
    """Return E111 if no flows are configured. `place` is the file, or the files searched for."""
    if settings.pgflowd.flows:
        return []
    remedy = 'set flows = ["your_module"] in [pgflowd]'
    if not settings.file:
        remedy += ", or run `pgflowd new NAME` to write a project"
    return [Problem("E111", "no flows are configured", place, remedy)]


def unserved(settings: Settings, served: Iterable[str]) -> list[Problem]:
    """Return E108 for each [flows.x] whose flow is not served."""
    slugs = {slug.lower(): slug for slug in served}
    found = []
    for lower, flow in settings.flows.items():
        if lower not in slugs:
            close = nearest(flow.slug, slugs.values())
            remedy = f"did you mean [flows.{close}]?" if close else None
            origins = (origin for path, origin in settings.origins.items() if path[1:2] == (lower,))
            place = next((origin.place for origin in origins), None)
            text = f"[flows.{one_line(flow.slug, 60)}] is not a served flow"
            found.append(Problem("E108", text, place, remedy))
    return found


def socket_too_long(settings: Settings, path: str) -> list[Problem]:
    """Return E112 if the kernel would refuse the path of the control socket."""
    length = len(path.encode("utf-8", "surrogateescape"))
    if length <= MAX_SOCKET_PATH_BYTES:
        return []
    text = f"the path of the control socket has {length} bytes; at most {MAX_SOCKET_PATH_BYTES}"
    place, remedy = settings.origin_of("supervisor", "control").place, "set control in [supervisor]"
    return [Problem("E112", f"{text} are allowed", place, f"{remedy} to a shorter path")]
