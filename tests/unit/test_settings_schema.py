"""The JSON Schema of the config takes what is right, and refuses what a file shows to be wrong."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft7Validator
from jsonschema.exceptions import ValidationError
from support.config_mistakes import MISTAKES

from pgflowd.core.settings.keys import keys_of
from pgflowd.core.settings.load import json_schema, pyproject_schema
from pgflowd.core.settings.sections import SECTIONS
from pgflowd.resources import shipped

SCHEMA = Draft7Validator(json_schema())
OF_PYPROJECT = Draft7Validator(pyproject_schema())
LEFT_TO_CHECK = {  # what a schema cannot express, and why: the code, and a part of what is said
    ("E106", ""): "the other key may be in the environment, or in a flag",
    ("E501", ""): "the same",
    ("E107", ""): "it stands elsewhere",
    ("E105", "its value"): "it stands elsewhere",
    ("E207", "differ in case only"): "a schema does not compare names of keys",
    ("E103", "is a fraction"): "JSON knows one kind of numbers: 5.0 is 5",
    ("E105", "to 10m"): "a pattern does not add up units",
    ("E105", "to 5m"): "a pattern does not add up units",
    ("E105", "to 365d"): "a pattern does not add up units",
    ("E105", "to 1MiB"): "a pattern does not add up units",
    ("E105", "is nan"): "JSON has no such number",
    ("E105", "[:::]"): "a pattern does not count the groups of an IPv6 address",
    ("E105", "is not an address"): "a pattern does not count the bits of a network",
}
RIGHT = """
    [pgflowd]
    name = "env:NAME"
    flows = ["flows.orders", "möbel:größe"]
    [database]
    url = "cred:database_url"
    max_connections = 3
    [worker]
    poll_max = " 1m 30s"
    kill_grace = "0s"
    max_output = "1.5 MiB"
    caps = ["gpu"]
    signal_strategy = "file:strategy"
    [flows."send-mails"]
    enabled = false
    max_concurrency = 1
    [logging]
    levels = { httpx = "warning", "urllib3.connectionpool" = "error" }
    [http]
    listen = "[::1]:7461"
    token = "file:/etc/pgflowd/http_token"
    [telemetry]
    ratio = 1
    trace_url = "https://traces.example/{trace_id}?a=b"
    [web]
    listen = "unix:web.sock"
    hosts = ["flows.example", "::1"]
    trusted_proxies = ["unix", "10.0.0.0/8", "fe80::1", "10.0.0.0/255.0.0.0"]
    base_path = "/a/b-c"
"""


def patterns(schema: Any) -> Iterator[str]:
    for key, inner in schema.items() if isinstance(schema, dict) else ():
        if key == "pattern" and isinstance(inner, str):
            yield inner
        yield from patterns(inner)


def described(schema: Any, error: ValidationError) -> str:
    """The description that stands nearest to what refused a value."""
    found = ""
    for part in error.absolute_schema_path:
        found = schema.get("description", found) if isinstance(schema, dict) else found
        schema = schema[part]
    return found


def test_the_schemas_are_schemas() -> None:
    Draft7Validator.check_schema(SCHEMA.schema)
    Draft7Validator.check_schema(OF_PYPROJECT.schema)


def test_their_patterns_are_those_of_javascript_too() -> None:
    program = "for (const each of JSON.parse(process.argv[1])) new RegExp(each, 'u')"
    every = json.dumps(sorted(set(patterns(SCHEMA.schema))))

    subprocess.run(["node", "-e", program, every], check=True, timeout=60)


@pytest.mark.parametrize(
    "text", [(shipped("config") / "pgflowd.toml").read_text("utf-8"), RIGHT], ids=["shipped", "own"]
)
def test_a_right_file_is_accepted(text: str) -> None:
    SCHEMA.validate(tomllib.loads(text))
    OF_PYPROJECT.validate(tomllib.loads(text))


def test_each_key_has_its_default_a_description_and_the_codes_of_its_mistakes() -> None:
    for section, kind in SECTIONS.items():
        keys = SCHEMA.schema["properties"][section]["properties"]
        assert list(keys) == list(keys_of(kind))
        for name, (_, key) in keys_of(kind).items():
            assert keys[name]["default"] == key.default
            assert keys[name]["description"].startswith(key.doc)
            assert "`E103`" in keys[name]["description"]
            SCHEMA.validate({section: {name: key.default}})


@pytest.mark.parametrize(("text", "code", "part"), MISTAKES)
def test_a_mistake_is_refused_by_what_names_its_code(text: str, code: str, part: str) -> None:
    is_left = any(code == other and word in part for other, word in LEFT_TO_CHECK)

    for validator in (SCHEMA, OF_PYPROJECT):
        errors = list(validator.iter_errors(tomllib.loads(text)))
        if validator is SCHEMA:
            assert bool(errors) != is_left
        for error in errors:
            assert f"`{code}`" in described(validator.schema, error)


def test_keys_of_the_daemon_may_stand_in_the_table_of_a_pyproject_itself() -> None:
    of_daemon = tomllib.loads('name = "shop"\nflows = ["shop"]\n[worker]\nmax_concurrency = 2')
    of_flows = tomllib.loads("[flows.shop]\nmax_concurrency = 2")

    OF_PYPROJECT.validate(of_daemon)
    OF_PYPROJECT.validate(of_flows)
    assert not SCHEMA.is_valid(of_daemon)
    assert not OF_PYPROJECT.is_valid({"flows": ["a-b"]})
    assert not OF_PYPROJECT.is_valid({"max_concurrency": 2})
