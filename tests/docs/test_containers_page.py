"""docs/operate/containers.md: its commands name files, services, keys and commands that exist."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from support.deployed import understood
from support.pages import ROOT, blocks_of

PAGE = "docs/operate/containers.md"
KUBERNETES = ROOT / "deploy/kubernetes"


def commands() -> list[list[str]]:
    lines = [line for block in blocks_of(PAGE, "console") for line in block.splitlines()]
    return [shlex.split(line.removeprefix("$ ")) for line in lines]


def objects() -> list[dict[str, Any]]:
    files = [file.read_text() for file in sorted(KUBERNETES.glob("*.yaml"))]
    return [one for text in files for one in yaml.safe_load_all(text)]


def mounted(value: Any) -> set[str]:
    """The names of the files of Secrets that a manifest names."""
    return set(re.findall(r"/etc/pgflowd/secrets/(\w+)", str(value)))


def test_files_exist_and_what_compose_executes_is_ours(tmp_path: Path):
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    for words in commands():
        for option, name in pairwise(words):
            if option in ("--file", "--filename"):
                assert (ROOT / name).is_file(), name
        if words[:2] == ["docker", "compose"] and "run" in words:
            _, service, *args = words[words.index("run") + 1 :]
            assert service in services
            understood(args, {}, tmp_path)
        elif words[:2] == ["docker", "compose"]:
            assert words[4] in ("up", "logs")
    applied = {Path(word).name for words in commands() for word in words if "kubernetes/" in word}
    table = set(re.findall(r"^\| `(\w+\.yaml)` \|", (ROOT / PAGE).read_text(), re.MULTILINE))
    assert applied <= table == {file.name for file in KUBERNETES.glob("*.yaml")}


def test_each_key_of_a_secret_is_created_and_used():
    created: dict[str, set[str]] = {}
    for words in commands():
        if words[:4] == ["kubectl", "create", "secret", "generic"]:
            created[words[4]] = {word.removeprefix("--from-file=") for word in words[5:]}
    used: dict[str, set[str]] = {}
    for one in objects():
        pod = one.get("spec", {}).get("template", {}).get("spec", {})
        for volume in pod.get("volumes", []):
            if "secret" in volume:
                used[volume["secret"]["secretName"]] = mounted(pod)
    (config,) = [one for one in objects() if one["kind"] == "ConfigMap"]
    used["pgflowd"] |= mounted(config)

    assert created == used


def test_the_query_of_the_page_is_that_of_keda():
    (scaled,) = [one for one in objects() if one["kind"] == "ScaledObject"]
    (shown,) = blocks_of(PAGE, "sql")

    assert shown.strip() == scaled["spec"]["triggers"][0]["metadata"]["query"]
