"""
The faults: each takes the environment and breaks something in it, for a while if it does not heal.

    weight, name, fault(environment, place) -> what was done, or "" if there was nothing to break
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import chaos_attacks
import chaos_messages
import chaos_versions
import chaos_wide
import psycopg
from chaos_environment import KINDS, ROOM, Environment, Place, signalled

Fault = Callable[[Environment, Place], str]


def kill(environment: Environment, place: Place) -> str:
    """kill -9 of one process, or of some at once."""
    done = []
    for _ in range(environment.chance.choice((1, 1, 1, 2, 5))):
        kind = environment.chance.choice((*KINDS, "runner", "worker", "supervisor"))
        found = place.processes(kind)
        if found and signalled(victim := environment.chance.choice(found), signal.SIGKILL):
            place.killed = place.killed or kind == "supervisor"
            place.hurt = place.hurt or kind in ("listener", "sweeper")
            done.append(f"{kind} {victim.pid}")
    return ", ".join(done)


def freeze(environment: Environment, place: Place) -> str:
    """kill -STOP of one process, for less or more than its lease."""
    kind = environment.chance.choice((*KINDS, "worker", "supervisor"))
    seconds = environment.chance.choice((0.3, 1.5, 4, 10))
    if not (found := place.processes(kind)):
        return ""
    victim = environment.chance.choice(found)
    environment.freeze(place, victim, seconds)
    place.hurt = place.hurt or kind in ("listener", "sweeper")
    return f"{kind} {victim.pid} for {seconds} s"


def line(environment: Environment, place: Place) -> str:
    """The connection is cut, half-closed, stalls, loses answers, or is refused."""
    mode = environment.chance.choice(("cut", "half", "hold", "mute", "refuse"))
    seconds = environment.chance.choice((0.2, 1, 3, 7))
    environment.misbehave(place, mode, seconds)
    return f"{mode} for {seconds} s"


def sessions(environment: Environment, place: Place) -> str:
    """Some sessions of daemons are terminated, or their queries cancelled."""
    how = environment.chance.choice(("terminate", "terminate", "cancel"))
    part = environment.chance.choice((0.1, 0.5, 1))
    query = f"""
        select count(pg_{how}_backend(pid)) from pg_stat_activity
         where datname = 'chaos' and application_name <> 'chaos' and random() < %s
    """
    row = environment.conn().execute(query.encode(), (part,)).fetchone()
    assert row is not None
    return f"{how} {row[0]}"


def restart(environment: Environment, place: Place) -> str:
    """PostgreSQL is stopped in immediate or fast mode, or one of its processes is killed."""
    how = environment.chance.choice(("immediate", "immediate", "fast", "a session is killed"))
    if how == "a session is killed":
        return how if environment.crash_server() else ""
    number = signal.SIGINT if how == "fast" else signal.SIGQUIT
    seconds = environment.chance.choice((0, 0.5, 3))
    environment.restart_server(number, seconds)
    return f"{how}, down for {seconds} s"


def disk_full(environment: Environment, place: Place) -> str:
    """Not a page more for tables and indexes: 53100."""
    if environment.disk is None or not environment.resize(str(used(environment.disk))):
        return ""
    seconds = environment.chance.choice((0.5, 2, 5))

    def room_again() -> None:
        if not environment.resize(ROOM):
            environment.troubles.append("the disk could not be made larger again")

    environment.hold_up_all(seconds, room_again)
    return f"for {seconds} s"


def used(disk: Path) -> int:
    """How much of a file system is used, in bytes."""
    state = os.statvfs(disk)
    return (state.f_blocks - state.f_bfree) * state.f_frsize


def clock(environment: Environment, place: Place) -> str:
    """The wall clock of a daemon jumps."""
    seconds = environment.chance.choice((-3600, -5, 5, 3600, 86400 * 400, 0))
    place.clock.write_text(str(seconds))
    return f"by {seconds} s"


def reload(environment: Environment, place: Place) -> str:
    """A storm of SIGHUP, with a config that was broken or changed meanwhile."""
    if not place.listens():
        return ""
    good = place.daemon.config.read_text()
    how = environment.chance.choice(("same", "broken", "changed"))
    count = environment.chance.choice((1, 5, 20))
    if how == "broken":
        place.daemon.config.write_text(good + "\n[nonsense\n")
        environment.later(0.5, lambda: place.rewrite_config(good))
    elif how == "changed":
        concurrency = environment.chance.randrange(1, 5)
        place.setup.config(place.name, **place.profile(max_concurrency=concurrency))
    for _ in range(count):
        for seen in place.processes("supervisor"):
            signalled(seen, signal.SIGHUP)
    return f"{how}, {count} times"


def drain(environment: Environment, place: Place) -> str:
    """SIGTERM, and a second one or SIGQUIT for the impatient; then the daemon starts again."""
    if not place.listens():
        return ""
    numbers = environment.chance.choice(
        ((signal.SIGTERM,), (signal.SIGTERM,), (signal.SIGTERM, signal.SIGTERM), (signal.SIGQUIT,))
    )
    place.asked_to_end = True
    for number in numbers:
        for seen in place.processes("supervisor"):
            signalled(seen, number)
    return " ".join(number.name for number in numbers)


def locks(environment: Environment, place: Place) -> str:
    """Another session locks a table for a while."""
    table = environment.chance.choice(
        ("pgflow.runs", "pgflow.step_tasks", "pgflow.workers", "pgflowd.attempts", "pgmq.q_maps")
    )
    seconds = environment.chance.choice((0.5, 2))
    holder = psycopg.connect(environment.dsn, application_name="chaos")
    try:
        holder.execute("set lock_timeout = '1s'")
        holder.execute(f"lock table {table} in access exclusive mode".encode())
    except psycopg.Error:
        holder.close()
        return ""

    environment.hold_up_all(seconds, holder.close)
    return f"{table} for {seconds} s"


def retry(environment: Environment, place: Place) -> str:
    """Failed runs are retried while siblings still run, open ones are cancelled and retried."""
    query = """
        with run as (
          select run_id, status from pgflow.runs
           where status = %s and run_id not in (
             select run_id from pgflowd.runs where coalesce(undo_state, undo_of::text) is not null)
           order by started_at desc limit %s
        ), remembered as (
          insert into chaos_retried select run_id from run
        ), called as (
          insert into chaos_verbs
          select run.run_id, one.verb
            from run cross join lateral unnest(array[
              'retry', case status when 'started' then 'cancel' end]) as one (verb)
           where one.verb is not null)
        select count(case status when 'started' then pgflowd.cancel(run_id, 'chaos', 'chaos') end),
               count(pgflowd.retry(run_id, 'chaos', true))
          from run
    """
    chance = environment.chance
    params = chance.choice(("started", "failed")), chance.choice((1, 3))
    row = environment.conn().execute(query.encode(), params).fetchone()
    assert row is not None
    return f"{row[1]} runs, {row[0]} of them cancelled before" if row[1] else ""


def prune(environment: Environment, place: Place) -> str:
    """What ended a moment ago is deleted, by a session that is cut short at times."""
    limit_ms, keep_failed = (
        environment.chance.choice((0, 0, 5, 30)),
        environment.chance.random() < 0.3,
    )
    with environment.conn().transaction() as running:
        running.connection.execute(f"set local statement_timeout = {limit_ms}".encode())
        query = "select pgflowd.prune('4 s', keep_failed => %s, max_runs => 300)"
        row = running.connection.execute(query.encode(), (keep_failed,)).fetchone()
    assert row is not None
    return f"{row[0]} runs" if row[0] else ""


def messages(environment: Environment, place: Place) -> str:
    """Somebody deletes messages of tasks, whether they have a worker or wait for one; at times
    processes die, too. Which they were is written down (chaos_messages)."""
    conn, chance = environment.conn(), environment.chance
    query = "select relname from pg_class where relnamespace = 'pgmq'::regnamespace"
    names = conn.execute(f"{query} and relkind = 'r' and relname like 'q\\_%' order by 1".encode())
    queue = chance.choice([name for (name,) in names.fetchall()])
    gone = conn.execute(chaos_messages.TAKE.format(queue=queue).encode()).rowcount
    died = kill(environment, place) if gone and chance.random() < 0.5 else ""
    return f"{gone} of {queue}; {died}" if gone else ""


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
    (6, "change", chaos_versions.change),
    (4, "retry", retry),
    (3, "prune", prune),
    (3, "attack", chaos_attacks.attack),
    (2, "messages", messages),
    (2, "wide runs", chaos_wide.wide),
]
