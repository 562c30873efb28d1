"""The manifests and the chart with Kubernetes' own programs: Helm, Kustomize, and a real API server, which runs no pod."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from support.api_server import TOKEN, ApiServer, RefusedError, built
from support.manifests import (
    CHART,
    CONSUMER,
    DEPLOY,
    GOLDEN,
    KUSTOMIZED,
    OURS,
    SIDECAR,
    VALUES,
    Manifest,
    containers,
    documents,
    pods,
    sets,
)
from support.processes import HANG_S, LOOPBACK, wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
SETS: Final = sets()
OPERATORS: Final = {"ServiceMonitor", "PrometheusRule"}
RESTRICTED: Final = {
    f"pod-security.kubernetes.io/{what}": value for what, value in (("enforce", "restricted"), ("enforce-version", "v1.36"))
}


def ran(*words: str, cwd: Path | None = None, text: str | None = None) -> str:
    done = subprocess.run([built(words[0]), *words[1:]], cwd=cwd, input=text, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def compare(name: str, made: str) -> None:
    file = GOLDEN / name
    if os.environ.get("SLUICE_GOLDEN"):
        file.write_text(made)
    assert file.read_text() == made, f"{name} is of other manifests: make test-kubernetes GOLDEN=1, and look at the difference"


@pytest.mark.parametrize("folder", KUSTOMIZED)
def test_kustomize_builds_the_bases(folder: str, tmp_path: Path) -> None:
    compare(f"kustomize-{folder}.yaml", ran("kustomize", "build", str(DEPLOY / folder)))
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    bases = {"resources": [os.path.relpath(DEPLOY / folder, overlay)], "components": [os.path.relpath(DEPLOY / "monitoring", overlay)]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump({"namespace": "shop", **bases}))
    made = [*yaml.safe_load_all(ran("kustomize", "build", "--load-restrictor", "LoadRestrictionsNone", str(overlay)))]
    assert {each["kind"] for each in made} > OPERATORS
    assert {each["metadata"]["namespace"] for each in made} == {"shop"}


@pytest.mark.parametrize("values", sorted(VALUES.glob("*.yaml")), ids=lambda file: file.stem)
def test_helm_lints_and_renders_the_chart(values: Path) -> None:
    assert "1 chart(s) linted, 0 chart(s) failed" in ran("helm", "lint", "--strict", str(CHART), "-f", str(values))
    rendered = ran("helm", "template", values.stem, str(CHART), "-f", str(values), "--kube-version", "1.32")
    compare(f"helm-{values.stem}.yaml", rendered)


def test_helm_renders_a_chart_that_has_ours_four_times(tmp_path: Path) -> None:
    shop = shutil.copytree(CONSUMER, tmp_path / "shop")
    described = (shop / "Chart.yaml").read_text().replace("file://SIDECAR", f"file://{SIDECAR}").replace("file://SLUICE", f"file://{CHART}")
    (shop / "Chart.yaml").write_text(described)
    ran("helm", "dependency", "update", str(shop))
    assert "1 chart(s) linted, 0 chart(s) failed" in ran("helm", "lint", "--strict", str(shop))
    compare("consumer.yaml", ran("helm", "template", "one", str(shop), "--kube-version", "1.32"))
    for wrong, said in (("sluice-orders.replicas=2", "replicas"), ("sluice-orders.config.listener=x", "listener")):
        done = subprocess.run([built("helm"), "template", "one", str(shop), "--set", wrong], capture_output=True, text=True, check=False)
        assert (done.returncode, said in done.stderr) == (1, True), done


@pytest.mark.parametrize("rolls", ["config", "all", "nothing"])
def test_a_change_starts_new_pods_where_the_values_say_so(rolls: str) -> None:
    def template(*words: str) -> str:
        values = ["-f", str(VALUES / "application.yaml"), "--set", f"rollPodsOn={rolls}"]
        made = ran("helm", "template", "x", str(CHART), *values, *words, "--kube-version", "1.32")
        (pod,) = [each["spec"]["template"] for each in yaml.safe_load_all(made) if each and each["kind"] == "Deployment"]
        return json.dumps(pod, sort_keys=True)

    before = template()
    assert (template("--set", "config.log.level=debug") != before) == (rolls != "nothing")
    assert (template("--set", "limits.rules[0].limit.messages=9/s") != before) == (rolls == "all")


@pytest.mark.parametrize(
    ("values", "setting", "said"),
    [("gateways", "replicas=2", "names"), ("gateways", "kind=Deployment", "names"), ("broker", "config.access_log=off", "access_log")],
)
def test_helm_refuses_what_would_go_to_the_wrong_broker_or_learn_nothing(values: str, setting: str, said: str) -> None:
    words = [built("helm"), "template", "x", str(CHART), "-f", str(VALUES / f"{values}.yaml"), "--kube-version", "1.32", "--set", setting]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, said in done.stderr) == (1, True), done


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("replica=3", "replica"), ("config.listeners[0].protocol=http", "config/listeners/0/protocol"), ("kind=DaemonSet", "kind"),
        ("limits.rules[0].limit.messages=fast", "limits/rules/0/limit/messages"), ("quotas.enabled=true", "kind"),
    ],
)  # fmt: skip
def test_helm_refuses_values_that_cannot_work_and_names_them(setting: str, said: str) -> None:
    words = [built("helm"), "template", "x", str(CHART), "-f", str(VALUES / "application.yaml"), "--set", setting]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.parametrize("size", ["1Gi", "1048576Ki", "1073741824"])
def test_the_spool_gets_half_of_a_volume_whatever_unit_its_size_has(size: str) -> None:
    values = ["-f", str(VALUES / "application.yaml"), "--set-string", f"state.size={size}"]
    assert "size: 512MiB" in ran("helm", "template", "x", str(CHART), *values, "--kube-version", "1.32")


def test_the_prometheus_operator_knows_every_word_of_its_kinds() -> None:
    found = [*documents(*sorted((DEPLOY / "monitoring").glob("[!k]*.yaml"))), *SETS["helm-application"]]
    text = yaml.safe_dump_all([each for each in found if each["kind"] in OPERATORS])
    assert text.count("\nkind:") == 4
    ran("monitors", text=text)
    bad = subprocess.run([built("monitors")], input=text.replace("jobLabel", "jobLable"), capture_output=True, text=True, check=False)
    assert (bad.returncode, "jobLable" in bad.stderr) == (1, True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("kubernetes")) as running:
        running.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted", "labels": RESTRICTED}})
        yield running


def applied(name: str) -> list[Manifest]:
    lone = {"nightly": DEPLOY / "quotas-cronjob.yaml", "consumer": GOLDEN / "consumer.yaml"}
    return SETS.get(name) or documents(lone[name])


@pytest.mark.parametrize("name", [*SETS, "nightly", "consumer"])
def test_a_real_api_server_takes_all_of_it(server: ApiServer, name: str) -> None:
    for each in applied(name):
        if each["kind"] not in OPERATORS:
            server.apply(each)


def test_helm_installs_and_upgrades_and_says_whose_the_limits_are(server: ApiServer) -> None:
    where = ["--kube-apiserver", f"https://{LOOPBACK}:{server.port}", "--kube-token", TOKEN, "--kube-insecure-skip-tls-verify"]
    own, shared = (["-f", str(VALUES / f"{name}.yaml")] for name in ("gateways", "fleet"))
    said = ran("helm", "install", "installed", str(CHART), *own, *where)
    assert "3 pods let 3 times as much pass together" in said
    said = ran("helm", "upgrade", "installed", str(CHART), *shared, *where)
    assert "one over all pods" in said
    said = ran("helm", "upgrade", "installed", str(CHART), *own, "--set-string", "config.fleet=off", *where)
    assert "3 pods let 3 times as much pass together" in said
    assert server.knows("/apis/apps/v1/namespaces/default/deployments/installed")


@pytest.mark.parametrize("name", [*SETS, "nightly", "consumer"])
def test_the_pods_are_allowed_where_only_restricted_ones_are(server: ApiServer, name: str) -> None:
    """Pod Security Standards. The rest of a pod is checked as well: names of ports, probes, volumes."""
    for workload, pod in pods(applied(name)):
        spec = copy.deepcopy(pod) | {"serviceAccountName": "default"}
        claimed = [each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])]
        spec["volumes"] = [*spec["volumes"], *({"name": each, "emptyDir": {}} for each in claimed)]
        if name.startswith("helm") and workload["kind"] != "CronJob":
            for other in spec["containers"]:  # yours, of which the values say nothing here
                other.setdefault("securityContext", {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}})
        made: Manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
        server.apply(made, "restricted", dry_run=True)
        gateway = [each for each in containers(spec) if each["name"] in {"sluice", "sluice-orders", "nightly"}]
        del gateway[0]["securityContext"]["capabilities"]
        with pytest.raises(RefusedError, match=r"403.*unrestricted capabilities"):
            server.apply(made, "restricted", dry_run=True)


def test_a_field_that_does_not_exist_is_refused(server: ApiServer) -> None:
    (deployment,) = [copy.deepcopy(each) for each in SETS["client"] if each["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["initContainers"][0]["restartPolice"] = "Always"
    with pytest.raises(RefusedError, match="restartPolice"):
        server.apply(deployment, dry_run=True)


def test_the_spark_operators_own_definition_takes_the_application(server: ApiServer) -> None:
    # Nothing that is built imports it, so `go build` has not fetched it, and `go list` would know no folder of it.
    words = ["go", "mod", "download", "-json", "github.com/kubeflow/spark-operator/v2"]
    said = subprocess.run(words, cwd=OURS / "server", capture_output=True, text=True, timeout=300, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    found = json.loads(said.stdout)["Dir"]
    name = "scheduledsparkapplications"
    (definition,) = documents(Path(found) / "config" / "crd" / "bases" / f"sparkoperator.k8s.io_{name}.yaml")
    server.apply(definition)
    wait_until(lambda: server.knows(f"/apis/sparkoperator.k8s.io/v1beta2/{name}"), within=60, what="the new kind")
    (application,) = documents(DEPLOY / "quotas-sparkapplication.yaml")
    server.apply(application)
    wrong: Any = copy.deepcopy(application)
    wrong["spec"]["template"]["driver"]["core"] = 1
    with pytest.raises(RefusedError, match=r"core"):
        server.apply(wrong, dry_run=True)
