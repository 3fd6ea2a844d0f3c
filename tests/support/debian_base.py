"""
A small Debian with Python, made by debootstrap from the sources of this machine. For root only.

It is made once for each machine, in half a minute, and lies outside of the checkout.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

CACHE = Path("/var/cache/pgflowd-tests")
UNUSED_S = 86400  # then it is deleted, since each is of 140 MB or more
PACKAGES = ("ca-certificates", "python3-venv", "systemd-standalone-sysusers")
WITHOUT = ("var/cache/apt", "var/lib/apt/lists", "usr/share/locale", "usr/share/doc")


def base_tree() -> Path:
    """Return the tree of all tests. Whoever changes something works with `copy_of_base`."""
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    return made_once(f"{suite}-{recipe}", lambda tree: _make(suite, tree))


def copy_of_base(to: Path) -> Path:
    """Copy the tree to a directory that does not exist yet."""
    subprocess.run(["cp", "--archive", base_tree(), to], check=True)
    return to


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """
    Return a directory that all test runs of this machine share; the first that asks makes it.

    It is made beside its place, so that a killed test leaves no half of one there.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    place, begun = CACHE / name, CACHE / f"{name}.begun"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            for other in CACHE.glob("*-*"):
                if other == begun or other.stat().st_mtime < time.time() - UNUSED_S:
                    shutil.rmtree(other)
            begun.mkdir()
            make(begun)
            begun.rename(place)
        os.utime(place)
    return place


def _make(suite: str, tree: Path) -> None:
    options = tree / "etc/dpkg/dpkg.cfg.d"
    options.mkdir(parents=True)
    (options / "unsafe-io").write_text("force-unsafe-io\n")  # which does not wait for the disk
    mirror, components = _source_of(suite)
    command = ["unshare", "--mount", "debootstrap"]  # so that its mounts end with it
    command += ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command += [f"--components={components}", suite, str(tree), mirror]
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert made.returncode == 0, f"debootstrap failed: {made.stdout[-4000:]}"
    for name in WITHOUT:
        shutil.rmtree(tree / name)
        (tree / name).mkdir()


def _source_of(suite: str) -> tuple[str, str]:
    """Return the address and the components from which apt has this suite here."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"]
    told = subprocess.run(
        [*asked, "Created-By: Packages"], stdout=subprocess.PIPE, text=True, check=True
    )
    sources = [source.split() for source in told.stdout.splitlines()]
    found = [source for source in sources if source[1] == suite]
    assert found, f"apt has no source of {suite}; see: apt-get indextargets"
    address = found[0][0]
    return address, ",".join(sorted({source[2] for source in found if source[0] == address}))
