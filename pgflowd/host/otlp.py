"""
Exports spans by the SDK of OpenTelemetry, over OTLP/HTTP, as the variables OTEL_… say.

Imports OpenTelemetry; only the process `exporter` imports it, and runners whose module does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from pgflowd import __version__
from pgflowd.core.traces import EndedSpan

TIMEOUT_S = 5  # of an export with all its repetitions, unless OTEL_EXPORTER_OTLP_TIMEOUT is set
DELAY_MS = 200  # from the end of a handler's span to its export, unless OTEL_BSP_SCHEDULE_DELAY is
_TRY_AGAIN = (408, 429)  # of 4xx; a server that fails may do better later
_SCOPE = InstrumentationScope("pgflowd", __version__)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class _Session(requests.Session):
    """Remembers what the collector has answered last."""

    last_status = 0  # none came

    def send(self, request: Any, **kwargs: Any) -> requests.Response:
        self.last_status = 0
        response = super().send(request, **kwargs)
        self.last_status = response.status_code
        return response


class SpanSender:
    """Sends spans to the collector that the environment names."""

    def __init__(self, service: str) -> None:
        self._session = _Session()
        self._exporter = OTLPSpanExporter(session=self._session, timeout=_timeout())
        self._resource = _resource(service)

    @property
    def endpoint(self) -> str:
        return str(self._exporter._endpoint)

    def send(self, spans: Iterable[EndedSpan]) -> tuple[bool, bool]:
        """Return whether the collector has them, else whether it never will."""
        self._session.last_status = 0
        readable = [_readable(each, self._resource) for each in spans]
        if self._exporter.export(readable) is SpanExportResult.SUCCESS:
            return True, False
        status = self._session.last_status
        return False, 400 <= status < 500 and status not in _TRY_AGAIN


def provider_of(service: str) -> TracerProvider:
    """The provider of a runner whose module uses OpenTelemetry, and has set none."""
    provider = TracerProvider(resource=_resource(service), shutdown_on_exit=False)
    delay = None if os.environ.get("OTEL_BSP_SCHEDULE_DELAY") else DELAY_MS
    exporter = OTLPSpanExporter(timeout=_timeout())
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=delay))
    return provider


def _timeout() -> int | None:
    names = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
    return None if any(os.environ.get(name) for name in names) else TIMEOUT_S


def _resource(service: str) -> Resource:
    """What the spans are of; the variables say it, or our settings."""
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create({} if named else {SERVICE_NAME: service})


def _readable(span: EndedSpan, resource: Resource) -> ReadableSpan:
    state = TraceState.from_header([span.state]) if span.state else None
    known = {name: value for name, value in span.attributes.items() if value is not None}
    status = Status() if span.error is None else Status(StatusCode.ERROR, _text(span.error))
    return ReadableSpan(
        _text(span.name),
        _context(span.trace_id, span.id, state),
        _context(span.trace_id, span.parent) if span.parent else None,
        resource,
        {name: _text(value) if isinstance(value, str) else value for name, value in known.items()},
        links=[Link(_context(*each)) for each in span.links],
        kind=SpanKind.CONSUMER if span.is_run else SpanKind.INTERNAL,
        status=status,
        start_time=span.began_us * 1000,
        end_time=span.ended_us * 1000,
        instrumentation_scope=_SCOPE,
    )


def _context(trace_id: str, span_id: str, state: TraceState | None = None) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), False, _SAMPLED, state)


def _text(value: str) -> str:
    """The same without halves of characters, which UTF-8 does not have."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
