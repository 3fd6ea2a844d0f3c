"""
The exporter of OpenTelemetry's SDK, and the spans that it takes.

Imports OpenTelemetry; only the process `exporter` imports it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from pgflowd import __version__

TIMEOUT_S = 5  # of an export with all its repetitions, unless OTEL_EXPORTER_OTLP_TIMEOUT is set
_TRY_AGAIN = (408, 429)  # of 4xx; a server that fails may do better later
_OURS = InstrumentationScope("pgflowd", __version__)
_NO_STATUS, _OK = Status(), Status(StatusCode.OK)


class _Session(requests.Session):
    """Remembers what the collector has answered last."""

    last_status = 0  # none came

    def send(self, request: Any, **kwargs: Any) -> requests.Response:
        self.last_status = 0
        response = super().send(request, **kwargs)
        self.last_status = response.status_code
        return response


class OtlpExporter:
    """Sends spans to the collector that the environment names."""

    def __init__(self, service_name: str) -> None:
        self._session = _Session()
        names = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
        timeout = None if any(os.environ.get(name) for name in names) else TIMEOUT_S
        self._exporter = OTLPSpanExporter(session=self._session, timeout=timeout)
        own = {} if _names_service() else {SERVICE_NAME: service_name}
        self._resource = Resource.create(own)

    @property
    def endpoint(self) -> str:
        return str(self._exporter._endpoint)

    def export(self, spans: Sequence[ReadableSpan]) -> tuple[bool, bool]:
        """Send spans; return whether the collector has them, else whether it never will."""
        self._session.last_status = 0
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            return True, False
        status = self._session.last_status
        return False, 400 <= status < 500 and status not in _TRY_AGAIN

    def span_of(self, given: Mapping[str, Any]) -> ReadableSpan:
        """The span that a worker or runner has sent. Raises for what is none."""
        trace_id, state = given["trace"], given["state"]
        trace_state = TraceState.from_header([state]) if state else None
        context = _context(trace_id, given["id"], trace_state)
        parent, error, scope = given["parent"], given["error"], given.get("scope")
        status = _OK if given.get("is_ok") else _NO_STATUS
        if error is not None:
            status = Status(StatusCode.ERROR, error or None)
        return ReadableSpan(
            given["name"],
            context=context,
            parent=_context(trace_id, parent, trace_state) if parent else None,
            resource=self._resource,
            attributes=_sound(given["attributes"]),
            events=[Event(name, _sound(of), at) for name, at, of in given.get("events", ())],
            links=[Link(_context(*each)) for each in given.get("links", ())],
            kind=SpanKind[given.get("kind", "internal").upper()],
            instrumentation_scope=InstrumentationScope(*scope) if scope else _OURS,
            status=status,
            start_time=int(given["start"]),
            end_time=int(given["end"]),
        )


def _names_service() -> bool:
    """Whether the environment says what the service is called."""
    resource = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return bool(os.environ.get("OTEL_SERVICE_NAME")) or "service.name=" in resource


def _context(trace_id: str, span_id: str, state: TraceState | None = None) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace_id, 16), int(span_id, 16), False, flags, state)


def _sound(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in attributes.items() if value is not None}
