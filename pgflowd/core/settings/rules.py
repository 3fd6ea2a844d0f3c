"""
Checks keys against each other, and against the served flows and the path of the socket.

`contradictions` compares keys with each other (E106), for [worker] and for each flow that
overrides one of them. An address that other machines reach needs a token; who reaches the dashboard
must be asked who he is (E501), a way to log in needs what it reads, and networks have no bits of a
host (E105). A daemon that is about to serve also checks `missing_flows` (E111), `unserved` (E108)
and `socket_too_long` (E112). Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from pgflowd.core.redact import one_line
from pgflowd.core.settings.keys import KeyPath
from pgflowd.core.settings.sections import Settings, WorkerSettings
from pgflowd.core.settings.values import format_duration
from pgflowd.core.text import nearest
from pgflowd.errors import Problem

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
    for code, key, text, remedy in _of_web(settings):
        yield _Contradiction(("web",), (key,), text, code=code, next=remedy)


def _ordered(section: KeyPath, values: object, stem: str) -> Iterator[_Contradiction]:
    low, high = (getattr(values, f"{stem}_{end}_s") for end in ("min", "max"))
    if low > high:
        lowest, highest = format_duration(low), format_duration(high)
        text = f"{stem}_min ({lowest}) is more than {stem}_max ({highest})"
        yield _Contradiction(section, (f"{stem}_min", f"{stem}_max"), text)


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
        others = (("recovery", "lease"),)
        yield _Contradiction(section, ("heartbeat_interval",), text, others)
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


def _of_web(settings: Settings) -> Iterator[tuple[str, str, str, str]]:
    """The code, the key, what is wrong with it, and what to do."""
    web = settings.web
    if web.auth in ("key", "none") and not web.address.is_local:
        text = f'listen = {web.listen} is reached by others, and auth = "{web.auth}" is for'
        remedy = 'listen on 127.0.0.1 or unix:PATH, or set auth = "password" or "proxy"'
        yield "E501", "listen", f"{text} this machine", remedy
    if web.auth == "password" and not web.users:
        remedy = 'write users = "/etc/pgflowd/users", then `pgflowd web passwd NAME`'
        yield "E106", "auth", 'auth = "password" needs users', remedy
    if web.auth == "proxy" and not web.trusted_proxies:
        remedy = 'write trusted_proxies = ["127.0.0.1"], the address that the proxy comes from'
        yield "E106", "auth", 'auth = "proxy" needs trusted_proxies', remedy
    for each in web.trusted_proxies:
        try:
            ipaddress.ip_network("::" if each == UNIX else each)
        except ValueError:
            text = f"trusted_proxies has {one_line(each, 60)}, which is not an address"
            yield "E105", "trusted_proxies", text, 'write for example "10.0.0.7", "10.0.0.0/24"'


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
