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
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from pgflowd.core.messages import Drain, Failed, QuickStop
from pgflowd.core.served import Served
from pgflowd.core.settings import Settings
from pgflowd.core.shape import Shape
from pgflowd.db import schema, workers
from pgflowd.db.connection import connect
from pgflowd.host.channel import Channel
from pgflowd.host.config_refs import read
from pgflowd.host.logs import Log
from pgflowd.host.zygote_line import Zygote, ZygoteLine, fork_zygote
from pgflowd.processes.worker_lines import limits_of
from pgflowd.processes.worker_runners import end_of
from pgflowd.processes.zygote import Brood
from pgflowd.processes.zygote import main as zygote_main


class Stopped(Exception):
    """Told to stop, or left alone, while it started."""


class CannotStart(Exception):
    """Trying again would not help."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.failed = Failed(code, text)


@dataclass(frozen=True)
class Hatched:
    """A zygote that is ready, and the definition of its flow."""

    zygote: Zygote
    shape: Shape

    @property
    def steps(self) -> frozenset[str]:
        return frozenset(step["slug"] for step in self.shape["steps"])


def hatch(channel: Channel, settings: Settings, log: Log, served: Served) -> Hatched:
    """Fork the zygote and let it import the flow. Raises CannotStart, Stopped."""
    worker = settings.worker_for(served.slug)
    brood = Brood(
        served, settings.pgflowd.python_path, worker.max_output_bytes, worker.oom_score_adj
    )
    zygote = _fork(brood)
    told = _first_words(zygote, channel, served)
    if told["say"] == "failed":
        _bury(zygote)
        raise CannotStart(told["code"], told["text"])
    for warning in told["warnings"]:
        log.warning("worker.warning", text=warning)
    if told["sockets"]:
        text = f"W222 importing {served.module} left {told['sockets']} sockets open; all runners "
        log.warning("worker.warning", code="W222", text=text + "would share one stream")
    if told["threads"]:
        names = ", ".join(told["threads"])
        text = f"W222 importing {served.module} started threads ({names}); each runner imports it"
        log.warning("worker.warning", code="W222", text=text + " by itself, which is slower")
        _bury(zygote)
        zygote = _fork(replace(brood, imports=False))
    return Hatched(zygote, told["shape"])


def _fork(brood: Brood) -> Zygote:
    def main(line: ZygoteLine) -> int:
        return zygote_main(line, brood)

    return fork_zygote(main, f"pgflowd: zygote {brood.served.slug}")


def _first_words(zygote: Zygote, channel: Channel, served: Served) -> dict[str, Any]:
    """Wait for the definition; an order to stop goes first."""
    while True:
        ready, _, _ = select.select([zygote.line, zygote.pidfd, channel], [], [])
        if zygote.line in ready and (told := zygote.line.receive()):
            return told.message
        if zygote.pidfd in ready:
            end = end_of(_bury(zygote))
            text = f"importing {served.module} ended its process: {end}"
            raise CannotStart("E210", text)
        if channel in ready:
            orders = channel.receive()
            if channel.at_end or any(isinstance(each, Drain | QuickStop) for each in orders):
                _bury(zygote)
                raise Stopped


def _bury(zygote: Zygote) -> int:
    """Kill a zygote that is not needed, and return its status."""
    if not select.select([zygote.pidfd], [], [], 0)[0]:
        os.kill(zygote.pid, signal.SIGKILL)
    status = os.waitpid(zygote.pid, 0)[1]
    zygote.line.close()
    os.close(zygote.pidfd)
    return status


def enter(settings: Settings, log: Log, served: Served, shape: Shape, worker_id: UUID) -> bool:
    """Check schema and definition, write the row; return whether the queue wakes us.

    Raises what the database says: Unreachable, or a DatabaseError that no repetition mends.
    """
    worker = settings.worker_for(served.slug)
    name = worker.worker_name or f"{settings.pgflowd.name}:{served.slug}"
    url = read(settings.database.url)
    with connect(url, name=name, limits=limits_of(settings)) as conn:
        schema.require(conn)
        for warning in workers.define(conn, served.slug, shape, settings.pgflowd.definitions):
            log.warning("worker.warning", code=warning.code, text=str(warning))
        workers.introduce(conn, worker_id, served.queue, name)
        return workers.is_watched(conn, served.queue)
