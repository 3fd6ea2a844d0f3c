"""
Checks between keys, and checks that need to know more than the file: flows and sockets.

`contradictions` compares keys with each other (E106), for [worker] and for each flow that
overrides one of them. The others are for those who are about to serve: `missing_flows`
(E111), `unserved` (E108) and `socket_too_long` (E112). Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pgflowd.core.redact import one_line
from pgflowd.core.settings.sections import Settings, WorkerSettings
from pgflowd.core.settings.units import format_duration
from pgflowd.core.suggest import nearest
from pgflowd.errors import Problem

LONGEST_SOCKET_PATH = 107  # bytes; the kernel's sun_path without its NUL

Path = tuple[str, ...]

_ORDERED = {  # section: the stems of its …_min and …_max
    "database": ("reconnect",),
    "worker": ("poll", "backoff"),
    "supervisor": ("backoff",),
}


def contradictions(settings: Settings, broken: Collection[Path] = ()) -> list[Problem]:
    """Return what is wrong between keys, leaving out keys that are wrong in themselves."""
    found: list[Problem] = []
    for section, stems in _ORDERED.items():
        values = getattr(settings, section)
        for stem in stems:
            found += _ordered(settings, (section,), values, stem, broken)
    found += _lease(settings, ("worker",), settings.worker, broken)
    found += _patience(settings, broken)
    for slug in settings.flows:
        worker = settings.worker_for(slug)
        for stem in _ORDERED["worker"]:
            found += _ordered(settings, ("flows", slug), worker, stem, broken)
        found += _lease(settings, ("flows", slug), worker, broken)
    return found


def missing_flows(settings: Settings, place: str) -> list[Problem]:
    """Return E111 if nothing is to be served. `place` is the file, or those looked for."""
    if settings.pgflowd.flows:
        return []
    remedy = 'set flows = ["your_module"] in [pgflowd]'
    if not settings.file:
        remedy += ", or `pgflowd new NAME` writes a project"
    return [Problem("E111", "no flows are configured", place, remedy)]


def unserved(settings: Settings, served: Iterable[str]) -> list[Problem]:
    """Return E108 for each [flows.x] that is none of the served slugs."""
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
        text = f"[flows.{one_line(flow.slug, 60)}] is no served flow"
        found.append(Problem("E108", text, places[0] if places else None, remedy))
    return found


def socket_too_long(settings: Settings, path: str) -> list[Problem]:
    """Return E112 if the kernel would refuse the path of the control socket."""
    length = len(path.encode("utf-8", "surrogateescape"))
    if length <= LONGEST_SOCKET_PATH:
        return []
    text = (
        f"the path of the control socket has {length} bytes, and {LONGEST_SOCKET_PATH} are allowed"
    )
    place = settings.origin_of("supervisor", "control").place
    return [Problem("E112", text, place, "set control in [supervisor] to a shorter path")]


def _ordered(
    settings: Settings, prefix: Path, values: object, stem: str, broken: Collection[Path]
) -> list[Problem]:
    low, high = (getattr(values, f"{stem}_{end}_s") for end in ("min", "max"))
    if low <= high:
        return []
    text = f"{stem}_min ({format_duration(low)}) is more than {stem}_max ({format_duration(high)})"
    own = [(*prefix, f"{stem}_min"), (*prefix, f"{stem}_max")]
    inherited = [("worker", path[-1]) for path in own] if prefix[0] == "flows" else []
    return _problem(settings, prefix, text, own, inherited, broken)


def _lease(
    settings: Settings, prefix: Path, worker: WorkerSettings, broken: Collection[Path]
) -> list[Problem]:
    lease, beat = settings.recovery.lease_s, worker.heartbeat_interval_s
    if lease >= 3 * beat:
        return []
    text = (
        f"heartbeat_interval ({format_duration(beat)}) is more than a third of "
        f"[recovery] lease ({format_duration(lease)})"
    )
    own = [(*prefix, "heartbeat_interval")]
    others = [("recovery", "lease"), ("worker", "heartbeat_interval")]
    return _problem(settings, prefix, text, own, others, broken)


def _patience(settings: Settings, broken: Collection[Path]) -> list[Problem]:
    database, hang = settings.database, settings.supervisor.hang_timeout_s
    together = database.statement_timeout_s + database.connect_timeout_s
    if hang > together:
        return []
    text = (
        f"hang_timeout ({format_duration(hang)}) is not more than [database] statement_timeout "
        f"and connect_timeout together ({format_duration(together)})"
    )
    others = [("database", "statement_timeout"), ("database", "connect_timeout")]
    own = [("supervisor", "hang_timeout")]
    return _problem(settings, ("supervisor",), text, own, others, broken)


def _problem(
    settings: Settings,
    prefix: Path,
    text: str,
    own: Sequence[Path],
    others: Sequence[Path],
    broken: Collection[Path],
) -> list[Problem]:
    """Make the problem, unless a part of it is broken anyway, or it is [worker]'s and not
    this flow's."""
    if any(path in broken for path in [*own, *others]):
        return []
    if prefix[0] == "flows" and not any(path in settings.origins for path in own):
        return []
    places = settings.places([*own, *others])
    name = ".".join(one_line(part, 60) for part in prefix)
    return [Problem("E106", f"[{name}] {text}", places[0] if places else None)]
