"""
Helps who comes from another program: `python -m pgflowd.migrate celery MODULE`.

It prints a skeleton of flows; docs/coming-from has the rest.
"""
