"""Wrong definitions; `wrong_flows.txt` has the problems that are reported about them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import datetime

from pgflowd.flow import Flow, job

order = Flow("process_order", timeout=0, max_attemps=3)


@order.step
def validate(run): ...


@order.step
def charge(validated): ...


@order.step(depends_on="chargee", timout=3)
def ship(run, Validate): ...


@order.step(after=["pack"])
def email(run, *args, **more): ...


@order.map(over=charge)
def notify(item, email): ...


@order.map
def each(validate): ...


@order.map(depends_on=["validate"])
def every(item, run, ctx): ...


@order.step(over="validate")
def wrong_over(validate): ...


@order.step
def takes_item(item, /, validate): ...


@order.step
def too_much(input, run, charge): ...


cycle = Flow("cycle")


@cycle.step
def a(c): ...


@cycle.step
def b(a): ...


@cycle.step
def c(b): ...


@cycle.step
def itself(itself): ...


slugs = Flow("a_flow_slug_that_is_longer_than_forty_seven_characters")
slugs.step(lambda run: 1)


@slugs.step
def run(): ...


@slugs.step(slug="save-to-db")
def save(): ...


@slugs.step(slug="Twice")
def twice(): ...


@slugs.step(slug="twice")
def again(): ...


@slugs.step(slug="twice")
def and_again(): ...


@slugs.step
def _private__(): ...


@slugs.step(slug="x" * 129)
def long(): ...


@slugs.step(slug=7)
def number(): ...


@slugs.step("fetch")
def positional(): ...


options = Flow("options", base_delay=-1, timeout=True, max_attempts=0)


@options.step(timeout=0.5, start_delay="5", when_exhausted="skpi", max_attempts=2**31)
def numbers(): ...


@options.step(when_unmet="fail")
def no_condition(): ...


@options.step(if_=[1], if_not={"at": {1, 2}})
def patterns(): ...


@options.step(if_={"x": 1})
def maybe(run): ...


@options.step(if_={"auto": True}, if_not={"maybe": 1, "kind": "a", "x": 1})
def unmet(maybe=None): ...


@options.step(when_exhausted="skip")
def flaky(): ...


@options.step
def all_of_them(maybe, flaky, numbers=None): ...


@job("run")
def reserved(run): ...


@job("send email", retries=3)
def send(item): ...


habits = Flow("import-orders")  # the style of other frameworks


@habits.step
def fetch_items(run):
    return list(range(run))


@habits.map(fetch_items)
def store_item(item): ...


@habits.step(fetch_items)
def report(input): ...


class Steps:
    @habits.step
    def method(self, run): ...

    @habits.step
    @classmethod
    def of_class(cls, run): ...


@habits.map(over=fetch_items)
def send_item(element): ...


@habits.step
def tuned(run, retries=3): ...


habits.step(functools.partial(tuned, retries=4))
habits.step(42)


@job
def send_bill(run): ...


def reminder(run): ...


first_reminder = job("first_reminder")(reminder)
last_reminder = job("last_reminder")(reminder)

typed = Flow("typed", decode="no")


@dataclass
class Quote:
    price: float


@dataclass
class Priced:
    total: float
    when: datetime


class Rect:
    pass


@dataclass
class Drawn:
    where: Rect


@typed.step
def quote(run: Quot) -> Quote: ...  # noqa: F821


@typed.step
def bill(quote: Priced) -> list[int]: ...


@typed.step
def draw(quote, bill: list[str]) -> Drawn: ...


@typed.step
def table(quote) -> dict: ...


@typed.map(over=table)
def row(item): ...


FLOWS = [order, cycle, slugs, options, reserved.flow, send.flow, habits, send_bill.flow]
FLOWS += [last_reminder.flow, typed]
