"""
A real Patroni: three machines with a member of etcd, Patroni and PostgreSQL each.

    with PatroniCluster() as cluster:
        leader = cluster.leader()
        leader.kill()
        cluster.new_leader(leader)
        leader.start()

Its configuration is that of docs/operate/high-availability.md, with addresses of the loopback
network, other ports, and times so short that a test need not wait. The programs are Debian's.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import tomllib
import urllib.request
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg

from pgflowd.db.connection import connect
from pgflowd.embedded.directory_users import postmaster
from pgflowd.embedded.postgres import account_for
from pgflowd.errors import PgflowdError
from pgflowd.host.process_tree import descendants
from pgflowd.testing import plugin
from pgflowd.testing.until import until
from support.pages import blocks_of
from support.postgres_versions import binaries_with_jit
from support.servers import free_port

PAGE = "docs/operate/high-availability.md"
PROGRAMS = ("etcd", "patroni", "patronictl")
PORTS = (5432, 8008, 2379, 2380)
SHORT = {
    "ttl: 20": "ttl: 10",
    "loop_wait: 5": "loop_wait: 2",
    "retry_timeout: 5": "retry_timeout: 4",
    "local all all peer": "local all all trust",  # root may not be the server's user
}


class PatroniCluster:
    """Three machines, of which one is the leader."""

    def __init__(self) -> None:
        missing = [program for program in PROGRAMS if not shutil.which(program)]
        assert not missing, f"this test needs {', '.join(missing)}; run `make peers`"
        above = plugin.MEMORY if plugin.has_room(plugin.MEMORY) else None
        self.directory = Path(tempfile.mkdtemp(prefix="pgflowd-patroni-", dir=above))
        self.directory.chmod(0o711)
        network = f"127.{random.randrange(1, 255)}.{random.randrange(256)}."
        self._words = {"10.0.0.": network, **{str(port): str(free_port()) for port in PORTS}}
        self.machines = [PatroniMachine(self, number) for number in (1, 2, 3)]

    def __enter__(self) -> PatroniCluster:
        try:
            for machine in self.machines:
                machine.start()
            until(self.is_whole, 60)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for machine in self.machines if error else []:
            error.add_note(f"{machine.name}:\n{machine.story()}")
        self.close()

    def close(self) -> None:
        for machine in self.machines:
            machine.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def here(self, text: str) -> str:
        """A text of the page, with the addresses and ports of this cluster."""
        for word, own in self._words.items():
            end = "" if word.endswith(".") else r"(?!\d)"
            text = re.sub(rf"(?<!\d){re.escape(word)}{end}", own, text)
        return text

    def database_section(self) -> dict[str, Any]:
        """The section of the page for the daemon's config."""
        return dict(tomllib.loads(self.here(blocks_of(PAGE, "toml")[0]))["database"])

    @property
    def url(self) -> str:
        return str(self.database_section()["url"])

    def leader(self) -> PatroniMachine | None:
        """The machine that says of itself that it is the primary and may write."""
        for machine in self.machines:
            if machine.ask("/primary").get("state") == "running":
                return machine
        return None

    def new_leader(self, old: PatroniMachine, within_s: float = 60) -> PatroniMachine:
        """Wait until another machine is the leader."""
        found = until(lambda: (seen := self.leader()) is not old and seen, within_s)
        assert isinstance(found, PatroniMachine)
        return found

    def switch_over(self) -> None:
        """Ask Patroni for another leader, until it finds that a standby is good enough."""
        command = ["patronictl", "-c", self.machines[0].config, "switchover", "--force"]

        def is_done() -> bool:
            asked = subprocess.run(command, capture_output=True, text=True, timeout=60)
            return "Successfully switched over" in asked.stdout

        until(is_done, 60)

    def is_whole(self) -> bool:
        """Whether both standbys follow the leader, and Patroni knows which may be promoted."""
        leader = self.leader()
        members = leader.ask("/cluster").get("members", []) if leader else []
        if sorted(member["role"] for member in members) != ["leader", "replica", "sync_standby"]:
            return False
        query = "select sync_state from pg_stat_replication where state = 'streaming' order by 1"
        try:
            with connect(self.url) as conn:
                return [state for (state,) in conn.execute(query)] == ["async", "sync"]
        except (PgflowdError, psycopg.Error):
            return False


class PatroniMachine:
    """One machine: a member of etcd, Patroni, and the PostgreSQL that it starts."""

    def __init__(self, cluster: PatroniCluster, number: int) -> None:
        self._cluster, self.name = cluster, f"pg{number}"
        self._own_words = {"pg1": self.name, "10.0.0.1:": f"10.0.0.{number}:"}
        self._home = cluster.directory / self.name
        self._data = self._home / "data"
        self._account = account_for(self._data)
        self._home.mkdir(mode=0o711)
        if self._account:
            os.chown(self._home, self._account.uid, self._account.gid)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.config = self._home / "config.yml"
        self.config.write_text(self._configuration())

    def _configuration(self) -> str:
        (text,) = blocks_of(PAGE, "yaml")
        places = {
            "/var/lib/postgresql/15/pgflow": str(self._data),
            "/usr/lib/postgresql/15/bin": str(binaries_with_jit()),
            "10.0.0.0/24": "127.0.0.0/8",
        }
        before, members, after = text.partition("  hosts: 10.0.0.1:2379")  # names all machines
        own = self._with(self._own_words, before) + members + self._with(self._own_words, after)
        text = self._with({**places, **SHORT}, own)
        home = self._home
        own = f"  pgpass: {home}/pgpass\n  parameters: {{unix_socket_directories: {home}}}\n"
        return self._cluster.here(text) + own

    def _environment(self) -> dict[str, str]:
        (text,) = blocks_of(PAGE, "sh")
        values = dict(line.split("=", 1) for line in text.splitlines())
        everybody = values.pop("ETCD_INITIAL_CLUSTER")
        values = {name: self._with(self._own_words, value) for name, value in values.items()}
        values["ETCD_DATA_DIR"] = str(self._home / "etcd")
        values["ETCD_INITIAL_CLUSTER"] = everybody
        return {name: self._cluster.here(value) for name, value in values.items()}

    @staticmethod
    def _with(words: dict[str, str], text: str) -> str:
        for word, other in words.items():
            text = text.replace(word, other)
        return text

    def start(self) -> None:
        """Switch the machine on."""
        self._processes = [
            self._run("etcd", "--unsafe-no-fsync", env=self._environment()),
            self._run("patroni", str(self.config), env={}),
        ]

    def _run(self, program: str, *arguments: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self._home / f"{program}.log").open("ab") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", program, *arguments],
                user=self._account.uid if self._account else None,
                group=self._account.gid if self._account else None,
                extra_groups=[] if self._account else None,
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )

    def pids(self, *, with_etcd: bool = True) -> set[int]:
        """All processes of the machine."""
        roots = {process.pid for process in self._processes[0 if with_etcd else 1 :]}
        if server := postmaster(self._data):
            roots.add(server)
        return roots | {child.pid for root in roots for child in descendants(root)}

    def kill(self) -> None:
        """Switch the machine off: no process of it has a chance to say so."""
        while pids := {pid for pid in self.pids() if _has_it(pid, signal.SIGKILL)}:
            for process in self._processes:
                if process.pid in pids:
                    process.wait(10)
            self._processes = []
            until(lambda pids=pids: not any(_has_it(pid, 0) for pid in pids), 10)

    def freeze(self) -> None:
        """Let Patroni and PostgreSQL stand still."""
        for pid in self.pids(with_etcd=False):
            _has_it(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self.pids(with_etcd=False):
            _has_it(pid, signal.SIGCONT)

    def story(self) -> str:
        """The end of Patroni's log."""
        lines = (self._home / "patroni.log").read_text(errors="replace").splitlines()
        return "\n".join(line[:300] for line in lines[-60:])

    def crash(self) -> None:
        """Kill PostgreSQL alone."""
        server = postmaster(self._data)
        assert server is not None
        os.kill(server, signal.SIGKILL)

    def ask(self, path: str) -> dict[str, Any]:
        """The answer of Patroni's API; nothing if it says no, or stands still."""
        (address,) = re.findall(r"connect_address: (\S+)", self.config.read_text())[:1]
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=1) as answer:
                return dict(json.load(answer))
        except (OSError, ValueError, HTTPException):
            return {}


def _has_it(pid: int, number: int) -> bool:
    """Send a signal; whether there was such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
