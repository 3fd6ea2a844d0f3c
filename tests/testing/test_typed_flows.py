"""Handlers whose annotations name shapes: what they get, what is stored, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Coroutine
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from support.covers import covers
from typing_extensions import TypedDict

from pgflowd import Context, Flow, FlowError, OutputError, TypeMismatch
from pgflowd.core.typed.codec import codec_of, encode_value
from pgflowd.testing import fake_context, run_flow

ID = UUID(int=7)


class Size(Enum):
    SMALL = "S"
    LARGE = "L"


@dataclass
class Item:
    price: float
    size: Size = Size.SMALL


@dataclass
class Order:
    id: UUID
    items: list[Item]
    at: datetime | None = None


class Line(TypedDict):
    item: Item


@attrs.define
class Parcel:
    weight: Decimal


class Point(NamedTuple):
    x: int
    y: int = 0


class Priced(msgspec.Struct):
    total: Decimal
    tags: set[str] = set()


class Label(pydantic.BaseModel):
    text: str
    copies: Annotated[int, pydantic.Field(gt=0)] = 1


orders = Flow("orders", max_attempts=2)
undone: list[Any] = []


@orders.step
def lines(run: Order) -> list[Line]:
    assert run.id == ID
    return [{"item": each} for each in run.items]


@orders.map(over=lines)
async def pack(item: Line, ctx: Context) -> Parcel:
    assert ctx.flow_input(Order).id == ID
    return Parcel(Decimal(str(item["item"].price)))


@orders.step
def price(pack: list[Parcel], ctx: Context) -> Priced:
    return Priced(sum(each.weight for each in pack) + Decimal(0), {"new"})


paid = orders.wait_for("paid", after=price)


@orders.step
def ship(price: Priced, paid: Label, run: Order, ctx: Context) -> Label:
    assert ctx.step_output("price", Priced) == price
    return Label(text=f"{price.total} {paid.text}", copies=paid.copies)


@orders.step
def boom(ship: Label) -> Point:
    raise RuntimeError


@orders.undo(ship)
def recall(ship: Label, run: Order, ctx: Context) -> Point:
    undone.append((ship, ctx.flow_input(Order) == run))
    return Point(3)


@orders.undo(pack)
def unpack(pack: Parcel, item: Line) -> None:
    undone.append((pack.weight, item["item"].size))


def test_a_flow_of_all_libraries_gets_and_stores_its_types() -> None:
    given = Order(ID, [Item(1.5, Size.LARGE), Item(3)])

    run = run_flow(orders, given, signals={"paid": Label(text="thanks")})

    assert orders.check() == []
    assert run.status == "undone"
    assert run.steps["pack"].output == [{"weight": "1.5"}, {"weight": "3.0"}]
    assert run.output_as("price", Priced) == Priced(Decimal("4.5"), {"new"})
    assert run.output_as("ship", Label) == Label(text="4.5 thanks")
    assert run.undo is not None and run.undo.steps["undo_ship"].output == [3, 0]
    assert (Label(text="4.5 thanks"), True) in undone and (Decimal("3.0"), Size.SMALL) in undone


def one(handler: Any, input: Any, **options: Any) -> Any:
    flow = Flow("one", **{"max_attempts": 2, "base_delay": 0, **options})
    flow.step(slug="only")(handler)
    return run_flow(flow, input).steps["only"]


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (Order, {"id": str(ID), "items": [{"price": 1}, {"price": "x"}]},
         "E417 run.items[1].price: expected float, got str 'x' (run: Order); send what fits"),
        (Order, {"id": str(ID)}, "E417 run: field 'items' is missing (run: Order)"),
        (dict[str, Item], {"a": {"price": None}}, "E417 run[...].price: expected float, got null"),
        (Literal["a"], "b", "E417 run: invalid enum value 'b': 'b' (run: Literal['a'])"),
        (Label, {"text": 3}, "E417 run.text: expected a valid string, got int 3 (run: Label)"),
        (list[Label], [{"copies": 0}], "E417 run[0]: field 'text' is missing (run: list[Label])"),
        (Label, {"text": "", "copies": 0}, "E417 run.copies: expected greater than 0, got int 0"),
        (Point, ["x" * 200], "E417 run[0]: expected int, got str 'xxxx"),
    ],
)  # fmt: skip
def test_an_input_that_does_not_fit_fails_for_good_with_its_place(
    annotation: Any, value: Any, says: str
) -> None:
    def handler(run): ...

    handler.__annotations__["run"] = annotation
    step = one(handler, value)

    assert step.error.startswith(says) and step.attempts == 1
    assert len(step.error) < 220


def test_a_secret_in_a_wrong_value_is_not_shown() -> None:
    class Login(TypedDict):
        password: int

    def handler(run): ...

    handler.__annotations__["run"] = Login

    assert "hunter2" not in one(handler, {"password": "hunter2"}).error


@covers("E418")
@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (Priced, {"total": "x"}, "E418 output.total: invalid decimal string: 'x' (output: Priced)"),
        (Priced, Item(3), "E418 output: field 'total' is missing (output: Priced)"),
        (Label, Item(3), "E418 output: expected a valid dictionary or instance of Label"),
        (list[Item], [object()], "E418 output: an object has no JSON (output: list[Item])"),
        (Item, Item(float("nan")), "E403 output.price is NaN"),
        (Label, Label.model_construct(text=3), "E418 output: Pydantic serializer warnings"),
    ],
)
def test_an_output_that_does_not_fit_is_a_failed_attempt(
    annotation: Any, value: Any, says: str
) -> None:
    def handler(run):
        return value

    handler.__annotations__["return"] = annotation
    step = one(handler, 1)

    assert step.error.startswith(says)
    assert step.attempts == (1 if "E403" in says else 2)


def test_a_handler_may_take_all_as_one_and_return_a_coroutine() -> None:
    class Both(TypedDict):
        run: Order
        first: Item

    flow = Flow("both")

    @flow.step
    def first(run: Order) -> Coroutine[Any, Any, Item]:
        async def item() -> Item:
            return run.items[0]

        return item()

    def both(input):
        return [input["first"], *input["run"].items]

    both.__annotations__ = {"input": Both, "return": Collection[Item]}
    flow.step(depends_on=first)(both)
    run = run_flow(flow, Order(ID, [Item(1)]))

    assert [each["price"] for each in run.output["both"]] == [1.0, 1.0]


def test_an_annotation_that_cannot_be_resolved_is_a_note() -> None:
    flow = Flow("names")

    @flow.step
    def first(run: Oder, ctx: Contxt) -> Sequence[int]: ...  # noqa: F821

    assert flow.check() == []
    assert flow.steps["first"].codec is None


def test_an_output_may_be_plain_if_it_fits() -> None:
    def handler(run) -> Label:
        return {"text": "x"}

    assert one(handler, None).output == {"text": "x", "copies": 1}


def test_json_annotations_are_notes_and_decode_false_makes_notes_of_all() -> None:
    def note(run: dict[str, int], ctx: Context) -> list[str]:
        return run

    def shape(run: Order) -> Priced:
        return run

    assert one(note, {"a": "b"}).output == {"a": "b"}
    assert one(shape, 3, decode=False).output == 3


def test_nothing_is_imported_for_who_does_not_use_it() -> None:
    code = """
        import sys
        from pgflowd import Client, Flow, Context
        from pgflowd.testing import run_flow
        flow = Flow("plain")
        @flow.step
        def step(run: dict[str, int], ctx: Context) -> "list[str | None]": return [str(run)]
        assert flow.check() == [] and flow.spec.steps[0].codec is None
        assert run_flow(flow, {}).status == "completed"
        assert not {"msgspec", "pydantic", "attr"} & set(sys.modules), "imported"
    """
    lines = "\n".join(line[8:] for line in code.splitlines())
    subprocess.run([sys.executable, "-c", lines], check=True, timeout=60)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    flow = Flow("missing")

    @dataclass
    class Fresh:
        a: int

    def handler(run): ...

    handler.__annotations__["run"] = Fresh
    flow.step(handler)

    (problem,) = flow.check()
    assert problem.code == "E216" and "install pgflowd[typed]" in str(problem)
    with pytest.raises(FlowError, match=r"E216 .*needs msgspec"):
        fake_context(run_input={"a": 1}).flow_input(Fresh)


def test_what_no_library_has_as_a_whole_is_refused() -> None:
    class Mixed(pydantic.BaseModel):
        model_config = {"arbitrary_types_allowed": True}
        inner: Priced

    def mixed(run): ...

    mixed.__annotations__["run"] = Mixed
    flow = Flow("mixed")
    flow.step(mixed)

    (problem,) = flow.check()
    assert "Priced is of msgspec, and Mixed of pydantic" in str(problem)
    assert problem.code == "E216"


def test_clients_encode_objects_anywhere_in_an_input() -> None:
    assert encode_value(Order(ID, []), what="input") == (
        '{"id":"00000000-0000-0000-0000-000000000007","items":[],"at":null}'
    )
    assert encode_value({"a": [Label(text="x"), Item(1)]}, what="input") == (
        '{"a":[{"text":"x","copies":1},{"price":1,"size":"S"}]}'
    )
    assert encode_value([1, None], what="input") == "[1,null]"
    with pytest.raises(TypeMismatch, match=r"E417 input.a\[0\].price: expected float, got str 'x'"):
        encode_value({"a": [Item("x")]}, what="input")  # type: ignore[arg-type]
    with pytest.raises(OutputError, match=r"E403 input.at is a datetime.*isoformat"):
        encode_value({"at": datetime(2026, 1, 1), "it": Item(1)}, what="input")


def test_paths_and_large_numbers_come_through() -> None:
    codec = codec_of(dict[str, Path | None])

    assert codec.encode({"a": Path("x/y")}, "it") == {"a": "x/y"}
    assert codec.decode({"a": "x/y", "b": None}, "it") == {"a": Path("x/y"), "b": None}
    assert codec_of(dict[int, Size]).decode({"7": "S"}, "it") == {7: Size.SMALL}
