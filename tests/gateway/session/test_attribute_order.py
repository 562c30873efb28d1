"""The order of attributes in the objects that every turn looks at, which is a performance contract.

Compiled, attributes lie in memory in the order in which `__init__` assigns them, and a turn misses the cache as often as what it looks at
has lines of 64 bytes. So what every turn looks at comes first. No type checker and no other test would notice another order.

A new attribute goes behind those below, unless every turn reads it: then it belongs into the list here, and `make bench` decides.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HOT = {
    "gateway/session/session.py": (
        "Session",
        """conversation budget reports client upstream shared deliveries batch graceful_close forward again state queued client_silent
        broker_silent decode pipeline freed due timed settled_in idle_until""",
    ),
    "gateway/pipeline/conversation.py": (
        "Conversation",
        """budget reports lines draining memory_starved handshake_done has_close_frames rejects_requests postpones_decoding""",
    ),
    "gateway/pipeline/held_budget.py": ("HeldBudget", "next_due ask_due blocking held_bytes reply_bytes parked_bytes held_back frame_left"),
    "gateway/pipeline/reports.py": ("Reports", "unread broker_blocked endings"),
    "gateway/transport/channel.py": (
        "Channel",
        """fd _handle readable writable hangup_pending read_state write_state closed _has_backlog lends_certificate write_error queued sent
        _head received received_at sent_at""",
    ),
}


def assigned(path: Path, name: str) -> list[str]:
    """The attributes of a class, in the order in which its `__init__` assigns them first."""
    classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef) and node.name == name]
    initial = next(node for node in classes[0].body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    names: list[str] = []
    for statement in initial.body:
        targets = (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AnnAssign) else []
        )
        names += [target.attr for target in targets if isinstance(target, ast.Attribute)]
    return list(dict.fromkeys(names))


@pytest.mark.parametrize("file", HOT)
def test_attributes_that_every_turn_reads_come_first(file: str) -> None:
    name, hot = HOT[file]
    found = assigned(ROOT / file, name)
    assert found[: len(hot.split())] == hot.split()
    assert len(found) > len(hot.split()), "the rest comes behind"
