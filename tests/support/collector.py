"""A collector of traces: OTLP/HTTP into a list, and what must be true of the spans in it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

CONSUMER = 5


class CollectedSpan(NamedTuple):
    trace: str
    id: str
    parent: str
    name: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Any]
    is_error: bool
    message: str
    links: tuple[str, ...]  # the ids of spans
    service: str
    state: str


class Collector:
    """Listens at a port; `status` is what it answers."""

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        self.requests: list[tuple[str, bytes]] = []  # path and body
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def take(self, path: str, body: bytes) -> None:
        self.requests.append((path, body))
        if path != "/v1/traces" or self.status != 200:
            return
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                self.spans += [_read(each, resource["service.name"]) for each in of_scope.spans]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def of_trace(self, trace: str) -> list[CollectedSpan]:
        """The spans of a trace, each once."""
        return list({each.id: each for each in self.spans if each.trace == trace}.values())

    def named(self, name: str) -> list[CollectedSpan]:
        return [each for each in self.spans if each.name == name]


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    try:
        yield collector
    finally:
        collector.close()


def faults(spans: list[CollectedSpan], skew_ms: float = 20.0) -> list[str]:
    """What is wrong with a trace: a parent that is not there, or does not last as long. Only the
    start of a run ends before its run."""
    by_id = {each.id: each for each in spans}
    found = []
    for each in spans:
        if not each.parent:
            continue
        parent = by_id.get(each.parent)
        if parent is None:
            found.append(f"{each.name} has no parent")
        elif each.start < parent.start - skew_ms * 1e6:
            found.append(f"{each.name} begins {(parent.start - each.start) / 1e6} ms too soon")
        elif each.end > parent.end + skew_ms * 1e6 and each.kind != CONSUMER:
            found.append(f"{each.name} ends {(each.end - parent.end) / 1e6} ms after {parent.name}")
    return found


def _read(span: Any, service: str) -> CollectedSpan:
    return CollectedSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span.attributes),
        span.status.code == 2,
        span.status.message,
        tuple(each.span_id.hex() for each in span.links),
        service,
        span.trace_state,
    )


def _attributes(given: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in given}
