"""
Machines of a test: network namespaces as hosts, with a cable each to one switch.

    with Network() as network:
        one, two = network.machine(), network.machine()
        subprocess.run([*one.inside, "ping", two.address])
        one.unplug()

A namespace lives as long as a process in it. The one that holds it reads a pipe of ours, and so
ends with the test, however that ends: nothing has a name that could stay behind. Needs root,
since only root may make such machines, and `ip` of Debian's iproute2 (tests/setup/peers.sh).
"""

from __future__ import annotations

import shutil
import subprocess
from types import TracebackType

NET = "192.0.2"  # an address range for documentation, which no machine has


class Network:
    """A switch, and the machines on it."""

    def __init__(self) -> None:
        if not shutil.which("bridge"):
            raise AssertionError("there is no `ip` and `bridge`; run `apt-get install iproute2`")
        self._machines: list[Machine] = []
        self._switch = Namespace()

    def __enter__(self) -> Network:
        self._switch.run("ip", "link", "add", "name", "switch", "type", "bridge")
        self._switch.run("ip", "link", "set", "switch", "up")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in (*self._machines, self._switch):
            each.close()

    def machine(self) -> Machine:
        """A further machine, plugged in."""
        machine = Machine(self._switch, len(self._machines) + 1)
        self._machines.append(machine)
        return machine


class Namespace:
    """A network of its own; `inside` is put before the command that shall run in it."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"\n":
            raise AssertionError("the kernel makes no network namespace, though we are root")
        self.pid = self._holder.pid
        self.inside = ["nsenter", f"--net=/proc/{self.pid}/ns/net"]
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *command: str) -> None:
        subprocess.run([*self.inside, *command], check=True, timeout=10)

    def close(self) -> None:
        self._holder.communicate(timeout=10)


class Machine(Namespace):
    """A namespace with an address, and a cable that can be pulled."""

    def __init__(self, switch: Namespace, number: int) -> None:
        super().__init__()
        self.address = f"{NET}.{number}"
        self._switch, self._port = switch, f"port{number}"
        cable = ["type", "veth", "peer", "name", "eth0", "netns", str(self.pid)]
        switch.run("ip", "link", "add", "name", self._port, *cable)
        switch.run("ip", "link", "set", self._port, "master", "switch", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def unplug(self) -> None:
        """From now on the switch drops its packets silently."""
        self._switch.run("bridge", "link", "set", "dev", self._port, "state", "0")

    def plug_in(self) -> None:
        self._switch.run("bridge", "link", "set", "dev", self._port, "state", "3")
