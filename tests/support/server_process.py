"""
A PostgreSQL that runs as long as its stdin is open, wherever this program is started.

    python server_process.py '{"directory": …, "options": {…}, "port": 5432, "copy_of": null}'

With `copy_of`, a connection string, it is a standby of that server. Once it answers it prints
where: its process, its port, its password, and a DSN on its socket, which no network cuts.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pgflowd.embedded import EmbeddedPostgres, wheel_binaries
from pgflowd.embedded.directory_users import postmaster
from pgflowd.embedded.postgres import Account, account_for, home_for, reachable, run_as


def main(directory: str, options: dict[str, str], port: int, copy_of: str | None) -> None:
    place = Path(directory)
    if copy_of:
        standby(place, options, port, copy_of)
        return
    with EmbeddedPostgres(place, options=options, port=port) as server:
        password = (place.resolve() / "password").read_text().strip()
        report(server.pid, server.port, password, server.dsn)


def standby(place: Path, options: dict[str, str], port: int, copy_of: str) -> None:
    """Copy the other server and follow it."""
    account = account_for(place / "server/data")
    home = home_for(place, account)
    data = home / "server/data"
    make_room(data.parent, account)
    programs = reachable(wheel_binaries(), account)
    copy = ["pg_basebackup", "-D", data, "-d", copy_of, "-R", "-c", "fast", "--no-sync"]
    done(account, programs, *copy)
    chosen = {"unix_socket_directories": str(home / "server"), "port": str(port), **options}
    flags = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in chosen.items())
    done(
        account,
        programs,
        "pg_ctl",
        "start",
        "-w",
        "-D",
        data,
        "-l",
        home / "server/log",
        "-o",
        flags,
    )
    try:
        dsn = f"postgresql://postgres@/postgres?host={quote(str(home / 'server'), safe='')}"
        report(postmaster(data) or 0, port, "", f"{dsn}&port={port}")
    finally:
        if postmaster(data):
            done(account, programs, "pg_ctl", "stop", "-m", "immediate", "-D", data)


def make_room(directory: Path, account: Account | None) -> None:
    directory.mkdir(mode=0o700)
    if account:
        os.chown(directory, account.uid, account.gid)


def done(account: Account | None, programs: Path, program: str, *arguments: Any) -> None:
    ended = run_as(account, [str(programs / program), *map(str, arguments)])
    if ended.returncode != 0:
        sys.exit(f"{program}: {ended.stdout}")


def report(pid: int, port: int, password: str, dsn: str) -> None:
    """Print where the server is, and wait for the end."""
    print(json.dumps({"pid": pid, "port": port, "password": password, "dsn": dsn}), flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
