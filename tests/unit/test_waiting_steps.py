"""Steps that only wait: what they are to the database, and what becomes of a signal."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pgflowd import Fail, Flow
from pgflowd.core.failure import APPROVAL
from pgflowd.core.waiting import RAISE, Suspended, Wait, WaitKind
from pgflowd.testing import run_flow


class Ctx:
    """Answers `wait_signal`, or suspends."""

    def __init__(self, answer: Any = RAISE) -> None:
        self.answer, self.asked = answer, None

    def wait_signal(self, name: str, **how: Any) -> Any:
        self.asked = (name, how)
        if self.answer is RAISE:
            raise Suspended(Wait(WaitKind.SIGNAL, name, f"signal {name} 1"))
        return self.answer


def test_to_the_database_a_step_that_waits_is_like_any_other():
    flow = Flow("shop")

    @flow.step
    def invoice(run): ...

    flow.wait_for("paid", after=invoice, timeout="7d", default=None, when_exhausted="skip")
    flow.approval("approve", after=["paid"], max_attempts=1, if_={"paid": {"large": True}})

    assert flow.check() == []
    _, paid, approve = flow.shape()["steps"]
    assert (paid["stepType"], paid["dependencies"]) == ("single", ["invoice"])
    assert "timeout" not in str(paid["options"])  # that of an attempt stays an ordinary one
    assert paid["whenExhausted"] == "skip"
    assert approve["options"] == {"maxAttempts": 1}


def test_the_output_is_the_payload_of_the_signal_with_the_name_of_the_step():
    ctx = Ctx({"amount": 12})
    paid = Flow("shop").wait_for("paid", timeout=60, default={"amount": 0})

    assert paid(ctx) == {"amount": 12}
    assert ctx.asked == ("paid", {"timeout": 60, "default": {"amount": 0}})


def test_the_wait_of_an_approval_says_so_and_that_of_another_step_does_not():
    flow = Flow("trips")
    with pytest.raises(Suspended) as approval:
        flow.approval("approve")(Ctx())
    with pytest.raises(Suspended) as other:
        flow.wait_for("paid")(Ctx())

    assert (approval.value.wait.why, other.value.wait.why) == (APPROVAL, None)


def test_an_approval_says_who_approved_and_a_rejection_fails_for_good():
    yes = {"approved": True, "by": "ann", "note": "have fun"}
    approve = Flow("trips").approval("approve")

    assert approve(Ctx(yes)) == yes
    with pytest.raises(Fail, match=r"^rejected by ann: too far$"):
        approve(Ctx({"approved": False, "by": "ann", "note": "too far"}))
    with pytest.raises(Fail, match=r"^rejected by ann$"):
        approve(Ctx({"approved": False, "by": "ann", "note": ""}))


def test_a_signal_that_is_no_answer_is_passed_over(caplog):
    flow = Flow("trips")
    flow.approval("approve")
    yes = {"approved": True, "by": "ann"}
    others = [None, 7, "yes", [], {}, {"approved": "yes"}, {"by": "ann"}]

    run = run_flow(flow, signals={"approve": [*others, yes]})

    assert run.output == {"approve": {**yes, "note": ""}}
    (warning,) = {record.getMessage() for record in caplog.records}
    assert warning.startswith("signal approve is no answer, and is passed over; `pgflowd runs ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"timeout": "7 days"}, "timeout is '7 days'"),
        ({"timeout": -1}, "timeout is not 0 or more"),
        ({"timeout": timedelta(days=200 * 365)}, "more than 100 years"),
        ({"default": {1, 2}}, "default is a set"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"retries": 3}, "there is no option 'retries'"),
        ({"after": "invoise"}, "'invoise', which is not a step of shop; did you mean 'invoice'?"),
    ],
)
def test_a_mistake_is_reported_with_its_place(given, said):
    flow = Flow("shop")
    flow.step(slug="invoice")(lambda run: 1)
    flow.wait_for("paid", **given)

    (problem,) = flow.check()

    assert said in str(problem)
    assert problem.place.startswith("tests/unit/test_waiting_steps.py:")


def test_the_slug_of_a_step_that_waits_is_checked_as_any_other():
    flow = Flow("shop")
    flow.wait_for("is paid")
    flow.approval(7)

    assert [problem.code for problem in flow.check()] == ["E203", "E203"]
