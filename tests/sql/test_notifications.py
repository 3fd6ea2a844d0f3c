"""On a plain PostgreSQL events are notifications, which every role can receive."""

import json
import uuid

import pytest
from support.covers import covers


@pytest.fixture
def follow(shared):
    """Listen to a run before it starts; return its id, and a function for its notifications."""
    listener = shared.session(autocommit=True)

    def begin():
        run = uuid.uuid4()
        listener.do(f'listen "pgflow:run:{run}"')
        listener.do("select pgflowd.follow(%s)", [run])

        def received(count):
            """So many events, and those that came with them; commits arrive in order."""
            found = listener.conn.notifies(timeout=5, stop_after=count)
            return [json.loads(one.payload) for one in found]

        return run, received

    return begin


def kinds(payloads):
    return [
        ":".join(filter(None, [p["event_type"].split(":")[0], p.get("step_slug"), p["status"]]))
        for p in payloads
    ]


def test_a_run_is_followed_from_its_start_to_its_end(shared, follow):
    shared.flow("f", "a", "m*: a")
    run, received = follow()

    shared.start("f", {"x": 1}, run)
    assert kinds(received(2)) == ["run:started", "step:a:started"]
    shared.claim("f")
    shared.complete(run, "a", [1])
    assert kinds(received(2)) == ["step:a:completed", "step:m:started"]
    shared.claim("f")
    shared.complete(run, "m", 2)
    assert kinds(received(2)) == ["step:m:completed", "run:completed"]


@covers("database 12")
@pytest.mark.parametrize("size", [10, 9000])
def test_no_payload_has_anything_that_a_role_without_rights_may_not_know(shared, follow, size):
    secret = "s3cret" * size
    shared.flow("f", "a", ("b: a", {"when_exhausted": "skip"}), "c: a", max_attempts=1)
    run, received = follow()

    shared.start("f", {"x": secret}, run)
    shared.claim("f")
    shared.complete(run, "a", secret)
    shared.claim("f")
    shared.fail(run, "b", secret)
    shared.do("select pgflowd.cancel(%s, %s, %s)", run, secret, secret)

    payloads = received(8)
    assert kinds(payloads)[-2:] == ["step:c:failed", "run:failed"]
    assert payloads[0] == {"event_type": "run:started", "run_id": str(run), "status": "started"}
    assert payloads[1] == {
        "event_type": "step:started", "run_id": str(run), "step_slug": "a", "status": "started",
    }  # fmt: skip
    assert "s3cret" not in json.dumps(payloads)


@pytest.mark.parametrize("size", [3999, 200_000])
def test_a_long_error_message_does_not_lose_the_failure(shared, follow, size):
    shared.flow("f", "a", max_attempts=1)
    run, received = follow()
    shared.start("f", {}, run)
    shared.claim("f")

    shared.fail(run, "a", "é" * (size // 2))

    assert shared.run(run)["status"] == "failed"
    assert shared.task(run, "a")["error_message"] == "é" * (size // 2)
    assert kinds(received(4))[-2:] == ["step:a:failed", "run:failed"]


def test_a_long_slug_is_named(shared, follow):
    slug = "s" * 128
    shared.flow("f", (slug, {"when_exhausted": "skip"}), max_attempts=1)
    run, received = follow()
    shared.start("f", {}, run)
    shared.claim("f")

    shared.fail(run, slug, "why")

    assert kinds(received(4))[-2:] == [f"step:{slug}:skipped", "run:completed"]


def test_each_transition_is_notified_once(shared, follow):
    shared.flow("f", ("a", {"when_exhausted": "skip"}), "b: a", "m*: a", max_attempts=1)
    run, received = follow()
    shared.start("f", {}, run)
    shared.claim("f")
    shared.fail(run, "a", "why")
    shared.fail(run, "a", "why")

    assert sorted(kinds(received(5))) == sorted(
        ["run:started", "step:a:started", "step:a:skipped", "step:m:completed", "step:b:started"]
    )


def test_what_is_rolled_back_is_not_notified(shared, follow):
    shared.flow("f", "a")
    run, _received = follow()
    other = shared.session()
    other.start("f", {}, run)
    other.conn.rollback()
    again, received_again = follow()

    shared.start("f", {}, again)

    assert {payload["run_id"] for payload in received_again(2)} == {str(again)}
    assert run != again


def test_a_new_message_wakes_with_the_queue_s_name(shared):
    shared.flow("MyFlow", "a", "b: a")
    listener = shared.session(autocommit=True)
    listener.do("listen pgflowd")
    shared.do("select pgflowd.arm('myflow', gen_random_uuid())")

    run = shared.start("MyFlow")
    shared.claim("MyFlow")
    shared.complete(run, "a")

    received = [one.payload for one in listener.conn.notifies(timeout=2, stop_after=2)]
    assert received == ["myflow", "myflow"]


def test_a_wake_comes_with_each_queue_however_it_was_filled(shared):
    shared.flow("f", "a")
    shared.flow("g", "a")
    listener = shared.session(autocommit=True)
    listener.do("listen pgflowd")
    shared.do("select pgflowd.arm('g', gen_random_uuid())")

    shared.do("select pgmq.send('g', '{}')")

    assert [one.payload for one in listener.conn.notifies(timeout=2, stop_after=1)] == ["g"]
