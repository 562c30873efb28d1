"""The manifests and the chart that `deploy/` ships, without Kubernetes; test_kubernetes_server.py has the rest.

What the chart makes of its values, and Kustomize of its bases, is kept in tests/deploy/kubernetes/golden; `make test-kubernetes` compares.
"""

from __future__ import annotations

import importlib.util
import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from admin.endpoints import ROUTES
from cli.main import main
from config import load
from gateway.build import VERSION
from gateway.lifecycle.drain import AFTER_S
from support.cases import in_one_loop
from support.manifests import (
    CHART,
    DEPLOY,
    GOLDEN,
    KUSTOMIZED,
    SIDECAR,
    UNAPPLIED,
    VALUES,
    Manifest,
    config_files,
    containers,
    documents,
    pods,
    resources,
    sets,
)
from support.pages import ROOT

SETS: Final = sets()
PROBES: Final = {"startupProbe": "/startupz", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
NIGHTLY: Final = documents(DEPLOY / "quotas-cronjob.yaml")
OTHERS_STOP_S: Final = {"client": 30, "helm-application": 30}  # seconds; what the application may take before the gateway is told


def written(manifests: list[Manifest], folder: Path) -> Path:
    """The ConfigMap's files as the gateway's container finds them, with /etc and /var within the folder."""
    for name, text in config_files(manifests).items():
        (folder / name).write_text(text.replace("/etc/sluice-tokens", str(folder)).replace("/var/lib/sluice", str(folder)))
    for name in ("prometheus", "operators"):
        (folder / name).write_text(f"{name}-token-that-is-long-enough-to-be-one")
        (folder / name).chmod(0o600)
    return folder / "sluice.yaml"


def gateway_container(manifests: list[Manifest]) -> tuple[Manifest, Manifest]:
    """The gateway's pod and container."""
    found = [(pod, each) for _, pod in pods(manifests) for each in containers(pod) if each["name"] == "sluice"]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", SETS)
def test_the_configuration_is_good(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(SETS[name], tmp_path)
    code = main(["check", "--strict", "-c", str(file), "--set", "gateway.name=pod-0"])
    assert code == 0, f"{file.read_text()}\n{capsys.readouterr()}"


@pytest.mark.parametrize("name", SETS)
def test_probes_ports_mounts_and_patience_fit_the_configuration(name: str, tmp_path: Path) -> None:
    settings = load(written(SETS[name], tmp_path))
    pod, container = gateway_container(SETS[name])
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert settings.probes is not None
    assert settings.probes.bind.port == ports["probes"]
    assert {str(route.template) for route in ROUTES} >= set(PROBES.values())
    for probe, path in PROBES.items():
        assert container[probe]["httpGet"] == {"path": path, "port": "probes"}
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mounts["/etc/sluice"]["readOnly"] is True
    assert all("subPath" not in each for each in mounts.values()), "what is mounted by subPath never changes"
    assert settings.gateway.reload_on_change
    assert settings.gateway.state_directory.is_relative_to(tmp_path), "on the volume"
    assert container["command"] == ["sluice", "run", "-c", "/etc/sluice/sluice.yaml"]
    patience_s = settings.drain.timeout_ns / 1e9 + AFTER_S + 5
    others_s = OTHERS_STOP_S.get(name, 0)
    for other in pod["containers"]:
        sleep = other.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        if sleep:  # the gateway's own preStop drains meanwhile
            assert float(sleep[1]) >= settings.drain.timeout_ns / 1e9 + AFTER_S
            assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sluice", "drain", "--yes"]
            others_s = int(sleep[1]) + 60
    assert pod["terminationGracePeriodSeconds"] >= others_s + (patience_s if "lifecycle" not in container else 0)


@pytest.mark.parametrize("name", SETS)
def test_the_spool_fits_on_the_volume_beside_the_access_log(name: str, tmp_path: Path) -> None:
    """An emptyDir beyond its limit costs the pod."""
    settings = load(written(SETS[name], tmp_path))
    (workload, pod), *_ = pods(SETS[name])
    claims = {each["metadata"]["name"]: each["spec"]["resources"]["requests"]["storage"]
              for each in workload["spec"].get("volumeClaimTemplates", [])}  # fmt: skip
    limits = {each["name"]: each["emptyDir"].get("sizeLimit") for each in pod["volumes"] if "emptyDir" in each}
    number, unit = re.fullmatch(r"(\d+)([MG])i", (claims | limits)["sluice-state"]).groups()  # type: ignore[union-attr]
    size = int(number) << {"M": 20, "G": 30}[unit]
    assert settings.spool.max_size <= size / (2 if settings.access_log is None else 4)
    assert settings.spool.max_size >= 16 << 20, "what the setting takes at least"
    assert settings.access_log is None or settings.access_log.keep_size <= size / 2


@pytest.mark.parametrize("name", SETS)
def test_the_gateway_is_a_native_sidecar_where_others_are_in_its_pod(name: str) -> None:
    pod, container = gateway_container(SETS[name])
    alone = [each["name"] for each in pod["containers"]] == ["sluice"]
    assert alone == (name in {"helm-gateways", "helm-fleet"})
    assert container.get("restartPolicy") == (None if alone else "Always")
    assert alone or container in pod["initContainers"]


@pytest.mark.parametrize("name", [*SETS, "nightly"])
def test_containers_are_locked_down_and_have_what_they_ask_for(name: str) -> None:
    manifests = SETS.get(name, NIGHTLY)
    for _, pod in pods(manifests):
        assert pod["securityContext"]["runAsNonRoot"] is True
        for each in containers(pod):
            if each["name"] in {"orders", "rabbitmq"}:
                continue  # yours
            assert each["securityContext"] == {
                "runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
            }  # fmt: skip
            assert each["resources"]["requests"] == each["resources"]["limits"], each["name"]
            assert set(each["resources"]["limits"]) == {"cpu", "memory"}


@pytest.mark.parametrize("name", ["nightly", "helm-broker"])
def test_a_night_ends_before_the_next_one_begins(name: str) -> None:
    """A tunnel to a gateway that was away waited for ever: the Job neither failed nor ended, and no later night began."""
    (cron,) = [each["spec"] for each in SETS.get(name, NIGHTLY) if each["kind"] == "CronJob"]
    assert cron["schedule"] == "40 0 * * *"
    assert cron["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 6 * 3600


@pytest.mark.parametrize("name", SETS)
def test_a_gateway_that_a_service_leads_to_serves_newcomers_while_its_rules_change(name: str, tmp_path: Path) -> None:
    settings = load(written(SETS[name], tmp_path))
    led_to = any(port["targetPort"] != "probes" for each in SETS[name] if each["kind"] == "Service" for port in each["spec"]["ports"])
    assert settings.drain.delay_ns == (5 * 10**9 if led_to else 0)


EVERY: Final = frozenset(range(1, 65536))
CLOSED: Final = {"helm-application": set(), "helm-broker": {5673}}  # and the gateway's own; others' pods name what is open
OPEN: Final = {"client": {8080}, "broker": set(), "helm-gateways": set(), "helm-fleet": set()}


@pytest.mark.parametrize("name", SETS)
def test_a_policy_shuts_the_gateways_ports_and_those_that_are_named(name: str) -> None:
    """What others in the pod serve stays open, and all that the pod asks for: names, brokers, Redis."""
    (policy,) = [each for each in SETS[name] if each["kind"] == "NetworkPolicy"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    found = {
        protocol: {
            port
            for rule in policy["spec"]["ingress"] if "from" not in rule
            for each in rule["ports"] if each["protocol"] == protocol
            for port in range(each["port"], each.get("endPort", each["port"]) + 1)
        }
        for protocol in ("TCP", "UDP", "SCTP")
    }  # fmt: skip
    _, container = gateway_container(SETS[name])
    ours = {each["containerPort"] for each in container["ports"]}
    if name in CLOSED:
        assert found == {"TCP": EVERY - ours - CLOSED[name], "UDP": EVERY, "SCTP": EVERY}
    else:
        assert found == {"TCP": OPEN[name], "UDP": set(), "SCTP": set()}


def test_requests_are_what_the_page_of_sizes_says() -> None:
    """A processor, whatever else; and the memory of one of its rows."""
    page = (ROOT / "docs/deploy/sizing.md").read_text()
    rows = re.findall(r"^\| .*(?:connections|broker).* \| (\d+) \| ([\d,]+) MiB \|", page, re.MULTILINE)
    least = {int(processors): int(memory.replace(",", "")) for processors, memory in reversed(rows)}
    assert least == {1: 384, 2: 1536}
    made = [each for manifests in SETS.values() for _, pod in pods(manifests) for each in containers(pod) if each["name"] == "sluice"]
    defaults = [yaml.safe_load((chart / "values.yaml").read_text()) for chart in (CHART, SIDECAR)]
    (beside,) = yaml.safe_load((DEPLOY / "sidecar.yaml").read_text())["containers"]
    for each in (*made, *defaults, beside):
        asked = each["resources"]["requests"]
        number, unit = re.fullmatch(r"(\d+)([MG])i", asked["memory"]).groups()  # type: ignore[union-attr]
        assert int(number) << {"M": 0, "G": 10}[unit] >= least[int(asked["cpu"])], each


# ---- somebody else's chart -----------------------------------------------------------------------------------------------

SHOP: Final = documents(GOLDEN / "consumer.yaml")


def test_two_gateways_in_a_pod_share_nothing() -> None:
    (pod,) = [pod for each, pod in pods(SHOP) if each["metadata"]["name"] == "one-shop"]
    both = pod["initContainers"]
    assert [each["name"] for each in both] == ["sluice-orders", "sluice-events"]
    names = [each["name"] for each in pod["volumes"]]
    assert len(set(names)) == len(names) == 6
    mounted = [{mount["name"] for mount in each["volumeMounts"]} for each in both]
    assert mounted[0] | mounted[1] == set(names)
    assert not mounted[0] & mounted[1]
    ports = [port for each in both for port in each["ports"]]
    assert len({each["name"] for each in ports}) == len({each["containerPort"] for each in ports}) == len(ports)
    for each in both:
        assert each["startupProbe"]["httpGet"]["port"] in {port["name"] for port in each["ports"]}
    first, second = ({one["name"]: one.get("value") for one in each["env"]} for each in both)
    assert first["SLUICE_GATEWAY__NAME"] != second["SLUICE_GATEWAY__NAME"]
    assert (first.get("SLUICE_ADMIN"), second["SLUICE_ADMIN"]) == (None, "http://127.0.0.1:9280"), "of `kubectl exec`"
    images = [each["image"] for each in both]
    assert images[0].endswith(f"/sluice:{VERSION}")
    assert re.search(r"/sluice@sha256:[0-9a-f]{64}$", images[1])


def test_objects_of_a_release_have_names_and_selectors_of_their_own() -> None:
    named = [(each["kind"], each["metadata"]["name"]) for each in SHOP]
    assert len(set(named)) == len(named) == 15
    selectors = [json.dumps(each["spec"]["selector"], sort_keys=True) for each in SHOP if each["kind"] == "Deployment"]
    assert len(set(selectors)) == 3


@pytest.mark.parametrize("name", ["one-sluice-orders", "one-sluice-events", "one-north"])
def test_the_configuration_of_each_is_good(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    maps = [each for each in SHOP if each["kind"] == "ConfigMap"]
    assert len(maps) == 4
    file = written([each for each in maps if each["metadata"]["name"] == name], tmp_path)
    assert main(["check", "--strict", "-c", str(file), "--set", "gateway.name=pod-0.sluice-orders"]) == 0, capsys.readouterr()


def test_a_sidecars_values_are_those_of_the_chart() -> None:
    whole, sidecar = (yaml.safe_load((chart / "values.yaml").read_text()) for chart in (CHART, SIDECAR))
    assert sidecar.items() <= whole.items()


@pytest.mark.parametrize("name", SETS)
def test_names_lead_somewhere(name: str) -> None:
    """Selectors find the pod's labels, services its ports, volumes the ConfigMap, and mounts the volumes."""
    manifests = SETS[name]
    (workload, pod), *_ = pods(manifests)
    labels = workload["spec"]["template"]["metadata"]["labels"]
    ports = {each["name"] for one in containers(pod) for each in one.get("ports", [])}
    services = [each for each in manifests if each["kind"] == "Service"]
    for service in services:
        assert service["spec"]["selector"].items() <= labels.items()
        assert {each["targetPort"] for each in service["spec"]["ports"]} <= ports
    for each in manifests:
        if each["kind"] in {"PodDisruptionBudget", "NetworkPolicy"}:
            selector = each["spec"].get("selector") or each["spec"]["podSelector"]
            assert selector["matchLabels"].items() <= labels.items()
    volumes = {each["name"] for each in pod["volumes"]} | {
        each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])
    }
    assert {mount["name"] for one in containers(pod) for mount in one.get("volumeMounts", [])} <= volumes
    (config,) = [each["configMap"]["name"] for each in pod["volumes"] if each["name"] == "sluice-config"]
    assert config in {each["metadata"]["name"] for each in manifests if each["kind"] == "ConfigMap"}
    if workload["kind"] == "StatefulSet":
        assert workload["spec"]["serviceName"] in {each["metadata"]["name"] for each in services}


@pytest.mark.parametrize("folder", KUSTOMIZED)
def test_the_service_monitor_finds_the_service_and_the_alert_its_job(folder: str) -> None:
    (monitor,) = documents(DEPLOY / "monitoring" / "servicemonitor.yaml")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    (service,) = [
        each for each in SETS[folder] if each["kind"] == "Service" and wanted.items() <= each["metadata"].get("labels", {}).items()
    ]
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "sluice"
    assert {each["port"] for each in monitor["spec"]["endpoints"]} == {each["name"] for each in service["spec"]["ports"]}


@pytest.mark.parametrize("folder", KUSTOMIZED)
def test_what_kustomize_made_has_the_manifests_of_now(folder: str) -> None:
    """A change of a manifest without `make test-kubernetes GOLDEN=1` is found here, too."""

    def by_name(manifests: list[Manifest]) -> list[str]:
        return sorted(json.dumps(each, sort_keys=True) for each in manifests)

    assert by_name(documents(GOLDEN / f"kustomize-{folder}.yaml")) == by_name(documents(*resources(DEPLOY / folder)))


def test_every_file_is_in_a_base_or_said_to_be_a_part() -> None:
    named = {file for folder in (*KUSTOMIZED, "monitoring") for file in resources(DEPLOY / folder)}
    lone = {DEPLOY / name for name in (*UNAPPLIED, "quotas-cronjob.yaml", "quotas-sparkapplication.yaml")}
    there = {file for file in DEPLOY.rglob("*.yaml") if file.name != "kustomization.yaml"}
    assert there == named | lone


# ---- written from other files --------------------------------------------------------------------------------------------


def program(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_alerts_are_those_of_deploy() -> None:
    made = program("deploy/prometheus/kubernetes.py")
    rule, files = (target.read_text() for target in made.TARGETS)
    assert rule == made.prometheus_rule()
    assert files == made.RULES.read_text()
    assert yaml.safe_load(rule)["spec"] == yaml.safe_load(files)


def test_the_schema_of_values_is_the_gateways_and_the_version_ours() -> None:
    assert {path: path.read_text() for path in program("deploy/helm/values_schema.py").texts()} == program(
        "deploy/helm/values_schema.py"
    ).texts()
    charts = [yaml.safe_load((chart / "Chart.yaml").read_text()) for chart in (CHART, SIDECAR)]
    assert {each[what] for each in charts for what in ("version", "appVersion")} == {VERSION}
    assert charts[0]["dependencies"] == [{"name": "sluice-sidecar", "version": VERSION}]
    named = {name for file in DEPLOY.rglob("*.yaml") for name in re.findall(r"/(sluice(?:-quotas)?:\S+)", file.read_text())}
    assert named == {f"sluice:{VERSION}", f"sluice-quotas:{VERSION}"}, "which a release pushes"


@pytest.mark.spark
def test_the_spark_application_has_the_versions_of_the_spark_that_the_image_gets() -> None:
    import pyspark

    (application,) = documents(DEPLOY / "quotas-sparkapplication.yaml")
    template = application["spec"]["template"]
    assert template["sparkVersion"] == pyspark.__version__
    (hadoop,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    needed = f"org.apache.hadoop:hadoop-aws:{hadoop.stem.rpartition('-')[2]}"
    assert template["sparkConf"]["spark.jars.packages"] == needed
    assert yaml.safe_load((CHART / "values.yaml").read_text())["quotas"]["args"] == [f"--conf=spark.jars.packages={needed}"]


# ---- values that cannot work ---------------------------------------------------------------------------------------------


def values(name: str) -> dict[str, Any]:
    """The chart's values with those of a file over them."""
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    own: dict[str, Any] = yaml.safe_load((VALUES / f"{name}.yaml").read_text())
    return found | own


BAD: Final[dict[str, tuple[tuple[str | int, ...], object]]] = {
    "a value that does not exist": (("replica",), 3),
    "a setting that does not exist": (("config", "listener"), []),
    "a setting with a wrong value": (("config", "listeners", 0, "protocol"), "http"),
    "a limit that is none": (("limits", "rules", 0, "limit", "messages"), "500 per second"),
    "an image without a repository": (("image",), {"tag": "1"}),
    "a digest that is none": (("image",), {"repository": "registry.example/sluice", "digest": "sha256:12"}),
    "pods that roll on something else": (("rollPodsOn",), "always"),
    "a kind that has no pods": (("kind",), "DaemonSet"),
    "a port beyond all": (("service",), {"amqp": 70000}),
    "a name that no port can have": (("service",), {"AMQP port": 5672}),
    "a role that does not exist": (("tokens", "roles"), {"ops": "root"}),
    "no limit of memory": (("resources", "limits"), {"cpu": "1"}),
    "a size that is none": (("state", "size"), "much"),
    "a unit that Kubernetes has not": (("state", "size"), "1048576ki"),
    "a unit that is the gateway's": (("state", "size"), "1GiB"),
    "quotas for pods without lasting names": (("quotas",), {"enabled": True}),
}  # fmt: skip


def validator() -> Any:
    return jsonschema.Draft202012Validator(json.loads((CHART / "values.schema.json").read_text()))


@pytest.mark.parametrize("file", sorted(VALUES.glob("*.yaml")), ids=lambda file: file.stem)
def test_good_values_are_taken(file: Path) -> None:
    assert [each.message for each in validator().iter_errors(values(file.stem))] == []


@in_one_loop
@pytest.mark.parametrize("fault", BAD)
def test_bad_values_are_refused_before_anything_starts(fault: str) -> None:
    made = deepcopy(values("application"))
    path, value = BAD[fault]
    here: Any = made
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = value
    assert list(validator().iter_errors(made)) != []


def test_an_image_may_be_one_text_as_in_0_3_0() -> None:
    assert [each.message for each in validator().iter_errors(values("application") | {"image": "registry.example/sluice:1"})] == []


@pytest.mark.parametrize("size", ["1Gi", "1048576Ki", "1.5Gi", "500M", "2000k", 1073741824, "1073741824"])
def test_sizes_are_what_kubernetes_calls_quantities(size: str | int) -> None:
    assert [each.message for each in validator().iter_errors(values("application") | {"state": {"size": size}})] == []


def test_a_chart_without_listeners_is_refused() -> None:
    assert list(validator().iter_errors(yaml.safe_load((CHART / "values.yaml").read_text()))) != []
