"""
Ref: a value that may stand elsewhere, and that is read when it is needed.

`env:NAME` is an environment variable, `file:PATH` the content of a file and `cred:NAME` a
systemd credential; anything else stands for itself. A Ref shows where the value is, never
what it is, even in a traceback. `host.config_refs` reads it. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgflowd.core.redact import redact, secrets_in

SCHEMES = ("env", "file", "cred")


@dataclass(frozen=True, repr=False)
class Ref:
    """A value, or where to find it."""

    written: str

    @property
    def scheme(self) -> str | None:
        """Return "env", "file" or "cred", or None for a value that stands for itself."""
        head, colon, _ = self.written.partition(":")
        return head if colon and head in SCHEMES else None

    @property
    def target(self) -> str:
        """Return the name or path after the scheme, or the value itself."""
        return self.written.partition(":")[2] if self.scheme else self.written

    @property
    def shown(self) -> str:
        """Return what may be shown: the place, or the value without its password."""
        return self.written if self.scheme else redact(self.written, secrets_in(self.written))

    def __bool__(self) -> bool:
        return bool(self.written)

    def __repr__(self) -> str:
        return f"Ref({self.shown!r})"

    __str__ = __repr__
