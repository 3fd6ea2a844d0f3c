"""
One flow that the daemon serves, as discovery found it; a worker is started with it.

The supervisor never imports user code: these texts are all it has of a flow. The worker's
zygote imports `module` and takes the flow with this slug. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServedFlow:
    """A flow: where it is, and its fingerprint."""

    slug: str
    module: str
    entry: str  # of the config: "module" or "module:name"
    fingerprint: str = ""  # of the module's files and the flow's shape
    undoes: str | None = None  # the flow whose runs it undoes, if it was derived from one

    @property
    def queue(self) -> str:
        """The name of its queue, which notifications carry."""
        return self.slug.lower()
