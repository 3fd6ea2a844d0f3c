"""What decodes the arguments of one handler, and encodes what it returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pgflowd.core.json import encode
from pgflowd.core.typed.annotations import Unresolved, contents, type_name
from pgflowd.core.typed.codec import Codec, Misfit, Undecodable, codec_of
from pgflowd.errors import OutputError, TypeMismatch

OUTPUT = "return"


@dataclass(frozen=True)
class StepCodec:
    """The codecs of a handler, for what names a shape; a handler without any has no StepCodec."""

    parameters: Mapping[str, Codec]
    output: Codec | None

    def decoded(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the handler has annotated them. Raises E417."""
        for name, codec in self.parameters.items():
            if name in arguments:
                arguments[name] = decoded(codec, arguments[name], name)
        return arguments

    def encoded(self, value: Any) -> Any:
        """The JSON value of what the handler has returned. Raises E418."""
        if self.output is None:
            return value
        try:
            return self.output.encode(value, "output")
        except Misfit as error:
            name = type_name(self.output.annotation)
            remedy = "return what fits the annotation, or change it"
            raise OutputError(f"{error} (output: {name})", code="E418", next=remedy) from None


def decoded(codec: Codec, value: Any, what: str) -> Any:
    """A value as its annotation has it. Raises E417."""
    try:
        return codec.decode(value, what)
    except Misfit as error:
        name = type_name(codec.annotation)
        remedy = "send what fits the annotation, or change it"
        raise TypeMismatch(f"{error} ({what}: {name})", next=remedy) from None


def encode_output(codec: StepCodec | None, value: Any, *, max_bytes: int | None = None) -> str:
    """The JSON text of what a handler has returned. Raises E403, E404, E418."""
    if codec is not None:
        value = codec.encoded(value)
    return encode(value, max_bytes=max_bytes)


def step_codec(annotations: Mapping[str, Any]) -> StepCodec | None:
    """The codec of a handler with these annotations, all of which can be decoded."""
    found = {name: codec_of(annotation) for name, annotation in _shapes(annotations)}
    output = found.pop(OUTPUT, None)
    return StepCodec(found, output) if found or output else None


def faults_of(annotations: Mapping[str, Any]) -> Iterator[tuple[str, Undecodable]]:
    """The annotations that cannot be decoded, with the name of their parameter, or "return"."""
    for name, annotation in _shapes(annotations):
        try:
            codec_of(annotation)
        except Undecodable as error:
            yield name, error


def _shapes(annotations: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, annotation in annotations.items():
        if not isinstance(annotation, Unresolved) and contents(annotation).has_shape:
            yield name, annotation
