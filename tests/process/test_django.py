"""A project with the code of docs/guides/django.md: its own tests, and a daemon that serves it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import django
import psycopg
import pytest
from support.pages import blocks_of

from pgflowd.testing.until import until

PAGE = "docs/guides/django.md"
TASKS = "django.tasks" if django.VERSION >= (6,) else "django_tasks"  # of its own, or a package
MODELS = """
from django.db import models


class Order(models.Model):
    card = models.CharField(max_length=20)
    state = models.CharField(max_length=20, default="new")
"""
URLS = """
from django.urls import path

from shop import views

urlpatterns = [path("orders/", views.place), path("fails/", views.place_and_fail)]
"""
FAILING_VIEW = """

def place_and_fail(request):  # ATOMIC_REQUESTS undoes all of it
    place(request)
    raise RuntimeError("after the run was started")
"""
INITIAL = """
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_pgflowd")]
    operations = [migrations.CreateModel(name="Order", fields=[
        ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False,
                                    verbose_name="ID")),
        ("card", models.CharField(max_length=20)),
        ("state", models.CharField(max_length=20, default="new"))])]
"""
MANAGE = """
import os, sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
execute_from_command_line(sys.argv)
"""
MORE_TESTS = """
from django.db import transaction
from django.test import TransactionTestCase

import pgflowd.django
from pgflowd.testing import assert_not_started
from shop.mails import send_mail
from shop.models import Order


class MoreTests(TestCase):
    def setUp(self):
        deploy(connection, orders)

    def test_a_failed_request_leaves_neither_row_nor_run(self):
        with self.assertRaises(RuntimeError):
            self.client.post("/fails/", {"card": "visa"})
        assert_not_started(connection, "orders")
        assert not Order.objects.exists()

    def test_a_savepoint_takes_its_run_back(self):
        with transaction.atomic():
            pgflowd.django.start_flow("orders", {"order": 1})
            try:
                with transaction.atomic():
                    pgflowd.django.start_flow("orders", {"order": 2})
                    raise KeyError
            except KeyError:
                pass
            try:
                with transaction.atomic():  # what PostgreSQL refuses
                    pgflowd.django.start_flow("ordres", {})
            except pgflowd.errors.UnknownFlow:
                pass
        assert assert_started(connection, "orders").input == {"order": 1}


class Committed(TransactionTestCase):
    def test_a_run_is_there_after_the_commit_alone(self):
        deploy(connection, orders)
        with transaction.atomic():
            run = pgflowd.django.start_flow("orders", {"order": 3})
            other = connection.copy()
            with other.cursor() as cursor:
                cursor.execute("select count(*) from pgflow.runs")
                assert cursor.fetchone() == (0,)
        with other.cursor() as cursor:
            cursor.execute("select run_id::text from pgflow.runs")
            assert cursor.fetchone() == (str(run.run_id),)
        other.close()
"""


@pytest.fixture
def project(tmp_path: Path, empty_database) -> Path:
    blocks = blocks_of(PAGE, "python")
    settings, migration, flows, views, tests, mails = blocks
    known = psycopg.conninfo.conninfo_to_dict(empty_database.dsn)
    names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
    database = {key: known.get(name, "") for key, name in names.items()}
    database |= {"ENGINE": "django.db.backends.postgresql", "ATOMIC_REQUESTS": True}
    database |= {"CONN_MAX_AGE": None}
    files = {
        "settings.py": f"SECRET_KEY = 'x'\nDATABASES = {{'default': {database!r}}}\n"
        "DEFAULT_AUTO_FIELD = 'django.db.models.BigAutoField'\n"
        "ROOT_URLCONF = 'urls'\nUSE_TZ = True\nALLOWED_HOSTS = ['*']\n" + settings,
        "urls.py": URLS,
        "manage.py": MANAGE,
        "pgflowd.toml": blocks_of(PAGE, "toml")[0] + "[supervisor]\ncontrol = \"control\"\n"
        "drain_timeout = \"1s\"\n",
        "shop/__init__.py": "",
        "shop/models.py": MODELS,
        "shop/migrations/__init__.py": "",
        "shop/migrations/0001_pgflowd.py": migration,
        "shop/migrations/0002_order.py": INITIAL,
        "shop/flows.py": flows,
        "shop/views.py": views + FAILING_VIEW,
        "shop/mails.py": mails.replace("django_tasks", TASKS),
        "shop/tests.py": tests + MORE_TESTS,
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


Manage = Callable[..., str]


@pytest.fixture
def manage(project: Path) -> Manage:
    def execute(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout

    return execute


def test_its_own_tests_pass(manage: Manage) -> None:
    """TestCase, ATOMIC_REQUESTS, savepoints, and a database that its migrations have made."""
    assert "OK" in manage("test", "--noinput")
    assert "No changes detected" in manage("makemigrations", "--check", "--dry-run")


def test_a_daemon_serves_its_flows_and_tasks(manage: Manage, project: Path, empty_database) -> None:
    manage("migrate")
    deployed = manage("pgflowd", "flows", "deploy")
    assert "orders" in deployed and "django_tasks" in deployed
    daemon = subprocess.Popen(
        [sys.executable, "manage.py", "pgflowd", "serve"],
        cwd=project, stdout=(project / "log").open("wb"), stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        code = """
from django.db import transaction
from django.test import Client
from shop.mails import send_mail
with transaction.atomic():
    good = send_mail.enqueue("a@b", text="hi")
bad = send_mail.enqueue("nobody", "hi")
from django.utils import timezone
from datetime import timedelta
later = send_mail.using(run_after=timezone.now() + timedelta(days=1)).enqueue("a@b", "x")
assert later.status == "READY" and not later.is_finished
later.refresh()
assert later.status == "READY" and later.attempts == 0
run = Client().post("/orders/", {"card": "visa"}).json()["run_id"]
print(run, good.id, bad.id)
"""
        run, good, bad = manage("shell", "-v", "0", "-c", code).split()[-3:]
        conn = empty_database.connect()

        def status(run_id: str) -> str:
            row = conn.execute("select status from pgflow.runs where run_id = %s", (run_id,))
            return str((row.fetchone() or [""])[0])

        until(lambda: status(run) == "completed" and status(good) == "completed", within_s=60)
        until(lambda: conn.execute("select state from shop_order").fetchone() == ("packed",))
        end_sessions(conn)  # as a restarted database does
        code = f"""
from shop.views import place
from shop.models import Order
import pgflowd.django
from shop.mails import send_mail
done = send_mail.get_result({good!r})
assert done.return_value == "hi to a@b" and done.attempts == 1, done
assert done.args == ["a@b"] and done.kwargs == {{"text": "hi"}}
order = Order.objects.create(card="amex")
print(pgflowd.django.start_flow("orders", {{"order": order.pk}}).run_id)
"""
        again = manage("shell", "-v", "0", "-c", code).split()[-1]
        until(lambda: status(again) == "completed" and status(bad) == "failed", within_s=60)
        tried = conn.execute(
            "select max(attempts_count) from pgflow.step_tasks where run_id = %s", (again,)
        ).fetchone()
        assert tried is not None and tried[0] <= 2
        code = f"""
from {TASKS}.exceptions import TaskResultDoesNotExist
from shop.mails import send_mail
failed = send_mail.get_result({bad!r})
assert failed.status == "FAILED" and failed.attempts == 3, failed
assert [each.exception_class for each in failed.errors] == [ValueError] * 3
assert "nobody is no address" in failed.errors[0].traceback
for unknown in ("x", "00000000-0000-7000-8000-000000000000", {again!r}):
    try:
        send_mail.get_result(unknown)
    except TaskResultDoesNotExist:
        continue
    raise AssertionError(unknown)
print("all is well")
"""
        assert "all is well" in manage("shell", "-v", "0", "-c", code)
    finally:
        daemon.terminate()
        daemon.wait(30)
        sys.stderr.write((project / "log").read_text()[-8000:])


def end_sessions(conn: psycopg.Connection) -> None:
    """End all sessions of Django's connections in runners, whose names are not pgflowd's."""
    conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
        " and pid <> pg_backend_pid() and application_name not like 'pgflow%'"
    )


def test_without_the_package_for_tasks_only_the_backend_is_missing() -> None:
    code = (
        f"import sys; sys.modules['{TASKS}'] = None; from django.conf import settings;"
        "settings.configure(); import pgflowd.django as d\n"
        "try: d.TasksBackend\nexcept ImportError as error: print('django', error)"
    )
    environ = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ)
    assert "django" in done.stdout, done.stderr
