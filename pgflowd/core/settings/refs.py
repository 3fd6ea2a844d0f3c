"""
Defines `Ref`: a value, or a reference to the place that holds it.

`env:NAME` is an environment variable, `file:PATH` the content of a file and `cred:NAME` a
systemd credential; any other text is the value itself. A Ref shows the place of the value and
never the value, even in a traceback. `host.config_refs` reads it when it is needed. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgflowd.core.redact import redact, secrets_in

SCHEMES = ("env", "file", "cred")
URL_NEXT = "it should look like postgresql://user@host:5432/dbname"


@dataclass(frozen=True, repr=False)
class Ref:
    """A value, or the place that holds it."""

    written: str

    @property
    def scheme(self) -> str | None:
        """Return "env", "file" or "cred", or None for the value itself."""
        head, colon, _ = self.written.partition(":")
        return head if colon and head in SCHEMES else None

    @property
    def target(self) -> str:
        """Return the name or path after the scheme, or the value itself."""
        return self.written.partition(":")[2] if self.scheme else self.written

    @property
    def shown(self) -> str:
        """Return the text that may be shown: the place, or the value without its password."""
        return self.written if self.scheme else redact(self.written, secrets_in(self.written))

    def __bool__(self) -> bool:
        return bool(self.written)

    def __repr__(self) -> str:
        return f"Ref({self.shown!r})"

    __str__ = __repr__
