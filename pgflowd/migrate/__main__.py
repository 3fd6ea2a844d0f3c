"""Prints a job for each task that a module of Celery registers, with its options."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

USAGE = "usage: python -m pgflowd.migrate celery MODULE"
_HEAD = '''"""The tasks of {module}, as jobs. Join those that call each other into flows."""

from typing import Any

from pgflowd import job

{imports}
'''
_JOB = """

@job({options})
def {name}(run: dict[str, Any]) -> Any:
    return {call}
"""


class NoTasks(Exception):
    """The module cannot be used; the text says why."""


def skeleton(module_name: str) -> str:
    """The text of a module of flows."""
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise NoTasks(f"{module_name} cannot be imported: {cause}") from None
    tasks = list(_tasks_of(module))
    if not tasks:
        raise NoTasks(f"{module_name} has no app of Celery with tasks of its own")
    places = sorted({(task.__module__, task.__name__) for task in tasks})
    imports = "\n".join(f"from {place} import {name}" for place, name in places)
    jobs = "".join(map(_job, tasks))
    return _HEAD.format(module=module_name, imports=imports) + jobs


def _tasks_of(module: Any) -> Iterator[Any]:
    """The tasks of the apps in a module, by their names, without those of Celery itself."""
    found: dict[str, Any] = {}
    for value in vars(module).values():
        is_app = any(each.__module__ == "celery.app.base" for each in type(value).__mro__)
        if is_app and hasattr(value, "tasks"):
            value.loader.import_default_modules()
            found.update(value.tasks)
    return (task for name, task in sorted(found.items()) if not name.startswith("celery."))


def _job(task: Any) -> str:
    slug = re.sub(r"\W+", "_", task.name)
    options = [f'"{slug}"', f"max_attempts={_attempts(task)}"]
    if limit := task.time_limit or task.soft_time_limit:
        options.append(f"timeout={round(limit)}")
    names = inspect.signature(task.run).parameters.values()
    given = ", ".join(f'{each.name}=run["{each.name}"]' for each in names
                      if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY))  # fmt: skip
    call = f"{task.__name__}.run({given})"
    return _JOB.format(options=", ".join(options), name=f"{task.__name__}_job", call=call)


def _attempts(task: Any) -> int:
    """How often Celery would try it; a task may also ask for that by itself."""
    if not getattr(task, "autoretry_for", None):
        return 1
    return int(task.max_retries if task.max_retries is not None else 3) + 1


def main(words: list[str]) -> int:
    """Print the skeleton; 2 for a command line or a module that cannot be used."""
    if len(words) != 2 or words[0] != "celery":
        sys.stderr.write(f"{USAGE}\n")
        return 2
    sys.path.insert(0, str(Path.cwd()))
    try:
        sys.stdout.write(skeleton(words[1]))
    except NoTasks as error:
        sys.stderr.write(f"pgflowd: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
