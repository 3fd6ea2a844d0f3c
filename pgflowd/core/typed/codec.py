"""
Decodes JSON values as what an annotation names, and encodes them again; `StepCodec` does so for
what a handler takes and returns.

An annotation with a pydantic type in it belongs to pydantic, any other one to msgspec, which is
strict: "3" is no int, but 3 is a float. pydantic's models keep their own mode, the one for JSON. An
error names the place in the value, as in `run.items[2].price: expected float, got str 'abc'`.

A value that a client sends is JSON as it is, or has objects in it: of a dataclass, of attrs, a
Struct, a model. Only if it is not JSON it is looked through for these.

`fault_of` finds where a value differs from a JSON Schema, as `runs start` does before it starts a
run; `example_of` makes an example of a schema, for a form to begin with. They know what msgspec and
pydantic write into schemas, and pass over the rest: they refuse nothing of which they are not sure.
They need no library, so a machine that only starts runs has none.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from datetime import date, datetime
from functools import lru_cache
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pgflowd.core.json import as_stored, encode
from pgflowd.core.redact import one_line, shown
from pgflowd.core.text import with_article
from pgflowd.core.typed.annotations import Contents, contents, is_pydantic, is_struct, type_name
from pgflowd.errors import FlowError, OutputError, Problem, TypeMismatch

OUTPUT = "return"
_INSTALL = "install pgflowd[typed], or write Flow(…, decode=False)"
_PLACE = re.compile(r"(.*?)(?: - at `(?:key in )?\$(.*)`)?", re.DOTALL)
_KEYS = re.compile(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])")
_MISSING = re.compile(r"Object missing required field `(.*)`")


class Undecodable(Exception):
    """No library can decode an annotation."""

    def __init__(self, text: str, remedy: str) -> None:
        self.text, self.remedy = text, remedy
        super().__init__(f"{text}; {remedy}")


class Misfit(Exception):
    """A value does not fit a type; the text names the place in it."""


def codec_of(annotation: Any) -> Codec:
    """The codec of an annotation. Raises Undecodable."""
    try:
        return _made(annotation)
    except TypeError:  # some constraints have no hash
        return _made.__wrapped__(annotation)


@lru_cache(maxsize=1000)
def _made(annotation: Any) -> Codec:
    found = contents(annotation)
    if found.of_pydantic and found.of_msgspec:
        mixed = f"{found.of_msgspec[0]} is of msgspec, and {found.of_pydantic[0]} of pydantic"
        raise Undecodable(mixed, "let one library have all of it")
    return PydanticCodec(annotation) if found.of_pydantic else MsgspecCodec(annotation, found)


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
        if contents(annotation).has_shape:
            yield name, annotation


class _LibraryCodec:
    """Copied and pickled by its annotation, since the modules of libraries cannot be."""

    annotation: Any

    def __reduce__(self) -> Any:
        return codec_of, (self.annotation,)


class MsgspecCodec(_LibraryCodec):
    """The codec of an annotation without types of pydantic."""

    def __init__(self, annotation: Any, found: Contents) -> None:
        try:
            import msgspec
        except ImportError:
            text = f"{type_name(annotation)} needs msgspec, which is not installed"
            raise Undecodable(text, _INSTALL) from None
        if found.unknown:
            remedy = "write Any for what stays as JSON has it, or let pydantic decode it"
            raise Undecodable(f"{found.unknown[0]}, which msgspec cannot decode", remedy)
        try:
            msgspec.json.Decoder(annotation, dec_hook=_path_from)
        except Exception as error:  # such as a name in a class that cannot be resolved
            text = one_line(str(error), 400)
            raise Undecodable(text, "change it, or write Flow(…, decode=False)") from None
        self.annotation, self._msgspec = annotation, msgspec

    def decode(self, value: Any, what: str) -> Any:
        """The typed value of a JSON value, or Misfit."""
        try:
            return self._msgspec.convert(
                value, self.annotation, strict=True, str_keys=True, dec_hook=_path_from
            )
        except self._msgspec.ValidationError as error:
            raise Misfit(_text_of_msgspec(str(error), value, what)) from None

    def encode(self, value: Any, what: str) -> Any:
        """The JSON value of a typed one, which fits the annotation, or Misfit."""
        try:
            plain = self._msgspec.to_builtins(value, str_keys=True, enc_hook=_text_of_path)
        except (TypeError, NotImplementedError, RecursionError) as error:
            raise Misfit(f"{what}: {_lower(str(error))}") from None
        self.decode(plain, what)
        return plain

    def schema(self, refs: str, *, of_output: bool) -> dict[str, Any] | None:
        """Its JSON Schema, whose definitions are at `refs`; None if it has none."""
        try:
            (schema,), defs = self._msgspec.json.schema_components(
                (self.annotation,), schema_hook=_schema_of_path, ref_template=f"{refs}{{name}}"
            )
        except Exception:  # a type that only its own hooks know
            return None
        return {**schema, "$defs": defs} if defs else dict(schema)


class PydanticCodec(_LibraryCodec):
    """The codec of an annotation with types of pydantic."""

    def __init__(self, annotation: Any) -> None:
        try:
            import pydantic
            import pydantic_core

            self._adapter = pydantic.TypeAdapter(annotation)
        except Exception as error:
            text = f"{type_name(annotation)}: {one_line(str(error).partition('. ')[0], 400)}"
            raise Undecodable(text, "change it, or write Flow(…, decode=False)") from None
        self.annotation = annotation
        self._pydantic, self._core = pydantic, pydantic_core

    def decode(self, value: Any, what: str) -> Any:
        try:
            return self._adapter.validate_json(self._core.to_json(value))
        except self._pydantic.ValidationError as error:
            raise Misfit(_text_of_pydantic(error.errors()[0], what)) from None

    def encode(self, value: Any, what: str) -> Any:
        try:
            fitting = self._adapter.validate_python(value)
            return self._adapter.dump_python(fitting, mode="json", by_alias=True, warnings="error")
        except self._pydantic.ValidationError as error:
            raise Misfit(_text_of_pydantic(error.errors()[0], what)) from None
        except (self._core.PydanticSerializationError, UnicodeDecodeError) as error:
            raise Misfit(f"{what}: {one_line(str(error), 400)}") from None

    def schema(self, refs: str, *, of_output: bool) -> dict[str, Any] | None:
        try:
            return self._adapter.json_schema(
                ref_template=f"{refs}{{model}}",
                mode="serialization" if of_output else "validation",
            )
        except Exception:  # a type that has no schema
            return None


Codec = MsgspecCodec | PydanticCodec  # what decodes and encodes the values of one annotation


def _path_from(cls: type, value: Any) -> Any:
    """Let msgspec decode paths, which it does not know."""
    if issubclass(cls, PurePath) and isinstance(value, str):
        return cls(value)
    raise TypeError(f"expected {cls.__name__}, got {type(value).__name__}")


def _text_of_path(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{with_article(type(value).__name__)} has no JSON")


def _schema_of_path(cls: type) -> dict[str, Any]:
    if issubclass(cls, PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError


def _text_of_msgspec(text: str, value: Any, what: str) -> str:
    found = _PLACE.fullmatch(text)
    assert found is not None
    reason, place = found[1], found[2] or ""
    if missing := _MISSING.fullmatch(reason):
        return f"{what}{place}: field '{missing[1]}' is missing"
    key = ""
    for name, index, any_key in _KEYS.findall(place):
        try:
            value = value[int(index)] if index else value[name]
        except (LookupError, TypeError):
            any_key = "yes"
        if any_key:  # of a dict; which one is not told
            return f"{what}{place}: {_lower(reason)}"
        key = name or key
    return f"{what}{place}: {_lower(reason)}{' ' if 'got' in reason else ': '}{shown(value, key)}"


def _text_of_pydantic(error: Any, what: str) -> str:
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error["loc"])
    if error["type"] == "missing":
        name = error["loc"][-1] if error["loc"] else ""
        return f"{what}{place[: -len(str(name)) - 1]}: field '{name}' is missing"
    reason = _lower(error["msg"].replace("Input should be ", "expected ", 1))
    key = next((each for each in reversed(error["loc"]) if isinstance(each, str)), "")
    kind = type(error["input"]).__name__
    return f"{what}{place}: {reason}, got {kind} {shown(error['input'], key)}"


def _lower(text: str) -> str:
    text = text.replace("`", "")
    return text[:1].lower() + text[1:]


def encode_value(value: Any, *, what: str) -> str:
    """The JSON text of a value with or without objects. Raises E403, E417, E216."""
    try:
        return encode(value, what=what)
    except OutputError:
        found = _plain(value, what)
        if found is value:
            raise
        return encode(found, what=what)


def stored_value(value: Any, *, what: str) -> Any:
    """The value as the database gives it back."""
    try:
        return as_stored(value, what=what)
    except OutputError:  # perhaps it has objects in it
        return as_stored(_plain(value, what), what=what)


def read_as(value: Any, as_type: Any, what: str) -> Any:
    """A JSON value as this type, or as it is. Raises E417, and E216 if nothing can decode it."""
    if as_type is None:
        return value
    try:
        codec = codec_of(as_type)
    except Undecodable as error:
        raise _undecodable(error) from None
    return decoded(codec, value, what)


def _plain(value: Any, what: str) -> Any:
    cls = type(value)
    if is_dataclass(cls) or hasattr(cls, "__attrs_attrs__") or is_struct(cls) or is_pydantic(cls):
        try:
            return codec_of(cls).encode(value, what)
        except Undecodable as error:
            raise _undecodable(error) from None
        except Misfit as error:
            text = f"{error} ({what}: {type_name(cls)})"
            raise TypeMismatch(text, next="send what fits its class") from None
    if isinstance(value, dict):
        inside = {key: _plain(each, f"{what}.{key}") for key, each in value.items()}
        return inside if any(inside[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple):
        elements = [_plain(each, f"{what}[{at}]") for at, each in enumerate(value)]
        is_new = any(new is not old for new, old in zip(elements, value, strict=True))
        return elements if is_new else value
    return value


def _undecodable(error: Undecodable) -> FlowError:
    return FlowError([Problem("E216", error.text, next=error.remedy)])


_KINDS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_FORMATS: dict[str, Callable[[str], Any]] = {
    "uuid": UUID,
    "date": date.fromisoformat,
    "date-time": datetime.fromisoformat,
}


def _matches(value: str, pattern: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:  # of another dialect
        return True


def _has_format(value: str, name: str) -> bool:
    try:
        _FORMATS.get(name, str)(value)
    except ValueError:
        return False
    return True


# what a schema asks of a scalar or a length beyond its type: of which type, whether a value has it,
# and what was expected
_RULES: dict[str, tuple[str, Callable[[Any, Any], bool], str]] = {
    "minimum": ("number", operator.ge, "at least {}"),
    "maximum": ("number", operator.le, "at most {}"),
    "exclusiveMinimum": ("number", operator.gt, "more than {}"),
    "exclusiveMaximum": ("number", operator.lt, "less than {}"),
    "minLength": ("string", lambda value, least: len(value) >= least, "at least {} characters"),
    "maxLength": ("string", lambda value, most: len(value) <= most, "at most {} characters"),
    "minItems": ("array", lambda value, least: len(value) >= least, "at least {} elements"),
    "maxItems": ("array", lambda value, most: len(value) <= most, "at most {} elements"),
    "pattern": ("string", _matches, "what matches {}"),
    "format": ("string", _has_format, "a {}"),
}
_MAX_DEPTH = 8  # a schema may name itself
_EXAMPLES = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "uuid": "00000000-0000-0000-0000-000000000000",
}


def fault_of(schema: Any, value: Any, what: str) -> str | None:
    """The first place where the value does not fit, and why; None if it fits."""
    return next(_faults(schema, value, what, "", schema), None)


def _faults(schema: Any, value: Any, place: str, key: str, root: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping):  # true
        return

    def expected(what: str) -> str:
        return f"{place}: expected {what}, got {shown(value, key)}"

    if target := target_of(schema.get("$ref"), root):
        yield from _faults(target, value, place, key, root)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if schema.get("format") == "decimal":  # a number is decoded, too
        kinds = [*kinds, "number"]
    if kinds and not any(_KINDS[kind](value) for kind in kinds if kind in _KINDS):
        kind = next(name for name, is_of in _KINDS.items() if is_of(value) and name != "integer")
        yield f"{place}: expected {' or '.join(kinds)}, got {kind} {shown(value, key)}"
        return
    options = schema.get("enum", [schema["const"]] if "const" in schema else None)
    is_flag = isinstance(value, bool)
    same = [value == each and is_flag == isinstance(each, bool) for each in options or ()]
    if options is not None and not any(same):
        yield expected(" or ".join(map(repr, options)))
    for name, (kind, fits, words) in _RULES.items():
        if name in schema and _KINDS[kind](value) and not fits(value, schema[name]):
            yield expected(words.format(schema[name]))
    for each in schema.get("allOf", ()):
        yield from _faults(each, value, place, key, root)
    for choices in (schema.get("anyOf", ()), schema.get("oneOf", ())):
        faults = [next(_faults(each, value, place, key, root), None) for each in choices]
        if faults and None not in faults:
            deeper = [text for text in faults if text and not text.startswith(f"{place}: ")]
            several = f"{place}: fits none of {len(faults)} types, got {shown(value, key)}"
            yield deeper[0] if len(deeper) == 1 else several
    if isinstance(value, list):
        first = schema.get("prefixItems", ())
        for at, each in enumerate(value):
            inner = first[at] if at < len(first) else schema.get("items", True)
            if inner is False:
                yield f"{place}: expected at most {len(first)} elements, got {len(value)}"
                return
            yield from _faults(inner, each, f"{place}[{at}]", key, root)
    elif isinstance(value, dict):
        missing = (name for name in schema.get("required", ()) if name not in value)
        yield from (f"{place}: field '{name}' is missing" for name in missing)
        fields, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, each in value.items():
            if (inner := fields.get(name, others)) is False:
                yield f"{place}: field '{name}' is refused"
            yield from _faults(inner, each, f"{place}.{name}", name, root)


def target_of(ref: Any, root: Any) -> Any:
    """What a reference within the schema leads to."""
    if not isinstance(ref, str) or not ref.startswith("#/"):
        return None
    target = root
    for part in ref[2:].split("/"):
        target = target.get(part.replace("~1", "/").replace("~0", "~"), {})
    return target


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def example_of(schema: Any, whole: Any = None, depth: int = 0) -> Any:
    """Return a value that the schema describes, which is a part of the whole one."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None
    whole = schema if whole is None else whole
    if "$ref" in schema:
        return example_of(target_of(schema["$ref"], whole), whole, depth + 1)
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return example_of(schema[key][0], whole, depth + 1)
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            fields, required = schema.get("properties", {}), schema.get("required", ())
            return {name: example_of(fields.get(name), whole, depth + 1) for name in required}
        case "array":
            least = schema.get("minItems", 0)
            return [example_of(schema.get("items"), whole, depth + 1)] * least
        case "string":
            text = _EXAMPLES.get(schema.get("format", ""), "")
            return text.ljust(schema.get("minLength", 0), "x")
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        case "boolean":
            return False
    return None
