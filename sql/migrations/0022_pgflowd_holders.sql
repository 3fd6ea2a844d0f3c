-- Migration 0022: the list of tasks names who has a task. A released migration never changes.

drop function if exists pgflowd.list_tasks(uuid, text, text[], int, text[]);
