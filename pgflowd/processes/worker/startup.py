"""
The worker's start: the flow imported by a zygote, the database looked at, the row written.

Two of its five steps run before there is an event loop: the zygote is forked while this
process has one thread and no connection. The others talk to the database in a helper thread,
so that an order to stop is obeyed at once even while nobody answers; nothing is forked any
more by then.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from pgflowd.core.definition.options import PATTERNS
from pgflowd.core.definition.shape import Shape
from pgflowd.core.messages import Drain, Failed, QuickStop
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.served_flow import ServedFlow
from pgflowd.db import schema, workers
from pgflowd.db.connection import connect, limits_of
from pgflowd.errors import Problem
from pgflowd.host.channel import Channel
from pgflowd.host.config_refs import read
from pgflowd.host.fork import count_streams
from pgflowd.processes.flow_loading import secret_variables
from pgflowd.processes.worker.runners import end_of
from pgflowd.processes.zygote.main import ZygoteOptions
from pgflowd.processes.zygote.main import main as zygote_main
from pgflowd.processes.zygote.socket import Zygote, ZygoteSocket, fork_zygote


class StoppedAtStart(Exception):
    """Told to stop, or left alone, while it started."""


class CannotStart(Exception):
    """Trying again would not help."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.failed = Failed(code, text)


@dataclass(frozen=True)
class LoadedFlow:
    """A zygote that is ready, and the definition of its flow."""

    zygote: Zygote
    shape: Shape
    warnings: tuple[Problem, ...] = ()

    @property
    def steps(self) -> frozenset[str]:
        return frozenset(step["slug"] for step in self.shape["steps"])

    @property
    def roots(self) -> frozenset[str]:
        return frozenset(each["slug"] for each in self.shape["steps"] if not each["dependencies"])

    @property
    def ends(self) -> frozenset[str]:
        """The steps with which a run may be over: only maps come after them, if anything, and
        these may be empty."""
        found: set[str] = set()
        for step in reversed(self.shape["steps"]):
            later = [each for each in self.shape["steps"] if step["slug"] in each["dependencies"]]
            if all(each["stepType"] == "map" and each["slug"] in found for each in later):
                found.add(step["slug"])
        return frozenset(found)

    @property
    def is_job(self) -> bool:
        return [step["stepType"] for step in self.shape["steps"]] == ["single"]

    @property
    def has_conditions(self) -> bool:
        steps = self.shape["steps"]
        return any(step[each.json_name]["defined"] for step in steps for each in PATTERNS)


@dataclass(frozen=True)
class Registration:
    """What the database said of flow and queue."""

    is_watched: bool  # whether an insert into the queue wakes us
    warnings: tuple[Problem, ...]


def load_flow_in_zygote(channel: Channel, settings: Settings, served: ServedFlow) -> LoadedFlow:
    """Fork the zygote and let it import the flow. Raises CannotStart, Stopped."""
    worker = settings.worker_for(served.slug)
    brood = ZygoteOptions(
        served,
        settings.pgflowd.python_path,
        secret_variables(settings),
        worker.max_output_bytes,
        worker.oom_score_adj,
        settings.pgflowd.name,
        settings.logging.level == "debug",
    )
    zygote = _fork(brood)
    told = _first_words(zygote, channel, served)
    if told["say"] == "failed":
        _bury(zygote)
        raise CannotStart(told["code"], told["text"])
    if told["threads"]:
        _bury(zygote)
        zygote = _fork(replace(brood, imports=False))
    return LoadedFlow(zygote, told["shape"], tuple(_warnings(told, served.module)))


def _warnings(told: dict[str, Any], module: str) -> Iterator[Problem]:
    for code, text, place in told["warnings"]:
        yield Problem(code, text, place)
    if told["threads"]:
        names = ", ".join(told["threads"])
        text = f"importing {module} started threads ({names}), so each runner imports it by itself"
        yield Problem("W222", text)
    elif told["streams"]:
        open_ = count_streams(told["streams"])
        yield Problem("W222", f"importing {module} left {open_} open, which all runners share")


def _fork(brood: ZygoteOptions) -> Zygote:
    def main(line: ZygoteSocket) -> int:
        return zygote_main(line, brood)

    return fork_zygote(main, f"{brood.name}: zygote {brood.served.slug}")


def _first_words(zygote: Zygote, channel: Channel, served: ServedFlow) -> dict[str, Any]:
    """Wait for the definition; an order to stop goes first."""
    while True:
        sources: list[Any] = [zygote.socket, zygote.pidfd, channel]
        ready, _, _ = select.select(sources, [], [])
        if zygote.socket in ready and (told := zygote.socket.receive()):
            return told.message
        if zygote.pidfd in ready:
            end = end_of(_bury(zygote))
            text = f"importing {served.module} ended its process: {end}"
            raise CannotStart("E210", text)
        if channel in ready:
            orders = channel.receive()
            if channel.at_end or any(isinstance(each, Drain | QuickStop) for each in orders):
                _bury(zygote)
                raise StoppedAtStart


def _bury(zygote: Zygote) -> int:
    """Kill a zygote that is not needed, and return its status."""
    if not select.select([zygote.pidfd], [], [], 0)[0]:
        os.kill(zygote.pid, signal.SIGKILL)
    status = os.waitpid(zygote.pid, 0)[1]
    zygote.socket.close()
    os.close(zygote.pidfd)
    return status


def register(settings: Settings, served: ServedFlow, shape: Shape, worker_id: UUID) -> Registration:
    """Check schema and definition, write the row.

    Raises what the database says: Unreachable, or a DatabaseError that no repetition mends.
    """
    worker, mode = settings.worker_for(served.slug), settings.pgflowd.definitions
    name = worker.worker_name or f"{settings.pgflowd.name}:{served.slug}"
    url = read(settings.database.url)
    with connect(url, name=name, limits=limits_of(settings.database)) as conn:
        schema.require(conn)
        warnings = workers.define(conn, served.slug, shape, mode)
        is_watched = workers.watch(conn, served.queue, may_write=mode != "verify")
        workers.introduce(conn, worker_id, served.queue, name)
    if not is_watched and worker.signal_strategy == "notify":
        text = f"queue {served.queue} has no trigger of ours: polling instead of notifications"
        remedy = f"run `pgflowd flows deploy {served.slug}` as the owner"
        warnings.append(Problem("W311", text, "database", remedy))
    return Registration(is_watched, tuple(warnings))
