"""
Sends each span of a handler to the exporter when it has ended, in the handler's own thread.

So a runner has no thread that exports, nothing to flush, and loses only what was open when it was
killed. Imports the SDK of OpenTelemetry, and is imported by runners only whose module uses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanContext, StatusCode

from pgflowd.host.span_socket import SpanSender


def provider_to(path: Path) -> TracerProvider:
    """A provider whose spans go to the exporter, which knows the resource."""
    provider = TracerProvider(resource=Resource.get_empty(), shutdown_on_exit=False)
    provider.add_span_processor(_Sending(SpanSender(path)))
    return provider


class _Sending(SpanProcessor):
    def __init__(self, sender: SpanSender) -> None:
        self._sender = sender

    def on_end(self, span: ReadableSpan) -> None:
        context = span.context
        if context is not None and context.trace_flags.sampled:
            self._sender.send(_document(span, context))


def _document(span: ReadableSpan, context: SpanContext) -> Mapping[str, Any]:
    """The span as the exporter reads it."""
    scope, status = span.instrumentation_scope, span.status
    is_error = status.status_code is StatusCode.ERROR
    return {
        "trace": f"{context.trace_id:032x}",
        "id": f"{context.span_id:016x}",
        "parent": f"{span.parent.span_id:016x}" if span.parent else None,
        "state": context.trace_state.to_header() or None,
        "name": span.name,
        "kind": span.kind.name.lower(),
        "start": span.start_time,
        "end": span.end_time,
        "attributes": _plain(span.attributes),
        "error": (status.description or "") if is_error else None,
        "is_ok": status.status_code is StatusCode.OK,
        "links": [
            (f"{each.context.trace_id:032x}", f"{each.context.span_id:016x}") for each in span.links
        ],
        "events": [(each.name, each.timestamp, _plain(each.attributes)) for each in span.events],
        "scope": (scope.name, scope.version) if scope else None,
    }


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for key, value in (attributes or {}).items()
    }
