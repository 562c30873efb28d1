"""The effective configuration value by value, with its origins."""

from __future__ import annotations

from pathlib import Path

from config import load
from config.effective import values_with_origins


def test_each_value_names_its_file_and_line_or_variable_or_flag_or_default(tmp_path: Path) -> None:
    (tmp_path / "limits.yaml").write_text("rules:\n  - {name: orders, match: {protocol: amqp},\n     limit: {messages: 5/s}}\n")
    file = tmp_path / "sluice.yaml"
    file.write_text(
        "version: 1\nlisteners:\n  - {name: rabbit, protocol: amqp,\n     bind: 127.0.0.1:0, upstream: 127.0.0.1:1}\n"
        "rules_file: limits.yaml\n"
    )
    settings = load(file, {"SLUICE_ADMIN__BIND": "127.0.0.1:9"}, {"log.level": "error"})
    found = {str(each["path"]): (each["value"], each["origin"]) for each in values_with_origins(settings)}
    assert found["listeners[0].upstream"][1] == {"kind": "file", "file": str(file), "line": 4, "column": 35}
    assert found["admin.bind"] == ("127.0.0.1:9", {"kind": "environment", "name": "SLUICE_ADMIN__BIND"})
    assert found["log.level"] == ("error", {"kind": "flag", "name": "--log-level"})
    assert found["credit.initial"][1] == {"kind": "default"}
    (rule,) = [origin for path, (value, origin) in found.items() if path.startswith("rules[0].limit") and value == "5/s"]
    assert (rule["kind"], rule["file"], rule["line"]) == ("file", str(tmp_path / "limits.yaml"), 3)  # type: ignore[index]
