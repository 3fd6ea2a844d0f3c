"""
OpenTelemetry in a process that uses it: of an application that starts runs, or of a runner.

Nothing here imports it, except where the flow's module has done so, and sets no provider of its
own: then `provide` sets one of the SDK, as the variables OTEL_… say. Without OpenTelemetry each
function is one look into `sys.modules`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pgflowd.core.traces import MAX_TRACESTATE_CHARS, CallerTrace, SpanName, read_traceparent

_API = "opentelemetry.trace"
FLUSH_S = 2.0  # so long a runner waits for the exporter of its handlers
_UNUSED: AbstractContextManager[CallerTrace | None] = nullcontext()


def starting(flow: str, count: int = 1) -> AbstractContextManager[CallerTrace | None]:
    """The span of a start, and the trace that runs started in it get; None: they get none."""
    api = sys.modules.get(_API)
    return _UNUSED if api is None else _starting(api, flow, count)


@contextlib.contextmanager
def _starting(api: Any, flow: str, count: int) -> Iterator[CallerTrace | None]:
    tracer = api.get_tracer("pgflowd")
    attributes = {"pgflow.flow": str(flow), "pgflow.runs": count}
    kind = api.SpanKind.PRODUCER
    with tracer.start_as_current_span(f"start {flow}", kind=kind, attributes=attributes) as span:
        yield _trace_of(span)


def current_span() -> SpanName | None:
    """The span that is current, for a log record."""
    api = sys.modules.get(_API)
    found = None if api is None else _trace_of(api.get_current_span())
    read = found and read_traceparent(found.traceparent)
    return read[0] if read else None


def is_imported() -> bool:
    """Whether this process uses it."""
    return _API in sys.modules


def attach(traceparent: str, tracestate: str | None) -> Any:
    """Make the span of an attempt the current one; return what `detach` needs."""
    api = sys.modules.get(_API)
    read = read_traceparent(traceparent)
    if api is None or read is None:
        return None
    from opentelemetry import context

    name, is_sampled = read
    span_context = api.SpanContext(
        int(name.trace_id, 16),
        int(name.span_id, 16),
        is_remote=True,
        trace_flags=api.TraceFlags(int(bool(is_sampled))),
        trace_state=api.TraceState.from_header([tracestate]) if tracestate else None,
    )
    return context.attach(api.set_span_in_context(api.NonRecordingSpan(span_context)))


def detach(token: Any) -> None:
    if token is not None:
        from opentelemetry import context

        context.detach(token)


def load() -> None:
    """Import what `provide` needs, for a zygote: its runners share the memory."""
    if _lacks_provider(sys.modules.get(_API)):
        with contextlib.suppress(ImportError):  # without the SDK; the exporter says so (E505)
            import pgflowd.host.otlp  # noqa: F401


def provide(service: str) -> None:
    """Let the spans of handlers be exported by the SDK, in a thread of its own, if their module
    uses OpenTelemetry and has set no provider."""
    api: Any = sys.modules.get(_API)
    if _lacks_provider(api):
        with contextlib.suppress(Exception):  # a variable is wrong, which the exporter says
            from pgflowd.host.otlp import provider_of

            api.set_tracer_provider(provider_of(service))


def flush() -> None:
    """Let the provider export what it has, but wait not for long: the process ends."""
    api: Any = sys.modules.get(_API)
    flush = getattr(api and api.get_tracer_provider(), "force_flush", None)
    if flush is not None:
        thread = threading.Thread(target=flush, daemon=True)
        thread.start()
        thread.join(FLUSH_S)


def _lacks_provider(api: Any) -> bool:
    return api is not None and isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


def _trace_of(span: Any) -> CallerTrace | None:
    found = span.get_span_context()
    if not found.is_valid:
        return None
    flags = int(found.trace_flags) & 0xFF
    state = found.trace_state.to_header() if found.trace_state else ""
    return CallerTrace(
        f"00-{found.trace_id:032x}-{found.span_id:016x}-{flags:02x}",
        state if 0 < len(state) <= MAX_TRACESTATE_CHARS else None,
    )
