"""Releases for which handlers ask: their attempts are not spent, within a limit of time."""

from __future__ import annotations

from typing import Any

import pytest
from support.leases import LeaseDatabase, Row


def asked(task: Row, delay: str = "60 s", at_most_s: float = 600) -> dict[str, Any]:
    return {
        "run_id": str(task.run_id),
        "step_slug": task.step_slug,
        "task_index": task.task_index,
        "token": task.token,
        "outcome": "released",
        "error_type": "RetryAfter",
        "error_message": "429",
        "delay": delay,
        "wait": {"at_most_s": at_most_s},
    }


def ask(db: LeaseDatabase, flow: str, *, ago: str = "0 s", **more: Any) -> Row:
    """Claim the task, let its handler ask, and let that have been a while ago."""
    [answer] = db.report(asked(task := db.claim_one(flow, db.worker(flow)), **more))
    db.do("update pgflowd.attempts set ended_at = ended_at - %s::interval", ago)
    db.show(task)
    return answer


def test_an_attempt_is_spent_when_it_has_been_asked_for_so_long(db: LeaseDatabase) -> None:
    flow = db.flow(max_attempts=2)
    run = db.start(flow)

    answers = [ask(db, flow, ago="150 s") for _ in range(4)]
    assert [(each.verdict, each.message) for each in answers] == [("queued", None)] * 4
    assert db.task(run).attempts_count == 0

    spent = ask(db, flow)  # 600 s after the first one, and 60 more
    assert (spent.verdict, spent.sqlstate) == ("queued", None)
    assert spent.message.startswith("429; it would end more than 600 s (at_most)")
    assert db.task(run).attempts_count == 1
    assert ask(db, flow, ago="500 s").message is None  # a new series
    assert ask(db, flow, ago="500 s").message is None
    assert ask(db, flow).verdict == "failed"
    assert db.value("select status from pgflow.runs where run_id = %s", run) == "failed"


def test_a_delay_beyond_the_limit_spends_the_first_one(own: LeaseDatabase) -> None:
    flow = own.flow(max_attempts=1)
    own.start(flow)

    assert ask(own, flow, delay="601 s").verdict == "failed"


@pytest.mark.parametrize(
    ("between", "is_anew"),
    [("fail", True), ("suspend", True), ("release", False), ("lapse", False)],
)
def test_what_an_attempt_that_ended_otherwise_means(
    own: LeaseDatabase, between: str, is_anew: bool
) -> None:
    flow = own.flow(max_attempts=5)
    run = own.start(flow)
    assert ask(own, flow, ago="700 s").message is None
    task = own.claim_one(flow, own.worker(flow))
    if between == "suspend":
        own.suspend(task)
        own.free(task)
    elif between == "lapse":
        own.lapse(task)
        own.recover()
    else:
        getattr(own, between)(task)
    own.do("select pgmq.set_vt(%s, msg_id, 0) from pgmq.q_" + flow, flow)

    assert (ask(own, flow).message is None) is is_anew
    assert own.outcomes(run)[0] == "released"


def test_the_same_report_again_is_repeated(db: LeaseDatabase) -> None:
    flow = db.flow(max_attempts=2)
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))

    [spent] = db.report(asked(task, delay="700 s"))
    [again] = db.report(asked(task, delay="700 s"))

    assert (spent.verdict, again.verdict) == ("queued", "repeated")
    assert db.task(run).attempts_count == 1


def test_a_handler_that_asks_has_not_ended_its_worker(own: LeaseDatabase) -> None:
    own.set("crash_limit", 3)
    flow = own.flow()
    run = own.start(flow)

    for _ in range(4):
        own.lapse(own.claim_one(flow, own.worker(flow)))
        own.recover()
        own.do("select pgmq.set_vt(%s, msg_id, 0) from pgmq.q_" + flow, flow)
        assert ask(own, flow).verdict == "queued"

    assert own.value("select count(*) from pgflowd.waits where kind = 'quarantined'") == 0
    assert own.task(run).status == "queued"
