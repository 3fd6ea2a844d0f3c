"""
What people do in the dashboard: each action calls the function that the command calls, with the
name of the person.

An action is a POST. A page is answered with a redirection to the page that shows the result, a
program with the document that the command prints. To add one, write its function in the module of
its kind, and add it to `ACTIONS`.
"""

from __future__ import annotations

from pgflowd.web.actions.flow_actions import FLOW_ACTIONS
from pgflowd.web.actions.run_actions import RUN_ACTIONS
from pgflowd.web.actions.task_actions import TASK_ACTIONS

ACTIONS = (*RUN_ACTIONS, *TASK_ACTIONS, *FLOW_ACTIONS)
