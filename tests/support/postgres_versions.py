"""
The PostgreSQL versions the tests run on, and where their programs come from.

    16, 18  the wheel of the embedded server
    15, 17  npm; `make test` installs them
    JIT     Debian's packages, since the others cannot compile

A missing one fails the test that needs it, and the error names the command that installs it.
"""

from __future__ import annotations

from pathlib import Path

from pgflowd.embedded import wheel_binaries

MAJORS = (15, 16, 17, 18)
PEERS = Path(__file__).parents[1] / "npm" / "node_modules"


def binaries_of(major: int) -> Path:
    """Return the directory of the programs of a major version."""
    if major in (16, 18):
        return wheel_binaries(major)
    binaries = PEERS / f"pg{major}" / "native" / "bin"
    if not (binaries / "postgres").exists():
        raise AssertionError(f"this test needs {binaries / 'postgres'}; run `make peers`")
    return binaries


def binaries_with_jit() -> Path:
    """Return the directory of the programs of a server that compiles expressions."""
    for library in sorted(Path("/usr/lib/postgresql").glob("*/lib/llvmjit.so")):
        return library.parents[1] / "bin"
    raise AssertionError("this test needs Debian's package `postgresql`; run `make peers`")
