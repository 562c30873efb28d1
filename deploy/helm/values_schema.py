"""Writes the schemas of the charts' values (`make docs`): what is not a value is refused, and so is what sluice refuses of its own files.

`config` and `limits` have the gateway's own schemas, so `helm install` names a setting that does not exist before any pod has started.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from config.schema import rules_schema, schema

CHART: Final = Path(__file__).resolve().parent / "sluice"
TEXT: Final = {"type": "string", "minLength": 1}
YES: Final = {"type": "boolean"}
MANY: Final = {"type": "array", "items": {"type": "object"}}
ANY: Final = {"type": "object"}
NAME: Final = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"}
LOOKAHEAD: Final = re.compile(r"\(\?[=!](?:[^()\\]|\\.|\[[^]]*\]|\((?:[^()\\]|\\.)*\))*\)")
PORT: Final = {"type": "integer", "minimum": 1, "maximum": 65535}
IMAGE: Final = {  # or the whole reference
    "type": ["object", "string"], "minLength": 1, "required": ["repository"], "additionalProperties": False,
    "properties": {
        "repository": TEXT,
        "tag": {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"},
        "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    },
}  # fmt: skip
# A quantity of Kubernetes: k is 1000, Ki 1024.
SIZE: Final = {"type": ["string", "integer"], "pattern": "^[0-9]+(\\.[0-9]+)?([EPTGM]i?|Ki|k|m)?$"}
QUANTITIES: Final = {
    "type": "object", "properties": {"cpu": SIZE, "memory": SIZE, "ephemeral-storage": SIZE}, "required": ["cpu", "memory"],
    "additionalProperties": False,
}  # fmt: skip
RESOURCES: Final = {
    "type": "object", "properties": {"requests": QUANTITIES, "limits": QUANTITIES}, "required": ["requests", "limits"],
    "additionalProperties": False,
}  # fmt: skip


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def without_lookahead(value: Any) -> Any:
    """The schema with patterns that Go's regular expressions can say: an assertion such as `(?=...)` is left out, the rest stays."""
    if isinstance(value, list):
        return [without_lookahead(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: LOOKAHEAD.sub("", each) if name == "pattern" and isinstance(each, str) else without_lookahead(each)
        for name, each in value.items()
    }


def gateway() -> dict[str, Any]:
    """Values of one gateway, wherever its pod comes from."""
    config = {name: value for name, value in schema().items() if name in {"type", "properties", "additionalProperties"}}
    limits = {name: value for name, value in rules_schema().items() if name in {"type", "properties", "additionalProperties", "required"}}
    return {
        "image": IMAGE,
        "imagePullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
        "config": config,
        "limits": limits,
        "service": {
            "type": "object", "propertyNames": {"pattern": "^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$"}, "additionalProperties": PORT,
        },
        "adminPort": PORT,
        "probesPort": PORT,
        "tokens": closed(
            {"secret": NAME, "roles": {"type": "object", "additionalProperties": {"enum": ["viewer", "operator", "admin"]}}},
            required=["secret", "roles"],
        ),
        "rollPodsOn": {"enum": ["config", "all", "nothing"]},
        "drainBeforeStop": YES,
        "resources": RESOURCES,
        "state": closed({"size": SIZE}, required=["size"]),
        "readinessProbe": YES,
        "env": MANY,
        "global": ANY,  # Helm's own
    }  # fmt: skip


def values_schema() -> dict[str, Any]:
    """Of the chart sluice."""
    one = gateway()
    values = {
        **one,
        "config": {**one["config"], "required": ["listeners"]},  # of a sidecar the templates ask for them: without an alias it has none
        "sluice-sidecar": ANY,  # the chart within this one; its values are not used here
        "imagePullSecrets": MANY,
        "kind": {"enum": ["Deployment", "StatefulSet"]},
        "replicas": {"type": "integer", "minimum": 0},
        "containers": MANY,
        "volumes": MANY,
        "volumeClaimTemplates": MANY,
        "terminationGracePeriodSeconds": {"type": "integer", "minimum": 9},
        "fullnameOverride": {"type": "string", "pattern": "^([a-z]([a-z0-9-]{0,48}[a-z0-9])?)?$"},
        "podLabels": ANY,
        "podAnnotations": ANY,
        "nodeSelector": ANY,
        "tolerations": MANY,
        "affinity": ANY,
        "topologySpreadConstraints": MANY,
        "podDisruptionBudget": closed({"enabled": YES, "maxUnavailable": {"type": ["integer", "string"]}}),
        "networkPolicy": closed(
            {"enabled": YES, "clients": MANY, "scrapers": MANY, "closed": {"type": "array", "items": PORT}, "more": MANY}
        ),
        "monitoring": closed({"serviceMonitor": YES, "prometheusRule": YES, "labels": ANY}),
        "quotas": closed(
            {
                "enabled": YES, "image": IMAGE, "kubectlImage": IMAGE, "schedule": TEXT, "timeZone": TEXT, "log": TEXT, "state": TEXT,
                "secret": NAME, "args": {"type": "array", "items": TEXT}, "resources": RESOURCES,
            }
        ),
    }  # fmt: skip
    # Pods of a Deployment have other names each time, so nothing leads to each of them.
    nightly = {
        "if": {"properties": {"quotas": {"properties": {"enabled": {"const": True}}, "required": ["enabled"]}}, "required": ["quotas"]},
        "then": {"properties": {"kind": {"const": "StatefulSet"}}},
    }
    return _of("sluice", values) | nightly


def _of(chart: str, values: dict[str, Any]) -> dict[str, Any]:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"Values of the chart {chart}"}
    return {**head, **closed(values), "required": ["config"]}


def texts() -> dict[Path, str]:
    """What each file has: of the properties one in each line, as config/ has the gateway's in many."""
    made = {
        CHART / "values.schema.json": values_schema(),
        CHART / "charts/sluice-sidecar/values.schema.json": _of("sluice-sidecar", gateway()),
    }
    return {path: _lines(without_lookahead(schema)) for path, schema in made.items()}


def _lines(schema: dict[str, Any]) -> str:
    def one(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    inner = ",\n".join(f"  {one(name)}: {one(value)}" for name, value in schema["properties"].items())
    outer = [f" {one(name)}: {one(value)}" for name, value in schema.items() if name != "properties"]
    return "{\n" + ",\n".join([*outer, ' "properties": {\n' + inner + "\n }"]) + "\n}\n"


if __name__ == "__main__":
    for target, text in texts().items():
        target.write_text(text)
