"""
Reports our state to systemd, and feeds its watchdog.

Without a service manager nothing happens. The variables of the protocol are removed from the
environment when a Notifier is made, before any child starts, so no child can report in our name.
Nothing here waits: a message that finds no room is sent by the next `flush`.

The unit files in `systemd/` are shipped with the package. Here they get the path of our program.
For a user's own service manager they lose the settings that only the system's may use. Drop-ins are
installed only for a systemd that knows them. `examine_units` compares what is installed, for
`pgflowd doctor`.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import sdnotify  # type: ignore[import-untyped]

from pgflowd.core.finding import Finding, Section, error, ok, warning
from pgflowd.core.settings.sections import Settings
from pgflowd.core.settings.values import format_duration
from pgflowd.resources import shipped

MAX_UNSENT = 32  # older messages are out of date
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """The connection to the service manager."""

    def __init__(self) -> None:
        self._systemd: Any = None
        if os.environ.get("NOTIFY_SOCKET"):  # without one it opens a socket, and closes none
            self._systemd = sdnotify.SystemdNotifier()
        if self.is_heard:
            self._systemd.socket.setblocking(False)
            self._systemd.debug = True  # it raises an error for a message that it cannot send
        self._unsent: deque[str] = deque(maxlen=MAX_UNSENT)
        self.watchdog_s = _watchdog_s()
        for name in _VARIABLES:
            os.environ.pop(name, None)

    @property
    def is_heard(self) -> bool:
        """Whether there is a service manager."""
        return self._systemd is not None and self._systemd.socket is not None

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def reloading(self) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={status}")

    def alive(self) -> None:
        """Feed the watchdog."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Ask for more time to start, reload or stop."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def flush(self) -> None:
        """Send the messages that found no room before, in order."""
        while self._unsent:
            try:
                self._systemd.notify(self._unsent[0])
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()
                return
            self._unsent.popleft()

    def _send(self, *lines: str) -> None:
        if self.is_heard:
            self._unsent.append("\n".join(line.replace("\n", " ") for line in lines))
            self.flush()


def _watchdog_s() -> float | None:
    """Return the watchdog's interval, if it watches this process."""
    watched_pid = os.environ.get("WATCHDOG_PID")
    if watched_pid not in (None, "", str(os.getpid())):
        return None
    given = os.environ.get("WATCHDOG_USEC", "")
    return int(given) / 1e6 if given.isdecimal() and int(given) > 0 else None


WEB = "pgflowd-web.service"
UNITS = ("pgflowd.service", "pgflowd@.service", WEB)
DROP_INS = {"notify-reload.conf": 253, "restart-steps.conf": 254}  # the first systemd that knows it
SYSTEM = Path("/etc/systemd/system")
PACKAGED = Path("/usr/lib/systemd/system")  # where packages of the system have their units
RUNNING = Path("/run/systemd/system")  # exists if systemd runs this machine
TIMEOUT_S = 30.0  # of systemctl
SPARE_S = 5.0  # a supervisor that stops is silent for kill_grace and a little longer
USERADD = "useradd --system --no-create-home --shell /usr/sbin/nologin"

_NOT_FOR_USERS = re.compile(
    r"(User|After|Wants|AmbientCapabilities|CapabilityBoundingSet|DevicePolicy|Private\w+|"
    r"MemoryDenyWriteExecute|ProcSubset|Protect\w+|RemoveIPC|RestrictAddressFamilies|RestrictNamespaces|SystemCall\w+)="
)


@dataclass(frozen=True)
class UnitFile:
    """A unit file: its path, and the text it should have."""

    path: Path
    text: str

    @property
    def installed(self) -> str | None:
        try:
            return self.path.read_text(encoding="utf-8")
        except OSError:
            return None

    @property
    def is_same(self) -> bool:
        return self.installed == self.text

    def write(self) -> None:
        """Write the file, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.new")
        draft.write_text(self.text, encoding="utf-8")
        draft.chmod(0o644)
        draft.replace(self.path)


def unit_files(*, for_user: bool, environ: Mapping[str, str]) -> list[UnitFile]:
    """Return the files for this machine; where systemd is not installed there are no drop-ins."""
    version = systemd_version()
    directory = user_directory(environ) if for_user else system_directory()
    files = []
    for name in UNITS:
        text = (shipped("systemd") / name).read_text(encoding="utf-8")
        files.append(UnitFile(directory / name, _adapted(text, for_user)))
        for drop_in, since in DROP_INS.items():
            may_reload = name != WEB or drop_in != "notify-reload.conf"
            if version is not None and version >= since and may_reload:
                text = (shipped("systemd") / "drop-ins" / drop_in).read_text(encoding="utf-8")
                files.append(UnitFile(directory / f"{name}.d" / drop_in, text))
    return files


def system_directory() -> Path:
    """Return the directory of the system's units; that of packages if one brought this program."""
    file = UnitFile(PACKAGED / UNITS[0], "")
    return PACKAGED if _starting() in (file.installed or "") else SYSTEM


def user_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of a user's own units."""
    config = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "~")) / ".config")
    return Path(config).expanduser() / "systemd" / "user"


def program() -> str:
    """Return the path of the command `pgflowd` that belongs to this Python."""
    neighbour = Path(sys.executable).with_name("pgflowd")
    return str(neighbour) if neighbour.exists() else shutil.which("pgflowd") or str(neighbour)


def systemd_version() -> int | None:
    """Return the version of systemd on this machine, or None."""
    match = re.match(r"systemd (\d+)", _systemctl("--version") or "")
    return int(match[1]) if match else None


def reload_manager(*, for_user: bool) -> bool:
    """Let systemd read its units again; return False if none runs."""
    if not RUNNING.exists():
        return False
    return _systemctl(*(["--user"] if for_user else []), "daemon-reload") is not None


def user_exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def examine_units(
    files: Sequence[UnitFile], settings: Settings, *, for_user: bool
) -> Iterator[Finding]:
    """Compare the installed units with those of this pgflowd, and with the config."""

    def of(check: str, found: Finding) -> Finding:
        return replace(found, section=Section.SYSTEMD, check=check)

    version = systemd_version()
    if version is None:
        yield of("systemd", error("systemctl is not installed"))
        return
    note = "" if RUNNING.exists() else ", not running on this machine"
    yield of("systemd", ok(f"version {version}{note}"))
    for suffix in (".service", ".conf"):
        for file in files:
            if file.path.suffix == suffix:
                yield of("unit", _compared(file, for_user))
    if not for_user:
        is_there = user_exists("pgflowd")
        missing = error("there is no user pgflowd", f"{USERADD} pgflowd")
        yield of("user", ok("pgflowd exists") if is_there else missing)
        yield of("program", _reachable(program()))
    yield of("times", _times(settings, files[0]))


def _compared(file: UnitFile, for_user: bool) -> Finding:
    if file.is_same:
        return ok(f"{file.path} is up to date")
    command = f"pgflowd systemd install{' --user' if for_user else ''}"
    if file.installed is None:
        bad = error if file.path.name == "pgflowd.service" else warning
        return bad(f"{file.path} is not installed", command)
    return warning(f"{file.path} differs from the unit of this pgflowd", command)


def _reachable(path: str) -> Finding:
    """The hardened unit cannot read home directories, so pgflowd must not be in one."""
    if path.startswith(("/home/", "/root/", "/run/user/")):
        text = f"{path} is in a home directory, which the unit cannot read (ProtectHome)"
        return error(text, "install pgflowd elsewhere, for example in /opt/pgflowd")
    return ok(path)


def _times(settings: Settings, unit: UnitFile) -> Finding:
    """systemd must wait for a quick stop, in which the supervisor is silent for `kill_grace`."""
    graces = [settings.worker_for(slug).kill_grace_s for slug in settings.flows]
    grace_s = max([settings.worker.kill_grace_s, *graces])
    found = re.findall(r"^TimeoutStopSec=(.*)$", unit.installed or unit.text, re.MULTILINE)
    written = found[-1].strip() if found else "90"  # the last one counts
    try:
        stop_s = float(written.removesuffix("s"))
    except ValueError:  # in other units of time than ours
        stop_s = inf
    if grace_s + SPARE_S <= stop_s:
        return ok(f"TimeoutStopSec={written} is longer than kill_grace")
    text = (
        f"kill_grace is {format_duration(grace_s)}, and systemd kills everything after "
        f"TimeoutStopSec={written} of silence"
    )
    return warning(text, f"set TimeoutStopSec to {round(grace_s + SPARE_S)} or more in a drop-in")


def _starting() -> str:
    """The setting by which a unit starts this program."""
    path = program().replace("%", "%%")
    path = f'"{path}"' if " " in path else path
    return f"ExecStart={path} "


def _adapted(text: str, for_user: bool) -> str:
    text = text.replace("ExecStart=pgflowd ", _starting())
    if not for_user:
        return text
    lines = [line for line in text.splitlines() if not _NOT_FOR_USERS.match(line)]
    text = "\n".join(lines) + "\n"
    text = text.replace(" serve --instance %i\n", " serve --config %E/pgflowd/%i.toml\n")
    text = text.replace(" serve\n", " serve --config %E/pgflowd/pgflowd.toml\n")
    text = text.replace("--config /etc/", "--config %E/")
    text = text.replace("WorkingDirectory=/var/lib/", "WorkingDirectory=%S/")
    return text.replace("WantedBy=multi-user.target", "WantedBy=default.target")


def _systemctl(*args: str) -> str | None:
    """Return what systemctl prints; None if it is missing or fails."""
    try:
        done = subprocess.run(
            ["systemctl", *args],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "SYSTEMD_PAGER": "", "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
