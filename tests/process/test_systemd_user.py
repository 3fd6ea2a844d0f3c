"""
The unit under a real systemd: a user's instance in namespaces of its own.

What only the system's instance can do (another user, hardening) is taken out of the unit;
the protocol, the watchdog and the way to kill stay as shipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.daemon import PGFLOWD

from pgflowd.resources import shipped

KEPT = {
    "Description", "StartLimitIntervalSec", "StartLimitBurst", "Type", "NotifyAccess",
    "ExecReload", "Restart", "RestartPreventExitStatus", "KillMode", "TimeoutStartSec",
    "TimeoutStopSec", "TimeoutAbortSec", "OOMPolicy", "UMask",
}  # fmt: skip
NEEDED = ("unshare", "systemctl", "dbus-daemon", "/lib/systemd/systemd")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(shutil.which(name) for name in NEEDED),
    reason="needs root, and systemd's programs",
)


def unit_for(setup, config: Path) -> str:
    """The unit for a user's instance, with the tested command and a quicker watchdog."""
    lines = []
    for line in (shipped("systemd") / "pgflowd.service").read_text().splitlines():
        if line.startswith("[") or line.partition("=")[0] in KEPT:
            lines.append(line)
        if line == "[Service]":
            inner = PGFLOWD[2].replace('"', '\\"')
            command = f'{sys.executable} -c "{inner}" serve -c {config}'
            lines += [f"ExecStart={command}", f"WorkingDirectory={setup.directory}"]
            lines += ["WatchdogSec=2", "RestartSec=100ms", f"Environment=PATH={os.environ['PATH']}"]
    return "\n".join(lines).partition("[Install]")[0]


def test_our_unit_starts_reloads_is_watched_and_stops_under_systemd(setup, database):
    setup.flow("alpha")
    config = setup.config()
    units = setup.directory / "config" / "systemd" / "user"
    units.mkdir(parents=True)
    (units / "pgflowd.service").write_text(unit_for(setup, config))
    script = Path(__file__).parents[1] / "support" / "systemd_user.py"
    spaces = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]

    done = subprocess.run(
        [*spaces, sys.executable, str(script), str(setup.directory)],
        capture_output=True,
        text=True,
        timeout=120,
        env=setup.environ,
        check=False,
    )

    assert done.returncode == 0, done.stderr + (setup.directory / "systemd.log").read_text()
    saw = json.loads(done.stdout.splitlines()[-1])
    assert saw["start"] == ""
    assert saw["started"]["ActiveState"] == "active"
    assert saw["started"]["StatusText"] == "healthy: 1 of 1 workers up"
    assert saw["reloaded"] == {"ActiveState": "active", "MainPID": saw["started"]["MainPID"]}
    assert saw["restarted"]["NRestarts"] == "1"  # the watchdog has ended the frozen one
    assert saw["stopped"] == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
