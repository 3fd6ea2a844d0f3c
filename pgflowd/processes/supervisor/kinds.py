"""
The specifications and entry points of the supervisor's children.

A worker's fingerprint covers its flow and all settings that it depends on, so that a reload
replaces exactly the workers that would differ. The entry points are called in the forked child.
"""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable
from functools import partial
from types import FrameType

from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.reload import worker_id
from pgflowd.core.supervision.served_flow import ServedFlow
from pgflowd.core.supervision.tree import ChildSpec, Policy
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.host.signals import stacks
from pgflowd.processes import listener, sweeper
from pgflowd.processes.worker import main as worker


def policy_of(settings: Settings) -> Policy:
    supervisor = settings.supervisor
    return Policy(
        max_restarts=supervisor.max_restarts,
        max_period_s=supervisor.max_period_s,
        backoff_min_s=supervisor.backoff_min_s,
        backoff_max_s=supervisor.backoff_max_s,
        start_timeout_s=supervisor.start_timeout_s,
        hang_timeout_s=supervisor.hang_timeout_s,
        drain_timeout_s=supervisor.drain_timeout_s,
        startup_wait_s=settings.database.startup_wait_s,
    )


def root_specs(settings: Settings) -> list[ChildSpec]:
    """Return the specifications of listener and sweeper."""
    grace_s = settings.worker.kill_grace_s
    keys = [settings.worker, *(settings.worker_for(slug) for slug in sorted(settings.flows))]
    used = [(each.signal_strategy, each.notify_throttle_s, each.poll_max_s) for each in keys]
    depends_on = {
        "listener": (used, sorted(settings.flows)) if len(set(used)) > 1 else used[0],
        "sweeper": (settings.recovery, settings.worker.heartbeat_interval_s),
    }
    return [
        ChildSpec(id, id, fingerprint=_fingerprint(settings, depends_on[id]), kill_grace_s=grace_s)
        for id in ("listener", "sweeper")
    ]


def worker_spec(settings: Settings, flow: ServedFlow) -> ChildSpec:
    """Return the specification of a flow's worker."""
    keys = settings.worker_for(flow.slug)
    daemon = settings.pgflowd
    own = (daemon.name, daemon.python_path, daemon.definitions)
    depends_on = (flow, keys, own, settings.recovery.lease_s)
    return ChildSpec(
        worker_id(flow.slug),
        "worker",
        name=flow.slug,
        entry=flow.entry,
        fingerprint=_fingerprint(settings, depends_on),
        enabled=settings.is_enabled(flow.slug),
        max_restarts=keys.max_restarts,
        backoff_min_s=keys.backoff_min_s,
        backoff_max_s=keys.backoff_max_s,
        parked_retry_s=keys.parked_retry_s,
        kill_grace_s=keys.kill_grace_s,
    )


def _fingerprint(settings: Settings, depends_on: object) -> str:
    """Return a text that changes with the settings that a child depends on."""
    text = repr((depends_on, settings.database, settings.logging))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def entry_point(
    id: str, settings: Settings, log: Log, served: ServedFlow | None
) -> Callable[[Channel], int]:
    """Return the main function of a child."""
    if served is not None:
        own = log.bind(process="worker", flow=served.slug)
        return partial(_run_worker, settings=settings, log=own, served=served)
    main = {"listener": listener.main, "sweeper": sweeper.main}[id]
    return partial(_run, main=main, settings=settings, log=log.bind(process=id))


def _run(
    channel: Channel,
    *,
    main: Callable[[Channel, Settings, Log], int],
    settings: Settings,
    log: Log,
) -> int:
    _handle_dump_signal(log)
    return main(channel, settings, log)


def _run_worker(channel: Channel, *, settings: Settings, log: Log, served: ServedFlow) -> int:
    _handle_dump_signal(log)
    return worker.main(channel, settings, log, served)


def _handle_dump_signal(log: Log) -> None:
    """Let USR1, sent by the supervisor, write this child's stacks into the log."""

    def dump(number: int, frame: FrameType | None) -> None:
        for thread, stack in stacks().items():
            log.info("child.stack", thread=thread, stack=stack)

    signal.signal(signal.SIGUSR1, dump)
