"""Writes the schema of the chart's values (`make docs`): what is not a value is refused, and so is what sluice refuses of its own files.

`config` and `limits` have the gateway's own schemas, so `helm install` names a setting that does not exist before any pod has started.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from gateway.settings.schema import rules_schema, schema

TARGET: Final = Path(__file__).resolve().parent / "sluice" / "values.schema.json"
TEXT: Final = {"type": "string", "minLength": 1}
YES: Final = {"type": "boolean"}
MANY: Final = {"type": "array", "items": {"type": "object"}}
ANY: Final = {"type": "object"}
NAME: Final = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"}
LOOKAHEAD: Final = re.compile(r"\(\?[=!](?:[^()\\]|\\.|\[[^]]*\]|\((?:[^()\\]|\\.)*\))*\)")
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


def values_schema() -> dict[str, Any]:
    config = {name: value for name, value in schema().items() if name in {"type", "properties", "additionalProperties"}}
    limits = {name: value for name, value in rules_schema().items() if name in {"type", "properties", "additionalProperties", "required"}}
    port = {"type": "integer", "minimum": 1, "maximum": 65535}
    values = {
        "image": TEXT,
        "imagePullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
        "imagePullSecrets": MANY,
        "kind": {"enum": ["Deployment", "StatefulSet"]},
        "replicas": {"type": "integer", "minimum": 0},
        "containers": MANY,
        "volumes": MANY,
        "volumeClaimTemplates": MANY,
        "config": {**config, "required": ["listeners"]},
        "limits": limits,
        "service": {
            "type": "object", "propertyNames": {"pattern": "^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$"}, "additionalProperties": port,
        },
        "tokens": closed(
            {"secret": NAME, "roles": {"type": "object", "additionalProperties": {"enum": ["viewer", "operator", "admin"]}}},
            required=["secret", "roles"],
        ),
        "drainBeforeStop": YES,
        "terminationGracePeriodSeconds": {"type": "integer", "minimum": 9},
        "resources": RESOURCES,
        "state": closed({"size": SIZE}, required=["size"]),
        "readinessProbe": YES,
        "env": MANY,
        "podLabels": ANY,
        "podAnnotations": ANY,
        "nodeSelector": ANY,
        "tolerations": MANY,
        "affinity": ANY,
        "topologySpreadConstraints": MANY,
        "podDisruptionBudget": closed({"enabled": YES, "maxUnavailable": {"type": ["integer", "string"]}}),
        "networkPolicy": closed({"enabled": YES, "clients": MANY, "scrapers": MANY, "more": MANY}),
        "monitoring": closed({"serviceMonitor": YES, "prometheusRule": YES, "labels": ANY}),
        "quotas": closed(
            {
                "enabled": YES, "image": TEXT, "kubectlImage": TEXT, "schedule": TEXT, "timeZone": TEXT, "log": TEXT, "state": TEXT,
                "secret": NAME, "args": {"type": "array", "items": TEXT}, "resources": RESOURCES,
            }
        ),
        "global": ANY,  # Helm's own
    }  # fmt: skip
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Values of the chart sluice"}
    # Pods of a Deployment have other names each time, so nothing leads to each of them.
    nightly = {
        "if": {"properties": {"quotas": {"properties": {"enabled": {"const": True}}, "required": ["enabled"]}}, "required": ["quotas"]},
        "then": {"properties": {"kind": {"const": "StatefulSet"}}},
    }
    return {**head, **closed(values), "required": ["config"], **nightly}


def text() -> str:
    return json.dumps(without_lookahead(values_schema()), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
