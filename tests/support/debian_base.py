"""
A small Debian with Python, made by debootstrap from the sources of this machine. For root only.

It is made once for each machine, in half a minute, and lies outside of the checkout.
"""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
import subprocess
from pathlib import Path

CACHE = Path("/var/cache/pgflowd-tests")
PACKAGES = ("ca-certificates", "python3-venv", "systemd-standalone-sysusers")
WITHOUT = ("var/cache/apt", "var/lib/apt/lists", "usr/share/locale", "usr/share/doc")


def base_tree() -> Path:
    """Return the tree of all tests. Whoever changes something works with `copy_of_base`."""
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    tree = CACHE / f"{suite}-{recipe}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of the tests ask at once
        if not tree.exists():
            _make(suite, tree)
    return tree


def copy_of_base(to: Path) -> Path:
    """Copy the tree to a directory that does not exist yet."""
    subprocess.run(["cp", "--archive", base_tree(), to], check=True)
    return to


def _make(suite: str, tree: Path) -> None:
    """Make the tree beside its place, so that a killed test leaves no half of one there."""
    begun = tree.with_suffix(".begun")
    shutil.rmtree(begun, ignore_errors=True)
    options = begun / "etc/dpkg/dpkg.cfg.d"
    options.mkdir(parents=True)
    (options / "unsafe-io").write_text("force-unsafe-io\n")  # which does not wait for the disk
    mirror, components = _source_of(suite)
    command = ["unshare", "--mount", "debootstrap"]  # so that its mounts end with it
    command += ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command += [f"--components={components}", suite, str(begun), mirror]
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert made.returncode == 0, f"debootstrap failed: {made.stdout[-4000:]}"
    for name in WITHOUT:
        shutil.rmtree(begun / name)
        (begun / name).mkdir()
    begun.rename(tree)


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
