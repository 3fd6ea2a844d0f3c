"""The worker: claims, executes and reports the tasks of one flow."""
