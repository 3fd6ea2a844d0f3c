"""
A systemd of the test: `systemd --user` in namespaces of its own, which runs a unit.

Run by `unshare --mount --pid` with a directory that holds the unit. It starts, reloads, freezes
and stops the unit, and prints what it saw as one JSON object.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from pgflowd.testing.until import until

RUNTIME = Path("/run/u")


def show(*names: str) -> dict[str, str]:
    """Properties of the unit."""
    wanted = ",".join(names)
    text = run("systemctl", "--user", "show", "pgflowd", "-p", wanted)
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def is_active() -> bool:
    return show("ActiveState")["ActiveState"] == "active"


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def boot(directory: Path) -> None:
    """Start a message bus and systemd, on a /run of their own."""
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    Path("/run/systemd/system").mkdir(parents=True)
    RUNTIME.mkdir(mode=0o700)
    os.environ |= {
        "XDG_RUNTIME_DIR": str(RUNTIME),
        "XDG_CONFIG_HOME": str(directory / "config"),
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={RUNTIME}/bus",
        "SYSTEMD_LOG_TARGET": "console",
    }
    run("dbus-daemon", "--session", f"--address=unix:path={RUNTIME}/bus", "--fork")
    log = (directory / "systemd.log").open("wb")
    subprocess.Popen(["/lib/systemd/systemd", "--user"], stdout=log, stderr=log)
    until(lambda: "running" in run("systemctl", "--user", "is-system-running"), 15)


def main(directory: Path) -> dict[str, object]:
    boot(directory)
    saw: dict[str, object] = {"start": run("systemctl", "--user", "start", "pgflowd")}
    saw["started"] = first = show("ActiveState", "StatusText", "MainPID")
    saw["reload"] = run("systemctl", "--user", "reload", "pgflowd")
    until(is_active, 30)
    saw["reloaded"] = show("ActiveState", "MainPID")
    os.kill(int(first["MainPID"]), signal.SIGSTOP)
    until(lambda: show("MainPID")["MainPID"] not in {first["MainPID"], "0"}, 30)
    until(is_active, 30)
    saw["restarted"] = show("ActiveState", "StatusText", "NRestarts")
    saw["stop"] = run("systemctl", "--user", "stop", "pgflowd")
    saw["stopped"] = show("ActiveState", "Result", "ExecMainStatus")
    return saw


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
