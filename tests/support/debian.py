"""
A Debian of a test: the files of the base or of another Debian, and above them, in memory, what is
written here. For root only.

Its mounts belong to a process of its own, so they end with it, and with the test. Inside are this
machine's `/proc` and `/dev`, where the sockets of the tests' servers are.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.debian_base import base_tree

HOLD = """
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$0/upper,workdir=$0/work" "$0/root"
for each in dev proc; do mount --rbind "/$each" "$0/root/$each"; done
echo ready
exec cat
"""
BESIDE = 'mount --bind "$0/opt" /opt; exec "$@"'
CHANGED = ("etc/gshadow-", "etc/shadow-", "root", "var/cache", "var/lib/dpkg", "var/log")


class Debian:
    def __init__(self, place: Path, below: Debian | None = None) -> None:
        place.mkdir()
        self.layers = f"{below.upper}:{below.layers}" if below else str(base_tree())
        self.upper, self.root = place / "upper", place / "root"
        enter = below.enter if below else []
        self._holder = subprocess.Popen(
            [*enter, "unshare", "--mount", "sh", "-euc", HOLD, str(place), self.layers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"
        self.enter = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt"]

    def close(self) -> None:
        self._holder.communicate()

    def inside(self, *words: str) -> list[str]:
        """The words that execute a command inside."""
        return [*self.enter, "chroot", str(self.root), *words]

    def beside(self, *words: str) -> list[str]:
        """The words that execute a command of this machine with the /opt of this Debian."""
        return [*self.enter, "unshare", "--mount", "sh", "-euc", BESIDE, str(self.root), *words]

    def run(self, *words: str) -> str:
        """Execute a command inside, and return what it prints."""
        return said(self.inside(*words))

    def path(self, place: str = "") -> Path:
        """Where this machine sees a file of it."""
        return Path(f"/proc/{self._holder.pid}/root{self.root}", place)

    def write(self, place: str, text: str) -> None:
        self.path(place).parent.mkdir(parents=True, exist_ok=True)
        self.path(place).write_text(text)

    def added(self) -> set[str]:
        """What the base does not have, without what any installation changes."""
        base = base_tree()
        command = [*self.enter, "find", str(self.root), "-xdev", "-printf", "%P\\n"]
        found = [name for name in said(command).splitlines() if not (base / name).is_symlink()]
        return {
            name for name in found if not name.startswith(CHANGED) and not (base / name).exists()
        }


def said(command: list[str]) -> str:
    """What a command prints, both on its output and as errors; it must succeed."""
    done = subprocess.run(
        command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout}"
    return done.stdout
