"""
Served: one flow that the daemon serves, as discovery found it; what a worker is started with.

The supervisor never imports user code: it knows a flow by these texts alone. A worker's zygote
imports `module` and takes the flow whose slug this is. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServedFlow:
    """A flow, where it is, and what it was like when discovery looked."""

    slug: str
    module: str
    entry: str  # as the config says it: "module" or "module:name"
    fingerprint: str = ""  # of the module's files and the flow's shape; another one: start anew

    @property
    def queue(self) -> str:
        """The name of its queue, which notifications carry."""
        return self.slug.lower()
