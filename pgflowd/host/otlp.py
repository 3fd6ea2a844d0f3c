"""
Spans as the collector reads them, and the exporter of OpenTelemetry's SDK that sends them.

A request is made of spans in bytes, without the SDK's objects. Imports OpenTelemetry; only the
process `exporter` imports it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import requests
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace.export import SpanExportResult

from pgflowd import __version__
from pgflowd.core.traces import EncodedSpans, encode_portion, field, head

TIMEOUT_S = 5  # of an export with all its repetitions, unless OTEL_EXPORTER_OTLP_TIMEOUT is set
_TRY_AGAIN = (408, 429)  # of 4xx; a server that fails may do better later
_OURS = ("pgflowd", __version__)
_OK, _ERROR = 1, 2  # of a status
_MAX_INT = 1 << 63
_FIELDS = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}

if not hasattr(trace_exporter, "encode_spans"):
    raise ImportError("this version of opentelemetry-exporter-otlp-proto-http is not known")

Scope = tuple[str, str | None]  # the name and version of who has written a span
ScopedSpans = tuple[Scope, EncodedSpans]


class _Request:
    """What the SDK's exporter takes for a message; its versions call the one or the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializeToString(self) -> bytes:
        return self._data

    def SerializePartialToString(self) -> bytes:
        return self._data


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
        # the SDK's exporter knows all variables and repeats; what it sends is made here
        setattr(trace_exporter, "encode_spans", self._request)  # noqa: B010
        self._exporter = trace_exporter.OTLPSpanExporter(session=self._session, timeout=timeout)
        own = {} if _names_service() else {SERVICE_NAME: service_name}
        attributes: Any = {"attributes": _attributes(Resource.create(own).attributes)}
        self._resource = ResourceSpans(resource=attributes).SerializeToString()

    @property
    def endpoint(self) -> str:
        return str(self._exporter._endpoint)

    def export(self, spans: Sequence[ScopedSpans]) -> tuple[bool, bool]:
        """Send spans; return whether the collector has them, else whether it never will."""
        self._session.last_status = 0
        if self._exporter.export(cast(Any, spans)) is SpanExportResult.SUCCESS:
            return True, False
        status = self._session.last_status
        return False, 400 <= status < 500 and status not in _TRY_AGAIN

    @staticmethod
    def encode(given: Mapping[str, Any]) -> ScopedSpans:
        """The spans that a worker tells, or the one that a runner does. Raises for what is none."""
        if "attempts" in given:
            return _OURS, encode_portion(given)
        parent, error, scope = given["parent"], given["error"], given.get("scope")
        status: dict[str, Any] = {"code": _OK} if given.get("is_ok") else {}
        if error is not None:
            status = {"code": _ERROR, "message": _text(error)}
        known: dict[str, Any] = {
            "trace_id": _id(given["trace"], 16),
            "span_id": _id(given["id"], 8),
            "parent_span_id": _id(parent, 8) if parent else b"",
            "trace_state": given["state"],
            "name": _text(given["name"]),
            "kind": Span.SpanKind.Value(f"SPAN_KIND_{given.get('kind', 'internal').upper()}"),
            "start_time_unix_nano": given["start"],
            "end_time_unix_nano": given["end"],
            "attributes": _attributes(given["attributes"]),
            "events": [
                {"name": _text(name), "time_unix_nano": at, "attributes": _attributes(of)}
                for name, at, of in given.get("events", ())
            ],
            "links": [
                {"trace_id": _id(trace_id, 16), "span_id": _id(span_id, 8)}
                for trace_id, span_id in given.get("links", ())
            ],
            "status": status,
        }
        name, version = scope or _OURS
        encoded = EncodedSpans(field(2, Span(**known).SerializeToString()), 1)
        return (_text(name), None if version is None else _text(version)), encoded

    def _request(self, spans: Sequence[ScopedSpans]) -> _Request:
        by_scope: dict[Scope, list[bytes]] = {}
        for scope, encoded in spans:
            by_scope.setdefault(scope, []).append(encoded.data)
        pieces = [self._resource]
        for (name, version), of_scope in by_scope.items():
            scope_spans = ScopeSpans(scope={"name": name, "version": version})  # type: ignore[arg-type]
            of_scope.append(scope_spans.SerializeToString())
            pieces += head(2, sum(map(len, of_scope))), *of_scope
        return _Request(b"".join((head(1, sum(map(len, pieces))), *pieces)))


def _names_service() -> bool:
    """Whether the environment says what the service is called."""
    resource = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return bool(os.environ.get("OTEL_SERVICE_NAME")) or "service.name=" in resource


def _id(digits: str, size: int) -> bytes:
    found = bytes.fromhex(digits)
    if len(found) != size:
        raise ValueError(f"an id has {len(found)} bytes, not {size}")
    return found


def _attributes(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": _text(key), "value": _value(value)}
        for key, value in given.items()
        if value is not None
    ]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, list | tuple):  # of plain values: a list in it is a text
        known = [str(each) if isinstance(each, list | tuple) else each for each in value]
        return {"array_value": {"values": [_value(each) for each in known if each is not None]}}
    field = _FIELDS.get(type(value))
    if field is None or (field == "int_value" and not -_MAX_INT <= value < _MAX_INT):
        return {"string_value": _text(str(value))}
    return {field: _text(value) if field == "string_value" else value}


def _text(value: str) -> str:
    """The same without halves of characters, which UTF-8 does not have."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
