"""
Our unit files for systemd, adapted to this machine.

The files in `systemd/` are shipped with the package. Here they get the path of our program. For a
user's own service manager they lose the settings that only the system's may use. Drop-ins are
installed only for a systemd that knows them.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pgflowd.resources import shipped

WEB = "pgflowd-web.service"
UNITS = ("pgflowd.service", "pgflowd@.service", WEB)
DROP_INS = {"notify-reload.conf": 253, "restart-steps.conf": 254}  # the first systemd that knows it
SYSTEM = Path("/etc/systemd/system")
PACKAGED = Path("/usr/lib/systemd/system")  # where packages of the system have their units
RUNNING = Path("/run/systemd/system")  # exists if systemd runs this machine
TIMEOUT_S = 30.0  # of systemctl

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


def unit_files(
    *, for_user: bool, version: int | None, environ: Mapping[str, str]
) -> list[UnitFile]:
    """Return the files for this machine; without a known version there are no drop-ins."""
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


def setting(text: str, key: str) -> str | None:
    """Return the value of a key in a unit; the last one counts."""
    found = re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)
    return found[-1].strip() if found else None


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
