"""
The faults: each takes the world and breaks something in it, for a while if it does not heal.

    weight, name, fault(world, place) -> what was done, or "" if there was nothing to break
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
from chaos_world import KINDS, PROFILE, ROOM, Place, World, signalled

Fault = Callable[[World, Place], str]


def kill(world: World, place: Place) -> str:
    """kill -9 of one process, or of some at once."""
    done = []
    for _ in range(world.chance.choice((1, 1, 1, 2, 5))):
        kind = world.chance.choice((*KINDS, "runner", "worker", "supervisor"))
        found = place.processes(kind)
        if found and signalled(victim := world.chance.choice(found), signal.SIGKILL):
            place.killed = place.killed or kind == "supervisor"
            place.hurt = place.hurt or kind in ("listener", "sweeper")
            done.append(f"{kind} {victim.pid}")
    return ", ".join(done)


def freeze(world: World, place: Place) -> str:
    """kill -STOP of one process, for less or more than its lease."""
    kind = world.chance.choice((*KINDS, "worker", "supervisor"))
    seconds = world.chance.choice((0.3, 1.5, 4, 10))
    if not (found := place.processes(kind)):
        return ""
    victim = world.chance.choice(found)
    world.freeze(place, victim, seconds)
    place.hurt = place.hurt or kind in ("listener", "sweeper")
    return f"{kind} {victim.pid} for {seconds} s"


def line(world: World, place: Place) -> str:
    """The line is cut, half-closed, stalls, loses answers, or nobody answers."""
    mode = world.chance.choice(("cut", "half", "hold", "mute", "refuse"))
    seconds = world.chance.choice((0.2, 1, 3, 7))
    world.misbehave(place, mode, seconds)
    return f"{mode} for {seconds} s"


def sessions(world: World, place: Place) -> str:
    """Some sessions of ours are terminated, or what they do is cancelled."""
    how = world.chance.choice(("terminate", "terminate", "cancel"))
    part = world.chance.choice((0.1, 0.5, 1))
    query = f"""
        select count(pg_{how}_backend(pid)) from pg_stat_activity
         where datname = 'chaos' and application_name <> 'chaos' and random() < %s
    """
    row = world.conn().execute(query.encode(), (part,)).fetchone()
    assert row is not None
    return f"{how} {row[0]}"


def restart(world: World, place: Place) -> str:
    """PostgreSQL is stopped in immediate or fast mode, or one of its processes is killed."""
    how = world.chance.choice(("immediate", "immediate", "fast", "a session is killed"))
    if how == "a session is killed":
        return how if world.crash_server() else ""
    number = signal.SIGINT if how == "fast" else signal.SIGQUIT
    seconds = world.chance.choice((0, 0.5, 3))
    world.restart_server(number, seconds)
    return f"{how}, down for {seconds} s"


def disk_full(world: World, place: Place) -> str:
    """Not a page more for tables and indexes: 53100."""
    if world.disk is None or not world.resize(str(used(world.disk))):
        return ""
    seconds = world.chance.choice((0.5, 2, 5))

    def room_again() -> None:
        if not world.resize(ROOM):
            world.troubles.append("the disk could not be made larger again")

    world.hold_up_all(seconds, room_again)
    return f"for {seconds} s"


def used(disk: Path) -> int:
    """How much of a file system is used, in bytes."""
    state = os.statvfs(disk)
    return (state.f_blocks - state.f_bfree) * state.f_frsize


def clock(world: World, place: Place) -> str:
    """The wall clock of a daemon jumps."""
    seconds = world.chance.choice((-3600, -5, 5, 3600, 86400 * 400, 0))
    place.clock.write_text(str(seconds))
    return f"by {seconds} s"


def reload(world: World, place: Place) -> str:
    """A storm of SIGHUP, with a config that was broken or changed meanwhile."""
    if not place.listens():
        return ""
    good = place.daemon.config.read_text()
    how = world.chance.choice(("same", "broken", "changed"))
    count = world.chance.choice((1, 5, 20))
    if how == "broken":
        place.daemon.config.write_text(good + "\n[nonsense\n")
        world.later(0.5, lambda: place.rewrite_config(good))
    elif how == "changed":
        worker = {**PROFILE["worker"], "max_concurrency": world.chance.randrange(1, 5)}
        place.house.config(place.name, **{**PROFILE, "worker": worker})
    for _ in range(count):
        for seen in place.processes("supervisor"):
            signalled(seen, signal.SIGHUP)
    return f"{how}, {count} times"


def drain(world: World, place: Place) -> str:
    """SIGTERM, and a second one or SIGQUIT for the impatient; then the daemon starts again."""
    if not place.listens():
        return ""
    numbers = world.chance.choice(
        ((signal.SIGTERM,), (signal.SIGTERM,), (signal.SIGTERM, signal.SIGTERM), (signal.SIGQUIT,))
    )
    place.asked_to_end = True
    for number in numbers:
        for seen in place.processes("supervisor"):
            signalled(seen, number)
    return " ".join(number.name for number in numbers)


def locks(world: World, place: Place) -> str:
    """Somebody locks a table for a while."""
    table = world.chance.choice(
        ("pgflow.runs", "pgflow.step_tasks", "pgflow.workers", "pgflowd.attempts", "pgmq.q_maps")
    )
    seconds = world.chance.choice((0.5, 2))
    holder = psycopg.connect(world.dsn, application_name="chaos")
    try:
        holder.execute("set lock_timeout = '1s'")
        holder.execute(f"lock table {table} in access exclusive mode".encode())
    except psycopg.Error:
        holder.close()
        return ""

    world.hold_up_all(seconds, holder.close)
    return f"{table} for {seconds} s"


FAULTS: list[tuple[int, str, Fault]] = [
    (8, "kill", kill),
    (5, "freeze", freeze),
    (5, "line", line),
    (3, "sessions", sessions),
    (1, "restart", restart),
    (2, "disk full", disk_full),
    (1, "clock", clock),
    (2, "reload", reload),
    (2, "drain", drain),
    (1, "locks", locks),
]
