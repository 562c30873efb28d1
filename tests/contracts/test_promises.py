"""What the contract promises by name is there (docs/design/contract.md 3, 5, 7), settings with their values; the names here are a copy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.main import sluice
from config import load
from gateway.telemetry.metrics import METRICS

ROOT = Path(__file__).parents[2]
CONFIGURATION = """\
version: 1
gateway: {name: orders-sidecar, workers: 1, state_directory: state, takeover: run/handoff.sock, watchdog: 15s}
listeners:
  - name: rabbit
    protocol: amqp
    bind: 127.0.0.1:5672
    upstream: [10.0.0.1:5672, 10.0.0.2:5672]
    accept_proxy_protocol: true
    trusted_proxies: [10.0.0.0/8]
    send_proxy_protocol: none
    max_connections: 10000
    max_connections_per_address: 100
    max_connections_per_user: 100
    handshake_timeout: 10s
    idle_timeout: 10min
    max_frame: 16MiB
  - {name: rocket, protocol: rocketmq, bind: 127.0.0.2:10911, upstream: 127.0.0.1:10911}
  - name: names
    protocol: rocketmq-nameserver
    bind: 127.0.0.1:9877
    upstream: 127.0.0.1:9876
    advertise: 127.0.0.1
    broker_ports: 20911-20950
limiter: {threads: 1, queue: 10000, on_rejection: pass, max_keys: 1000000, inline: trusted}
credit: {initial: 400, more_after: 200}
memory: {per_connection: 1MiB, high_watermark: 256MiB, target: 128MiB}
spool: {directory: spool, max_size: 4GiB}
disk: {low_watermark: 200MiB}
drain: {timeout: 27s, hold: at_once}
admin:
  bind: 127.0.0.1:9180
  names: [sluice.monitoring.svc]
  socket: run/admin.sock
probes: {bind: 0.0.0.0:9181, metrics: token}
access_log: {directory: access-log, roll_every: 5min, roll_size: 128MiB, keep: 30d, keep_size: 10GiB, compress: gzip}
log: {level: info, format: json}
rules_file: limits.yaml
"""
RULES = """\
rules:
  - {name: rocketmq-topics, match: {protocol: rocketmq}, per: topic, limit: {messages: 2000/s}}
  - {name: rocketmq-retries, match: {protocol: rocketmq, topic: '%RETRY%*'}, per: topic, limit: {messages: 100/s}}
  - name: orders
    match: {protocol: amqp, vhost: /, exchange: orders, routing_key: 'order.#'}
    per: topic
    limit: {messages: 500/s, bytes: 10MiB/s, burst: 2s}
    algorithm: token_bucket
    breaker: {open_for: 1s}
    action: reject
    max_delay: 1s
    mode: enforce
    candidate: {messages: 300/s}
    weight: 1
    protected: false
  - {name: bursts, match: {protocol: amqp, exchange: bursts}, limit: {messages: 500/s}, action: spool, max_age: 1h}
"""
MEMBERS = """\
gateway.takeover gateway.watchdog limiter.inline memory.high_watermark drain.timeout drain.hold admin.names admin.socket probes.bind
probes.metrics access_log.keep access_log.keep_size access_log.compress memory.target spool.directory spool.max_size"""
LABELS = {  # metric -> labels that the contract names; a metric may have more
    "sluice_build_info": "", "sluice_connections_active": "", "sluice_connections_opened_total": "",
    "sluice_connections_closed_total": "cause", "sluice_messages_received_total": "topic", "sluice_messages_forwarded_total": "topic",
    "sluice_messages_refused_total": "topic reason", "sluice_messages_delayed_total": "topic", "sluice_messages_dropped_total": "topic",
    "sluice_messages_bypassed_total": "topic", "sluice_messages_abandoned_total": "topic", "sluice_messages_waiting": "topic",
    "sluice_message_bytes_total": "topic", "sluice_limit_rate": "rule", "sluice_limit_checks_total": "result",
    "sluice_overhead_seconds": "",
    "sluice_event_loop_lag_seconds": "", "sluice_credit_blocked_seconds_total": "stage", "sluice_config_last_reload_successful": "",
    "sluice_config_version": "", "sluice_topic_limit": "protocol topic dimension origin",
    "sluice_topic_limited_seconds_total": "protocol topic", "sluice_rule_messages_total": "rule result", "sluice_quota_age_seconds": "",
    "sluice_quota_last_success_timestamp_seconds": "", "sluice_quota_refused_ratio": "", "process_cpu_seconds_total": "",
    "process_open_fds": "", "process_max_fds": "", "process_resident_memory_bytes": "", "process_virtual_memory_bytes": "",
    "process_start_time_seconds": "",
}  # fmt: skip
TARGETS = "demo test bench bench-quotas lint build clean docs soak chaos fuzz release coverage"
CONNECTING = {"--admin", "--token-file", "--timeout", "-o"}
CHANGING = {"--dry-run", "--reason", "--yes"}


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    (tmp_path / "limits.yaml").write_text(RULES)
    file = tmp_path / "sluice.yaml"
    file.write_text(CONFIGURATION)
    return file


def test_the_contracts_configuration_is_taken_with_every_member(configuration: Path) -> None:
    shown = load(configuration).describe()
    for member in MEMBERS.split():
        section, _, name = member.partition(".")
        inner = shown[section]
        assert isinstance(inner, dict)
        assert name in inner, member


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("inline: trusted", "inline: never"),
        ("hold: at_once", "hold: until_clients_leave"),
        ("metrics: token", "metrics: open"),
        ("compress: gzip", "compress: zstd"),
    ],
)
def test_the_other_values_that_it_names_are_taken_too(configuration: Path, before: str, after: str) -> None:
    configuration.write_text(CONFIGURATION.replace(before, after))
    assert after.partition(": ")[2] in str(load(configuration).describe())


def test_the_contracts_metrics_have_the_labels_that_it_names() -> None:
    known = {name: set(metric.labels) for name, metric in METRICS.items()}
    assert LABELS.keys() - known.keys() == set()
    assert {name: missing for name, labels in LABELS.items() if (missing := set(labels.split()) - known[name])} == {}


def test_the_contracts_targets_of_make_are_there_with_a_line_in_its_list() -> None:
    told = set(re.findall(r"(?m)^([a-z-]+):.*?## \S", (ROOT / "Makefile").read_text()))
    assert set(TARGETS.split()) - told == set()
    assert all(f"{variable}=" in (ROOT / "Makefile").read_text() for variable in ("HOURS", "SECONDS"))


def test_lists_can_be_sorted_cut_watched_and_told_in_every_form() -> None:
    for words in (
        "topics",
        "limits list",
        "connections list",
        "listeners",
        "rules list",
        "history list",
        "audit list",
        "token list",
        "clients",
        "spool list",
    ):
        options = _options(words)
        assert {"--sort", "--limit", "--watch"} | CONNECTING <= options, words
    assert {"wide", "csv", "json", "yaml", "table"} <= _choices("topics", "-o")
    assert {"used", "refused", "rate", "wait"} <= _choices("topics", "--sort") & _choices("limits list", "--sort") & _choices(
        "top", "--sort"
    )


@pytest.mark.parametrize(
    "words",
    ["limits set", "limits unset", "rules set", "rules reset", "quotas apply", "quotas rollback", "history rollback"],
)
def test_verbs_that_change_limits_take_a_dry_run_a_version_a_reason_and_a_yes(words: str) -> None:
    assert _options(words) >= CONNECTING | CHANGING | {"--if-version"}


@pytest.mark.parametrize(
    "words",
    ["connections close", "drain", "reload", "token new", "token revoke"],
)
def test_other_deeds_take_a_dry_run_a_reason_and_a_yes(words: str) -> None:
    assert _options(words) >= CONNECTING | CHANGING


def _command(words: str) -> object:
    found: object = sluice
    for word in words.split():
        found = found.get_command(None, word)  # type: ignore[attr-defined]
    return found


def _options(words: str) -> set[str]:
    return {option for each in _command(words).params for option in (*each.opts, *each.secondary_opts)}  # type: ignore[attr-defined]


def _choices(words: str, option: str) -> set[str]:
    (found,) = [each for each in _command(words).params if option in each.opts]  # type: ignore[attr-defined]
    return set(found.type.choices)
