"""Archiving does no harm when repeated, or for unknown tasks."""

import uuid


def archive(suite, run, step, index=0):
    suite.do(
        "select pgflow._archive_task_message("
        "p_run_id => %s, p_step_slug => %s, p_task_index => %s)",
        run,
        step,
        index,
    )


def test_the_task_s_message_is_archived(suite):
    suite.flow("f", "a", "b")
    run = suite.start("f")

    archive(suite, run, "a")

    assert suite.archive("f") == [suite.task(run, "a")["message_id"]]
    assert suite.active("f") == [suite.task(run, "b")["message_id"]]
    assert suite.task(run, "a")["status"] == "queued"


def test_twice_is_harmless(suite):
    suite.flow("f", "a")
    run = suite.start("f")

    archive(suite, run, "a")
    archive(suite, run, "a")

    assert len(suite.archive("f")) == 1


def test_a_task_without_message_and_no_task_at_all_are_harmless(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    suite.do("update pgflow.step_tasks set message_id = null")

    archive(suite, run, "a")
    archive(suite, run, "nobody")
    archive(suite, uuid.uuid4(), "a")

    assert suite.archive("f") == [] and len(suite.active("f")) == 1
