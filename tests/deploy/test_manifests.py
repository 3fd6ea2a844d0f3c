"""
deploy/kubernetes: each object as its API demands it, and what our own settings say about it.

Kubernetes' own kinds are judged by kubernetes-validate, which knows every key of every version. The
kinds of KEDA and of the Prometheus operator are not in it; their keys are listed here, from their
references.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from support.deployed import grace_s, understood

from pgflowd.core.settings.sections import Settings
from pgflowd.host import config
from pgflowd.testing.scratch import ScratchDatabase

PLACE = Path(__file__).parents[2] / "deploy/kubernetes"
VERSIONS = ["1.25", "1.31", kubernetes_validate.latest_version()]
Manifest = dict[str, Any]
KEYS: dict[str, dict[str, Any]] = {
    "ServiceMonitor": {
        "selector": {"matchLabels": {"app.kubernetes.io/name"}, "matchExpressions": None},
        "namespaceSelector": None,
        "endpoints": {
            **dict.fromkeys(("port", "path", "interval", "scheme", "scrapeTimeout")),
            "authorization": {"type": None, "credentials": {"name", "key", "optional"}},
        },
        **dict.fromkeys(("jobLabel", "targetLabels", "podTargetLabels", "sampleLimit")),
    },
    "ScaledObject": {
        "scaleTargetRef": {"name", "kind", "apiVersion", "envSourceContainerName"},
        **dict.fromkeys(("pollingInterval", "cooldownPeriod", "initialCooldownPeriod")),
        **dict.fromkeys(("minReplicaCount", "maxReplicaCount", "idleReplicaCount")),
        "fallback": {"failureThreshold", "replicas", "behavior"},
        "triggers": {
            **dict.fromkeys(("type", "name", "metricType", "useCachedMetrics")),
            "metadata": {"query", "targetQueryValue", "activationTargetQueryValue"},
            "authenticationRef": {"name", "kind"},
        },
    },
    "TriggerAuthentication": {"secretTargetRef": {"parameter", "name", "key"}},
}


def manifests() -> dict[str, Manifest]:
    """All objects, by kind and name."""
    return {
        f"{one['kind']} {one['metadata']['name']}": one
        for file in sorted(PLACE.glob("*.yaml"))
        for one in yaml.safe_load_all(file.read_text())
    }


def pods() -> dict[str, Manifest]:
    found = {
        name: one["spec"].get("template") for name, one in manifests().items() if "spec" in one
    }
    return {name: template["spec"] for name, template in found.items() if template}


def containers() -> Iterator[Manifest]:
    for pod in pods().values():
        yield from pod.get("initContainers", [])
        yield from pod["containers"]


def settings(tmp_path: Path) -> Settings:
    """Those that the daemon has there."""
    file = tmp_path / "pgflowd.toml"
    file.write_text(manifests()["ConfigMap pgflowd"]["data"]["pgflowd.toml"])
    return config.load(config=str(file), environ={}, cwd=tmp_path)


def unknown_keys(given: Any, known: Any, place: str = "spec") -> list[str]:
    """The keys that are not in the list; None stands for any value."""
    if isinstance(given, list):
        return [each for one in given for each in unknown_keys(one, known, place)]
    if known is None or not isinstance(given, dict):
        return []
    wrong = [f"{place}.{key}" for key in given if key not in known]
    if isinstance(known, dict):
        for key in given.keys() & known.keys():
            wrong += unknown_keys(given[key], known[key], f"{place}.{key}")
    return wrong


@pytest.mark.parametrize("version", VERSIONS)
def test_each_object_is_as_its_api_demands_and_a_wrong_key_is_refused(version: str):
    judged = {name: one for name, one in manifests().items() if one["kind"] not in KEYS}
    assert len(judged) == 7

    for one in judged.values():
        kubernetes_validate.validate(one, version, strict=True)

    wrong = copy.deepcopy(judged["Deployment pgflowd"])
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_custom_resources_have_known_keys_only():
    custom = {name: one for name, one in manifests().items() if one["kind"] in KEYS}
    assert len(custom) == 3

    for one in custom.values():
        assert sorted(one) == ["apiVersion", "kind", "metadata", "spec"]
        assert unknown_keys(one["spec"], KEYS[one["kind"]]) == []

    wrong = copy.deepcopy(custom["ScaledObject pgflowd"]["spec"])
    wrong["triggers"][0]["metadata"]["targetValue"] = "10"
    assert unknown_keys(wrong, KEYS["ScaledObject"]) == ["spec.triggers.metadata.targetValue"]


def test_a_pod_is_not_killed_before_its_daemon_has_drained(tmp_path: Path):
    daemon = pods()["Deployment pgflowd"]

    assert daemon["terminationGracePeriodSeconds"] == grace_s(settings(tmp_path))
    assert not [one for one in containers() if "lifecycle" in one]


def test_probes_ask_what_the_daemon_answers(tmp_path: Path):
    told = settings(tmp_path)
    (daemon,) = pods()["Deployment pgflowd"]["containers"]

    assert {port["name"]: port["containerPort"] for port in daemon["ports"]} == {
        "http": told.http.address.port if told.http.address else None
    }
    paths = {probe: daemon[probe]["httpGet"]["path"] for probe in daemon if "Probe" in probe}
    assert paths == {
        "startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/livez",
    }  # fmt: skip
    startup = daemon["startupProbe"]
    allowed_s = startup["periodSeconds"] * startup["failureThreshold"]
    assert allowed_s >= told.database.startup_wait_s + told.supervisor.start_timeout_s


def test_no_container_has_more_rights_than_it_needs():
    for pod in pods().values():
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
    for one in containers():
        rights = one["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert "/run/pgflowd" in [mount["mountPath"] for mount in one["volumeMounts"]]


def test_commands_and_variables_are_ours(tmp_path: Path):
    for one in containers():
        variables = {each["name"]: each["value"] for each in one.get("env", [])}
        assert all(name.startswith("PGFLOWD__") for name in variables)
        understood(one.get("args", []), variables, tmp_path)


def test_objects_name_each_other():
    found = manifests()
    labels = found["Deployment pgflowd"]["spec"]["template"]["metadata"]["labels"]

    for name in ("Deployment pgflowd", "PodDisruptionBudget pgflowd"):
        assert found[name]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service pgflowd"]["spec"]["selector"] == labels
    monitored = found["ServiceMonitor pgflowd"]["spec"]
    assert monitored["selector"]["matchLabels"] == found["Service pgflowd"]["metadata"]["labels"]
    assert monitored["endpoints"][0]["port"] == found["Service pgflowd"]["spec"]["ports"][0]["name"]
    scaled = found["ScaledObject pgflowd"]["spec"]
    assert f"Deployment {scaled['scaleTargetRef']['name']}" in found
    (trigger,) = scaled["triggers"]
    assert f"TriggerAuthentication {trigger['authenticationRef']['name']}" in found


def test_keda_asks_for_the_flows_of_the_config_as_a_viewer(
    database: ScratchDatabase, tmp_path: Path
):
    told = settings(tmp_path)
    (trigger,) = manifests()["ScaledObject pgflowd"]["spec"]["triggers"]
    assert trigger["metadata"]["targetQueryValue"] == str(told.worker.max_concurrency)
    (module,) = told.pgflowd.flows
    name = str(module).rpartition(".")[2]
    conn = database.connect()
    conn.execute("select pgflow.create_flow(%s), pgflow.add_step(%s, 'a')", (name, name))
    conn.execute("select pgflow.start_flow(%s, '{}')", (name,))

    (answer,) = conn.execute(trigger["metadata"]["query"]).fetchall()
    assert answer == (1,)
