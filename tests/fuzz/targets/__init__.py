"""What is fuzzed: a function of bytes for each parser, which raises where a promise is broken.

Promises of every parser: its documented error and nothing else; the same outcome however the bytes are cut; what is taken is the same when
it is written and read again; what is refused changes nothing; little memory and time for little input. `run.py` drives these,
`test_corpus.py` replays the corpus and every crash there ever was, `test_round.py` has a short round of mutations.

A mutator for each stands in `fuzz.mutators`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

Target = Callable[[bytes], None]

MODULES = {  # by target: the module here that has it
    **dict.fromkeys(("amqp_client", "amqp_broker", "amqp_talk", "amqp_handshake"), "amqp"),
    **dict.fromkeys(("rocketmq_header", "rocketmq_template", "rocketmq_client", "rocketmq_broker", "rocketmq_talk"), "rocketmq"),
    **dict.fromkeys(("nameserver_route", "nameserver_talk"), "nameserver"),
    "proxy_header": "proxy",
    "takeover": "takeover",
    "admin_http": "admin_http",
    "admin_api": "admin_api",
    **dict.fromkeys(("admin_body", "quantity"), "admin_bodies"),
    **dict.fromkeys(("yaml_tree", "settings_file", "rules_file"), "settings"),
    **dict.fromkeys(("state_file", "journal", "state_directory", "fills", "quota_snapshot"), "state_files"),
    **dict.fromkeys(("log_lines", "log_manifest"), "access_log"),
}


class Targets(Mapping[str, Target]):
    """By name; the module of a target, and what it tests, is imported when it is asked for: instrumenting all takes half a minute."""

    def __getitem__(self, name: str) -> Target:
        target: Target = getattr(import_module(f"fuzz.targets.{MODULES[name]}"), name)
        return target

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


TARGETS = Targets()
