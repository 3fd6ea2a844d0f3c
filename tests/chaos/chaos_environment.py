"""
The environment of the chaos: one PostgreSQL, several daemons with a proxy each, and runs.

`later` schedules the repair of a fault; `mend` does the repairs that are due, or all of them. Each
freeze and each broken connection is a window, kept with its daemon: in it, and only in it, two
executions of a task may overlap (G3).
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chaos_changing
import chaos_rights
import psycopg
from psycopg import sql
from support import web
from support.daemon import Daemon, DaemonSetup, is_gone
from support.proxy import ProxyProcess

from pgflowd.db import schema
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.host.process_tree import ProcessStat, all_processes, command_line, read_stat
from pgflowd.testing.plugin import MEMORY, has_room
from pgflowd.testing.until import until

HERE = Path(__file__).parent
OPTIONS = {"max_wal_size": "128MB", "max_connections": "200", "log_min_messages": "warning"}
LEASE_S = 3  # shorter than some freezes, and longer than a busy machine lets a worker wait
PROFILE: dict[str, dict[str, Any]] = {
    "database": {"statement_timeout": "4s", "startup_wait": "1h"},
    "worker": {
        "max_concurrency": 3,
        "max_restarts": 100000,
        "backoff_max": "500ms",
        "notify_fallback": "5s",
        "sleep_after": "500ms",
        "max_tasks_per_runner": 50,
    },
    "supervisor": {
        "max_restarts": 100000,
        "backoff_min": "10ms",
        "backoff_max": "500ms",
        "hang_timeout": "8s",
    },
    "recovery": {"lease": f"{LEASE_S}s"},
    "flows.shared": {"max_concurrency": 16, "tasks_per_runner": 8},
    "flows.drowsy": {"max_concurrency": 16, "tasks_per_runner": 8},
    "logging": {"level": "info"},
}
CAPABLE = "d0"  # the daemon whose workers have caps
VERSIONING = "d1"  # the one whose workers make versions of changed shapes
KINDS = ("listener", "worker", "zygote", "runner", "sweeper", "http")
ROOM = "4g"  # on the small disk, while it is not full
OPEN_RUNS = 30  # at a time

TABLES = """
create table chaos_rows (run_id uuid, step_slug text, task_index int, token bigint, what text,
  value float8);
create table chaos_retried (run_id uuid);
create table chaos_verbs (run_id uuid, verb text);
create table chaos_pruned (run_id uuid, status text);
create table chaos_gone_signals (signal_id bigint);
create table chaos_taken (run_id uuid, step_slug text, task_index int, queue text, msg_id bigint);
create function chaos_slowly() returns trigger language plpgsql as
$$ begin perform pg_sleep(0.04); return new; end $$;
create function chaos_remember() returns trigger language plpgsql set search_path = public as $$
begin
  if tg_relid = 'pgflow.runs'::regclass then
    insert into chaos_pruned values (old.run_id, old.status);
    delete from chaos_rows where run_id = old.run_id;
  else
    insert into chaos_gone_signals values (old.signal_id);
  end if;
  return null;
end $$;
create trigger chaos_remember after delete on pgflow.runs
  for each row execute function chaos_remember();
create trigger chaos_remember after delete on pgflowd.signals
  for each row execute function chaos_remember()
"""
SIGNAL = """
select pgflowd.signal(run.run_id, 'go', to_jsonb(gen_random_uuid()))
  from (select run_id from pgflow.runs where status = 'started' and flow_slug = 'waiting'
         order by random() limit 1) as run
"""
OPEN = """
select (select count(*) from pgflow.runs where status = 'started' and flow_slug <> %(but)s)
       + (select count(*) from pgflowd.runs where flow_slug <> %(but)s
             and (state = 'planned' or undo_state in ('wanted', 'undoing')))
"""

Given = Callable[[random.Random], Any]
RUNS: dict[str, tuple[float, str, Given]] = {  # how often, how it must end, its input
    "chain": (6, "completed", lambda chance: {"s": chance.random(), "n": chance.randrange(100)}),
    "Maps": (4, "completed", lambda chance: {"n": chance.choice((0, 1, 3, 20))}),
    "doomed": (2, "failed", lambda chance: {"s": chance.random()}),
    "unlucky": (3, "completed", lambda chance: list(range(chance.randrange(8)))),
    "shared": (3, "completed", lambda chance: list(range(chance.randrange(24)))),
    "waiting": (5, "completed", lambda chance: {"s": chance.random(), "n": chance.randrange(4)}),
    "drowsy": (2, "completed", lambda chance: list(range(chance.randrange(12)))),
    "gated": (4, "completed", lambda chance: [chance.randrange(3) for _ in range(6)]),
    "single": (4, "completed", lambda chance: {"s": chance.random() / 5}),
    "parents": (2, "completed", lambda chance: {"n": chance.randrange(5)}),
    "ticking": (0, "completed", lambda chance: {}),  # started by its schedules
    "saga": (3, "failed", lambda chance: {"s": chance.random(), "n": chance.randrange(5)}),
    "changing": (5, "completed", lambda chance: {}),
    "late": (1, "completed", lambda chance: {}),
    "forks": (1, "completed", lambda chance: {}),
    "floods": (0.3, "completed", lambda chance: {}),
    "wide": (0, "completed", lambda chance: []),  # started many at once, by a fault
}
WISHES: dict[str, Given] = {  # of their starts: after how many seconds, and runs, and a key
    "single": lambda chance: (chance.choice([None, chance.random()]), 0, f"{chance.randrange(3)}"),
    "chain": lambda chance: (chance.choice([None, None, chance.random()]),
                             chance.choice([0, 0, 1, 3]), None),
    "changing": lambda chance: (chance.choice([None, 0, chance.random()]), 0, None),
}  # fmt: skip
START = """
select pgflowd.start(%s, %s::jsonb, %s, clock_timestamp() + make_interval(secs => %s),
                     singleton_key => %s, after => %s::uuid[], after_mode => 'ended',
                     labels => jsonb_build_object('after', %s::text))
"""


def now() -> float:
    """Time as the ledger has it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Window:
    """When something stood still, and of which daemon: "" of all."""

    daemon: str
    began: float
    ended: float


class Place:
    """One daemon's place: it is started there again when it has ended."""

    def __init__(self, environment: Environment, name: str) -> None:
        self.name = name
        self.proxy = ProxyProcess(environment.dsn)
        directory = environment.directory / name
        directory.mkdir(mode=0o700)
        self.setup = DaemonSetup(directory, self.proxy.dsn)
        self.setup.entries.append("chaos_flows")
        self.clock = directory / "clock"
        self.address = directory / "http.sock"
        definitions = "version" if name == VERSIONING else "create"
        path = [str(HERE), str(HERE.parent), str(directory)]
        self.own: dict[str, dict[str, Any]] = {
            "http": {"listen": f"unix:{self.address}"},
            "pgflowd": {"python_path": path, "definitions": definitions},
        }
        self.has_state(0)
        self.setup.environ |= {
            "CHAOS_DAEMON": name,
            "CHAOS_LEDGER": str(environment.ledger),
            "CHAOS_SLEEP": environment.sleep,
            "CHAOS_CLOCK": str(self.clock),
            "PYTHONPATH": os.pathsep.join([str(HERE / "clock"), os.environ.get("PYTHONPATH", "")]),
        }
        self.asked_to_end = self.killed = self.hurt = False
        self.daemon: Daemon = self.start()

    def start(self) -> Daemon:
        self.asked_to_end = self.killed = self.hurt = False
        self.daemon = self.setup.start(self.name, **self.profile())
        return self.daemon

    def profile(self, **worker: Any) -> dict[str, Any]:
        """Its settings, with these of its workers."""
        caps = {"caps": ["80gb", "gpu"]} if self.name == CAPABLE else {}
        return {**PROFILE, "worker": {**PROFILE["worker"], **caps, **worker}, **self.own}

    def has_state(self, number: int) -> None:
        """From its next start or reload on the daemon has this state of the flow that changes."""
        self.setup.module("changing_now", chaos_changing.MODULE.format(number))

    def listens(self) -> bool:
        """Whether its supervisor handles signals yet: a program that is being loaded does not."""
        with self.daemon.log.open(errors="replace") as log:
            return "supervisor.started" in log.read(8192)

    def is_ready(self) -> bool:
        """Whether its health check says so; its observer is killed and frozen, too."""
        return web.status_of(str(self.address), "/readyz") == 200

    def rewrite_config(self, text: str) -> None:
        self.daemon.config.write_text(text)

    def processes(self, kind: str) -> list[ProcessStat]:
        """The living processes of a kind."""
        if kind == "supervisor":
            seen = read_stat(self.daemon.pid)
            return [seen] if seen and not seen.is_zombie else []
        family = self.daemon.family()
        return [seen for seen in family if f": {kind}" in command_line(seen.pid)]


class Environment:
    """Server, daemons, proxies and runs. `say` writes the story down."""

    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        self._seed, self._taken = seed, 0
        self.chance = self.luck_of_runs = random.Random(seed)
        room = MEMORY if has_room(MEMORY) else Path(tempfile.gettempdir())
        self.directory = Path(tempfile.mkdtemp(prefix="pgflowd-chaos-", dir=room))
        self.directory.chmod(0o711)
        self.ledger = self.directory / "ledger"
        self.sleep = f"86399.{os.getpid()}"
        self.began = now()
        self.windows: list[Window] = []
        self.acknowledged: dict[str, str] = {}  # runs whose start was committed: their flow
        self.in_doubt: dict[str, str] = {}
        self.signalled: set[int] = set()  # signals whose sending was acknowledged
        self.tuned = [0]  # values of an option, unset at first: the first holds, or one in doubt
        self.living: dict[str, str] = {}  # daemons that are asked to end at last: names by ids
        self.troubles: list[str] = []
        self.done: dict[str, int] = {}  # faults, counted
        self.rights: set[str] = set()  # those of all users, before anything happens
        self._verbose, self._last_logged = verbose, ""
        self._story = (self.directory / "story").open("w")
        self._order = itertools.count()
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._conn: psycopg.Connection[Any] | None = None
        self._next_start = self._next_signal = 0.0
        self.disk: Path | None = None
        self.places: list[Place] = []
        self._start_server()

    def create(self, daemons: int) -> None:
        """Make the database, and start the daemons."""
        self.disk = self._small_disk()
        self._make_database()
        for number in range(daemons):
            self.places.append(Place(self, f"d{number}"))
        for place in self.places:
            place.daemon.until("supervisor.ready", within_s=60)

    def take_chance(self) -> None:
        """Another generator for each fault, so that the seed alone decides it."""
        self._taken += 1
        self.chance = random.Random(f"{self._seed} {self._taken}")

    def close(self, *, keep: bool) -> None:
        for place in self.places:
            place.setup.close()
            place.proxy.close()
        self.drop_line()
        with contextlib.suppress(Exception):
            self.server.__exit__(None, None, None)
        for seen in self.leftovers():
            os.kill(seen.pid, signal.SIGKILL)
        if self.disk:
            subprocess.run(["umount", "--lazy", self.disk], check=False)
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def note(self, text: str) -> None:
        line = f"{now() - self.began:7.2f} {text}\n"
        self._story.write(line)
        self._story.flush()
        if self._verbose:
            os.write(1, line.encode())

    def _note_once(self, text: str) -> None:
        if text != self._last_logged:
            self._last_logged = text
            self.note(text)

    # the database

    @property
    def dsn(self) -> str:
        return self.server.dsn_for("chaos")

    def conn(self) -> psycopg.Connection[Any]:
        """A direct connection of the test."""
        if self._conn is None or self._conn.closed:
            self._conn = psycopg.connect(self.dsn, autocommit=True, connect_timeout=5)
            self._conn.execute("set application_name = 'chaos'")
            self._conn.execute("set statement_timeout = '20s'; set lock_timeout = '500ms'")
        return self._conn

    def drop_line(self) -> None:
        if self._conn is not None:
            with contextlib.suppress(psycopg.Error):
                self._conn.close()
            self._conn = None

    def _small_disk(self) -> Path | None:
        """A file system of its own for the database, which can be made too small; root only."""
        disk = self.directory / "disk"
        disk.mkdir()
        owner = look_owner(self.directory / "server")
        given = f"size={ROOM},mode=0700,uid={owner[0]},gid={owner[1]}"
        mount = ["mount", "-t", "tmpfs", "-o", given, "tmpfs", str(disk)]
        done = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
        return disk if done else None

    def resize(self, size: str) -> bool:
        """Make the small disk as large as this."""
        resize = ["mount", "-o", f"remount,size={size}", str(self.disk)]
        return subprocess.run(resize, capture_output=True).returncode == 0

    def _make_database(self) -> None:
        with psycopg.connect(self.server.dsn, autocommit=True) as conn:
            where = sql.SQL("")
            if self.disk:
                make = sql.SQL("create tablespace small location {}")
                conn.execute(make.format(str(self.disk)))
                where = sql.SQL("tablespace small")
            conn.execute(sql.SQL("create database chaos {}").format(where))
        schema.migrate(self.conn())
        self.conn().execute(TABLES)
        chaos_rights.prepare(self.conn())
        self.rights = chaos_rights.rights(self.conn())
        self.conn().execute("select pgflowd.set_setting('crash_limit', '1000', 'its start')")

    def restart_server(self, number: int, down_s: float) -> None:
        """Stop the server by a signal, and start it again after a while."""
        self.drop_line()
        if self.disk:
            self.resize(ROOM)  # recovery needs some
        began = now()
        signalled(self._postmaster, number)
        until(lambda: is_gone(self._postmaster), 30)
        rest(down_s)
        self.server.__exit__(None, None, None)
        self._start_server()
        self.windows.append(Window("", began, now() + 3))

    def look_after_server(self) -> None:
        """Start it again when it has given up: it cannot recover from a crash on a full disk."""
        if is_gone(self._postmaster):
            self.note("the server has ended by itself and is started again")
            self.restart_server(signal.SIGQUIT, 0)

    def _start_server(self) -> None:
        self.server = EmbeddedPostgres(self.directory / "server", options=OPTIONS)
        self.server.__enter__()
        postmaster = read_stat(self.server.pid)
        assert postmaster is not None
        self._postmaster = postmaster

    def crash_server(self) -> bool:
        """Kill a backend of a daemon; the server then restarts by itself."""
        query = """
            select pid from pg_stat_activity
             where datname = 'chaos' and application_name <> 'chaos' order by random() limit 1
        """
        row = self.conn().execute(query).fetchone()
        if row is None:
            return False
        self.drop_line()
        os.kill(row[0], signal.SIGKILL)
        self.hold_up_all(3, lambda: None)
        return True

    # runs

    def start_runs(self, open_runs: int = OPEN_RUNS) -> None:
        """Start some, while not too many are open; remember those that were acknowledged."""
        if time.monotonic() < self._next_start:
            return
        self._next_start = time.monotonic() + 0.1
        try:
            wanted = min(5, open_runs - self.count_open(but="wide"))
            for _ in range(wanted):
                self._start_run()
        except (psycopg.Error, OSError) as error:
            self._note_once(f"no run was started: {str(error).strip().splitlines()[0][:60]}")
            self.drop_line()

    def _start_run(self) -> None:
        slugs, luck = list(RUNS), self.luck_of_runs
        (slug,) = luck.choices(slugs, [RUNS[each][0] for each in slugs])
        run_id = str(uuid.UUID(int=luck.getrandbits(128), version=4))
        given = json.dumps(RUNS[slug][2](luck))
        self.in_doubt[run_id] = slug
        delay_s, awaited, key = WISHES[slug](luck) if slug in WISHES else (None, 0, None)
        latest = list(self.acknowledged)[-20:]
        after = luck.sample(latest, min(awaited, len(latest)))
        if delay_s is key is None and not after:
            query = "select pgflow.start_flow(%s, %s::jsonb, %s)"
            self.conn().execute(query, (slug, given, run_id))
        else:
            wishes = (slug, given, run_id, delay_s, key, after, ",".join(after))
            self.conn().execute(START, wishes)
        self.acknowledged[run_id] = self.in_doubt.pop(run_id)

    def send_signals(self) -> None:
        """Send one to a run that may wait for it; remember those that were acknowledged."""
        if time.monotonic() < self._next_signal:
            return
        self._next_signal = time.monotonic() + 0.1
        try:
            self.signalled.update(number for (number,) in self.conn().execute(SIGNAL))
        except (psycopg.Error, OSError) as error:
            self._note_once(f"no signal was sent: {str(error).strip().splitlines()[0][:60]}")
            self.drop_line()

    def count_open(self, but: str = "") -> int:
        """How many runs are open, but for those of this flow."""
        row = self.conn().execute(OPEN, {"but": but}).fetchone()
        assert row is not None
        return int(row[0])

    # faults and repairs

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._undo, (now() + seconds, next(self._order), action))

    def mend(self, *, all_of_it: bool = False) -> None:
        """Do the repairs that are due."""
        while self._undo and (all_of_it or self._undo[0][0] <= now()):
            heapq.heappop(self._undo)[2]()

    def freeze(self, place: Place, seen: ProcessStat, seconds: float) -> None:
        """Stop a process for a while."""
        began = now()
        if not signalled(seen, signal.SIGSTOP):
            return

        def thaw() -> None:
            signalled(seen, signal.SIGCONT)
            self.windows.append(Window(place.name, began, now() + 1))

        self.later(seconds, thaw)

    def misbehave(self, place: Place, mode: str, seconds: float) -> None:
        """Let the line between a daemon and the database misbehave for a while."""
        began = now()
        place.proxy.do(mode)

        def behave() -> None:
            place.proxy.do("pass")
            self.windows.append(Window(place.name, began, now() + 3))

        self.later(seconds, behave)

    def hold_up_all(self, seconds: float, release: Callable[[], object]) -> None:
        """The database does not answer, or refuses what each heartbeat needs, for a while."""
        began = now()

        def go_on() -> None:
            release()
            self.windows.append(Window("", began, now() + 3))

        self.later(seconds, go_on)

    def stood_still(self, since: float) -> None:
        """The whole machine had no time for us, and so not for the daemons."""
        self.note(f"nothing moved for {now() - since:.1f} s")
        self.windows.append(Window("", since - 1, now() + 1))

    def look_after_daemons(self) -> None:
        """Start ended daemons again; an end without a reason is trouble."""
        for place in self.places:
            code = place.daemon.process.poll()
            if code is None:
                continue
            # docs/background/supervision.md, rule 6
            unready = place.hurt and not place.daemon.events("supervisor.ready")
            expected = [-signal.SIGKILL] * place.killed + [0] * place.asked_to_end + [1] * unready
            if code not in expected:
                self.troubles.append(f"{place.name} ended by itself with {code}")
            if code == -signal.SIGKILL:
                self._clear_group()
            self.note(f"{place.name} has ended with {code} and is started again")
            place.start()

    def _clear_group(self) -> None:
        """Kill, as systemd does, what is left in the control group of a killed daemon: where all
        processes above a handler's daemon were killed at once, no other process can."""
        for seen in self.leftovers():
            if seen.parent == 1:
                self.note(f"{seen.pid} outlived all above it")
                signalled(seen, signal.SIGKILL)

    def leftovers(self) -> list[ProcessStat]:
        """Processes that handlers left behind and that still live."""
        mark = f"sleep {self.sleep}"
        return [seen for seen in all_processes() if command_line(seen.pid) == mark]


def signalled(seen: ProcessStat, number: int) -> bool:
    """Send a signal to this very process, if it still lives."""
    if is_gone(seen):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(seen.pid, number)
        return True
    return False


def rest(seconds: float) -> None:
    """Let a while pass: the length of a fault is time."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end, seconds + 60)


def look_owner(directory: Path) -> tuple[int, int]:
    """The user and group of the server."""
    status = (directory / "server" / "data").stat()
    return status.st_uid, status.st_gid
