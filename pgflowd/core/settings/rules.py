"""
Checks keys against each other, and against the served flows and the path of the socket.

`contradictions` compares keys with each other (E106), for [worker] and for each flow that
overrides one of them; an address that other machines reach needs a token (E106); `web_rules` has
those of the dashboard. A daemon that is about to serve also checks
`missing_flows` (E111), `unserved` (E108) and `socket_too_long` (E112). Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from pgflowd.core.redact import one_line
from pgflowd.core.settings.keys import KeyPath
from pgflowd.core.settings.sections import Settings, WorkerSettings
from pgflowd.core.settings.values import format_duration
from pgflowd.core.settings.web_rules import contradictions_of_web
from pgflowd.core.suggest import nearest
from pgflowd.errors import Problem

MAX_RUNNERS = 1000  # of one flow: each is a process
MAX_SOCKET_PATH_BYTES = 107  # the kernel's sun_path without its NUL


_ORDERED = {  # section: the stems of its …_min and …_max
    "database": ("reconnect",),
    "worker": ("poll", "backoff"),
    "supervisor": ("backoff",),
}


class _Contradiction(NamedTuple):
    """`own` are keys of the section, `others` further keys that have a part in it."""

    prefix: KeyPath
    text: str
    own: Sequence[KeyPath]
    others: Sequence[KeyPath]

    def has_any(self, paths: Collection[KeyPath]) -> bool:
        return any(path in paths for path in [*self.own, *self.others])


def contradictions(settings: Settings, invalid: Collection[KeyPath] = ()) -> list[Problem]:
    """Return the contradictions between keys, except those of keys whose own value is invalid."""
    found = [_hang_timeout(settings)]
    for section, stems in _ORDERED.items():
        found += [_ordered((section,), getattr(settings, section), stem) for stem in stems]
    found.append(_lease(settings, ("worker",), settings.worker))
    found += _runners(("worker",), settings.worker)
    for slug in settings.flows:
        prefix, worker = ("flows", slug), settings.worker_for(slug)
        found += [_ordered(prefix, worker, stem) for stem in _ORDERED["worker"]]
        found.append(_lease(settings, prefix, worker))
        found += _runners(prefix, worker)
    problems = [_problem(settings, each) for each in found if each and not each.has_any(invalid)]
    if not {("http", "listen"), ("http", "token")} & set(invalid):
        problems.append(_token(settings))
    problems += contradictions_of_web(settings, invalid)
    return [problem for problem in problems if problem]


def _token(settings: Settings) -> Problem | None:
    """Return E106 if there should be a token."""
    http = settings.http
    if http.token or http.address is None or http.address.is_local:
        return None
    text = f"[http] listen = {http.listen} can be reached from other machines, and needs a token"
    remedy = 'write token = "file:/etc/pgflowd/http_token", or env:, or cred:'
    return Problem("E106", text, settings.origin_of("http", "listen").place, remedy)


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
        if lower in slugs:
            continue
        close = nearest(flow.slug, slugs.values())
        remedy = f"did you mean [flows.{close}]?" if close else None
        places = [
            origin.place for path, origin in settings.origins.items() if path[1:2] == (lower,)
        ]
        text = f"[flows.{one_line(flow.slug, 60)}] is not a served flow"
        found.append(Problem("E108", text, places[0] if places else None, remedy))
    return found


def socket_too_long(settings: Settings, path: str) -> list[Problem]:
    """Return E112 if the kernel would refuse the path of the control socket."""
    length = len(path.encode("utf-8", "surrogateescape"))
    if length <= MAX_SOCKET_PATH_BYTES:
        return []
    text = (
        f"the path of the control socket has {length} bytes; at most {MAX_SOCKET_PATH_BYTES} "
        "are allowed"
    )
    place = settings.origin_of("supervisor", "control").place
    return [Problem("E112", text, place, "set control in [supervisor] to a shorter path")]


def _ordered(prefix: KeyPath, values: object, stem: str) -> _Contradiction | None:
    low, high = (getattr(values, f"{stem}_{end}_s") for end in ("min", "max"))
    if low <= high:
        return None
    text = f"{stem}_min ({format_duration(low)}) is more than {stem}_max ({format_duration(high)})"
    own = [(*prefix, f"{stem}_min"), (*prefix, f"{stem}_max")]
    inherited = [("worker", path[-1]) for path in own] if prefix[0] == "flows" else []
    return _Contradiction(prefix, text, own, inherited)


def _lease(settings: Settings, prefix: KeyPath, worker: WorkerSettings) -> _Contradiction | None:
    lease_s, interval_s = settings.recovery.lease_s, worker.heartbeat_interval_s
    if lease_s >= 3 * interval_s:
        return None
    text = (
        f"heartbeat_interval ({format_duration(interval_s)}) is more than a third of "
        f"[recovery] lease ({format_duration(lease_s)})"
    )
    others = [("recovery", "lease"), ("worker", "heartbeat_interval")]
    return _Contradiction(prefix, text, [(*prefix, "heartbeat_interval")], others)


def _runners(prefix: KeyPath, worker: WorkerSettings) -> list[_Contradiction]:
    """What `tasks_per_runner` does not go with."""
    found, shared = [], worker.tasks_per_runner

    def contradiction(text: str, *keys: str) -> _Contradiction:
        own = [(*prefix, key) for key in keys]
        inherited = [("worker", path[-1]) for path in own] if prefix[0] == "flows" else []
        return _Contradiction(prefix, text, own, inherited)

    if shared > 1 and worker.isolation == "task":
        text = (
            f'isolation = "task" (a fresh runner for each task) and tasks_per_runner = {shared}'
            " (tasks share one) exclude each other: leave one of them out"
        )
        found.append(contradiction(text, "isolation", "tasks_per_runner"))
    runners = -(-worker.max_concurrency // shared)
    if runners > MAX_RUNNERS:
        text = (
            f"max_concurrency ({worker.max_concurrency}) with tasks_per_runner = {shared} takes"
            f" {runners} runners, more than {MAX_RUNNERS}: raise tasks_per_runner, which async"
            " handlers share, or lower max_concurrency"
        )
        found.append(contradiction(text, "max_concurrency", "tasks_per_runner"))
    return found


def _hang_timeout(settings: Settings) -> _Contradiction | None:
    database, hang_s = settings.database, settings.supervisor.hang_timeout_s
    both_s = database.statement_timeout_s + database.connect_timeout_s
    if hang_s > both_s:
        return None
    text = (
        f"hang_timeout ({format_duration(hang_s)}) is not more than [database] statement_timeout "
        f"and connect_timeout together ({format_duration(both_s)})"
    )
    others = [("database", "statement_timeout"), ("database", "connect_timeout")]
    return _Contradiction(("supervisor",), text, [("supervisor", "hang_timeout")], others)


def _problem(settings: Settings, found: _Contradiction) -> Problem | None:
    """Return the problem, unless it is one of [worker] that the flow only inherits."""
    if found.prefix[0] == "flows" and not any(path in settings.origins for path in found.own):
        return None
    places = settings.places([*found.own, *found.others])
    name = ".".join(one_line(part, 60) for part in found.prefix)
    return Problem("E106", f"[{name}] {found.text}", places[0] if places else None)
