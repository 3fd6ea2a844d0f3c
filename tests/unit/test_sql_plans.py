"""
Functions that others call have settings for their plans, which hold for all that they call.

`sql/install/plans.sql` gives them, and is the only place. A function that is missing there would
plan by statistics, and so would all private functions that it is the first to call.
"""

from __future__ import annotations

from unit.test_sql_callers import FUNCTIONS, SQL, SqlFile

OFTEN = {"workers", "the sweeper", "workers of other runtimes"}
PLAIN = {  # they read by a key, or small tables
    "pgflow._archive_task_message",
    "pgflow.add_step",
    "pgflow.analyze_and_create_flow",
    "pgflow.create_flow",
    "pgflow.ensure_flow_compiled",
    "pgflow.flow_exists",
    "pgflow.get_flow_input",
    "pgflow.get_step_output",
    "pgflow.mark_worker_stopped",
    "pgflow.register_worker",
    "pgflow.set_vt_batch",
    "pgflow.track_worker_function",
    "pgflow.delete_flow_and_data",
    "pgflowd._has_open_work",
    "pgflowd._has_undo",
    "pgflowd._lock_definition",
    "pgflowd._name_of",
    "pgflowd._undo_flow",
    "pgflowd.compare_options",
    "pgflowd.define",
    "pgflowd.deploy_version",
    "pgflowd.flow_shape",
    "pgflowd.versions_of",
    "pgflowd.output_channel",
    "pgflowd.tell_core",
    "pgflowd.unserved_queues",
    "pgflowd.waiting_tasks",
    "pgflowd.watch_queue",
}
PLANS = (SQL / "install/plans.sql").read_text()
GIVEN = {file.full_name for file in FUNCTIONS if f"{file.full_name}," in PLANS.replace("}", ",")}


def is_called_often(file: SqlFile) -> bool:
    return file.schema in ("pgflow", "pgflowd") and bool(OFTEN & file.named_callers)


def test_each_function_that_is_called_often_has_settings_for_its_plans() -> None:
    often = {file.full_name for file in FUNCTIONS if is_called_often(file)}

    assert often - GIVEN == PLAIN


def test_no_function_of_the_contract_has_such_settings_in_its_own_file() -> None:
    for file in FUNCTIONS:
        text = (SQL / file.path).read_text()
        assert file.schema == "pgflowd" or "set enable_" not in text, file.path
