"""The systemd units: hardened, and as docs/background/surface.md wants them."""

from __future__ import annotations

import re
import subprocess
from configparser import ConfigParser

import pytest

from pgflowd.resources import shipped

UNITS = ("pgflowd.service", "pgflowd@.service")
WEB = "pgflowd-web.service"
MOST_EXPOSED = 2.0


def service_of(name):
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(shipped("systemd") / name)
    return parser


@pytest.mark.parametrize("unit", [*UNITS, WEB])
def test_a_unit_is_exposed_2_0_at_most(unit):
    path = shipped("systemd") / unit
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)]

    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    found = re.search(r"Overall exposure level for .*: ([0-9.]+)", text)
    assert float(found[1]) <= MOST_EXPOSED


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Type", "notify"),
        ("NotifyAccess", "main"),
        ("ExecReload", "/bin/kill -HUP $MAINPID"),
        ("Restart", "on-failure"),
        ("RestartPreventExitStatus", "2 77 78"),
        ("KillMode", "mixed"),
        ("TimeoutStartSec", "30"),
        ("TimeoutStopSec", "20"),
        ("WatchdogSec", "30"),
        ("TimeoutAbortSec", "10"),
        ("OOMPolicy", "continue"),
        ("UMask", "0077"),
    ],
)
def test_a_unit_has_the_settings_that_the_daemon_relies_on(unit, key, value):
    assert service_of(unit)["Service"][key] == value


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_has_nothing_that_breaks_numeric_libraries(unit):
    service = service_of(unit)["Service"]

    assert not {"MemoryDenyWriteExecute", "PrivateUsers", "ProcSubset"} & set(service)
    assert "ExecStartPre" not in service


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_lets_the_daemon_listen_for_health_checks(unit):
    service = service_of(unit)["Service"]

    assert service["RestrictAddressFamilies"].split() == ["AF_UNIX", "AF_INET", "AF_INET6"]
    assert not {"SocketBindDeny", "IPAddressDeny", "PrivateNetwork"} & set(service)


def test_an_instance_has_a_state_of_its_own_and_its_socket_where_commands_look():
    service = service_of("pgflowd@.service")["Service"]

    assert service["ExecStart"].endswith("--instance %i")
    assert service["StateDirectory"] == "pgflowd/%i"
    assert (service["RuntimeDirectory"], service["RuntimeDirectoryPreserve"]) == ("pgflowd", "yes")


@pytest.mark.parametrize(
    ("name", "key"), [("notify-reload", "Type"), ("restart-steps", "RestartSteps")]
)
def test_drop_ins_hold_what_older_systemd_does_not_know(name, key):
    assert key in service_of(f"drop-ins/{name}.conf")["Service"]


def test_the_dashboard_has_a_user_of_its_own_and_less_than_the_daemon():
    service, daemon = (service_of(unit)["Service"] for unit in (WEB, UNITS[0]))

    assert (service["User"], service["Type"], service["UMask"]) == ("pgflowd-web", "notify", "0077")
    assert service["RestartPreventExitStatus"] == daemon["RestartPreventExitStatus"]
    assert (service["StateDirectoryMode"], service["RuntimeDirectoryMode"]) == ("0700", "0750")
    assert service["ProtectProc"] == "invisible"
    hardened = {key for key in daemon if key.startswith(("Protect", "Restrict", "Private"))}
    assert hardened <= set(service)
