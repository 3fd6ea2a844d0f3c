"""
One flow that the daemon serves, as discovery found it; a worker is started with it.

The supervisor never imports user code: these texts are all it has of a flow. The worker's
zygote imports `module` and takes the flow with this name. Each version of a flow whose shape has
changed is a flow of the database, and has a worker of its own with the same code. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ServedFlow:
    """A flow: where it is, and its fingerprint."""

    slug: str  # in the database
    module: str
    entry: str  # of the config: "module" or "module:name"
    fingerprint: str = ""  # of the module's files and the flow's shape
    undoes: str | None = None  # the flow whose runs it undoes, if it was derived from one
    of_name: str = ""  # its name in the code, unless it is the same

    @property
    def name(self) -> str:
        """Its name in the code, and in the config."""
        return self.of_name or self.slug

    @property
    def queue(self) -> str:
        """The name of its queue, which notifications carry."""
        return self.slug.lower()


def with_versions(
    flows: Iterable[ServedFlow], versions: Mapping[str, Collection[str]]
) -> list[ServedFlow]:
    """The flows of the code, each replaced by those of its versions that are to be served."""
    flows = list(flows)
    names = {flow.slug for flow in flows}
    return [
        flow if slug == flow.slug else replace(flow, slug=slug, of_name=flow.slug)
        for flow in flows
        for slug in versions.get(flow.slug, (flow.slug,))
        if slug == flow.slug or slug not in names
    ]
