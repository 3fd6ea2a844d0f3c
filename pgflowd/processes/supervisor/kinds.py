"""
The specifications and main functions of the supervisor's children.

A fingerprint covers all settings that a child depends on, so that a reload replaces exactly the
children that would differ. The main functions are called in the forked child.
"""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.kinds import (
    EXPORTER,
    HTTP,
    LISTENER,
    SINGLE_KINDS,
    SWEEPER,
    WORKER,
    ChildKind,
)
from pgflowd.core.supervision.tree import ChildSpec, Policy, ServedFlow
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.host.signals import stacks
from pgflowd.processes import exporter, http, listener
from pgflowd.processes.sweeper import main as sweeper
from pgflowd.processes.worker import main as worker

# called with channel, settings, log, and if it is a worker, its flow and its id if it has slept
MAINS: dict[ChildKind, Callable[..., int]] = {
    LISTENER: listener.main,
    WORKER: worker.main,
    SWEEPER: sweeper.main,
    HTTP: http.main,
    EXPORTER: exporter.main,
}


def policy_of(settings: Settings) -> Policy:
    return Policy(
        **vars(settings.supervisor),
        startup_wait_s=settings.database.startup_wait_s,
        max_connections=settings.database.max_connections,
    )


def single_specs(settings: Settings) -> list[ChildSpec]:
    """Return the specifications of all children that are not in a group. Delays are
    those of [worker], which observers have, too."""
    return [
        ChildSpec(
            kind,
            fingerprint=_fingerprint(settings, kind.depends_on(settings)),
            enabled=kind.is_wanted(settings),
            limits=settings.worker,
        )
        for kind in SINGLE_KINDS
    ]


def worker_spec(settings: Settings, flow: ServedFlow) -> ChildSpec:
    """Return the specification of a flow's worker."""
    keys = settings.worker_for(flow.name)
    daemon = settings.pgflowd
    telemetry = replace(settings.telemetry, service_name="", trace_url="")
    own = (daemon.name, daemon.python_path, daemon.definitions, telemetry)
    return ChildSpec(
        WORKER,
        name=flow.slug,
        entry=flow.entry,
        undoes=flow.undoes,
        fingerprint=_fingerprint(settings, (flow, keys, own, settings.recovery.lease_s)),
        enabled=settings.is_enabled(flow.name),
        limits=keys,
    )


def main_of(
    kind: ChildKind,
    settings: Settings,
    log: Log,
    served: ServedFlow | None,
    worker_id: str | None = None,
) -> Callable[[Channel], int]:
    """Return the main function of a child in the tree."""
    log = log.bind(process=kind.name, **({"flow": served.slug} if served else {}))

    def main(channel: Channel) -> int:
        log.begin_process()
        _handle_dump_signal(log)
        return MAINS[kind](channel, settings, log, *([served, worker_id] if served else []))

    return main


def _fingerprint(settings: Settings, depends_on: object) -> str:
    """Return a text that changes with the settings that a child depends on."""
    text = repr((depends_on, settings.database, settings.logging))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _handle_dump_signal(log: Log) -> None:
    """Let USR1, sent by the supervisor, write this child's stacks into the log."""

    def dump(number: int, frame: FrameType | None) -> None:
        for thread, stack in stacks().items():
            log.info("child.stack", thread=thread, stack=stack)

    signal.signal(signal.SIGUSR1, dump)
