"""A process that will take over reads the state directory while another one has it, and changes nothing of it until then."""

from __future__ import annotations

from pathlib import Path

import pytest

from admin.store.changes import Author, WriteFailedError
from admin.store.state import StoredOverride
from admin.store.store import Store, StoreError
from support.admin.admin_client import RULES, Clock

WHO = Author("tester", "admin", "127.0.0.1", "r1")
KEY = "limits/rocketmq/orders"


async def set_rate(store: Store, rate: int) -> None:
    await store.change(lambda: ([(KEY, StoredOverride(messages=f"{rate}/s"))], None), WHO, "test")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("damage", ["", "state.json", "both"])
async def test_nothing_is_changed_not_even_half_a_line_that_is_being_written(tmp_path: Path, damage: str) -> None:
    running = Store.open(tmp_path, RULES, Clock())
    for rate in (6, 7):
        await set_rate(running, rate)
    with (tmp_path / "history.jsonl").open("ab") as history:
        history.write(b'{"hash":"half a li')
    for name in {"": [], "state.json": ["state.json"], "both": ["state.json", "state.json.previous"]}[damage]:
        (tmp_path / name).unlink()
    before = contents(tmp_path)
    observing = Store.open(tmp_path, RULES, Clock(), observing=True)
    assert contents(tmp_path) == before
    assert observing.revision == 2
    with pytest.raises(WriteFailedError, match="another process still has it"):
        await set_rate(observing, 8)
    assert contents(tmp_path) == before
    running.close()


async def test_it_takes_what_was_changed_meanwhile_and_the_one_before_refuses(tmp_path: Path) -> None:
    running = Store.open(tmp_path, RULES, Clock())
    observing = Store.open(tmp_path, RULES, Clock(), observing=True)
    await set_rate(running, 7)
    assert observing.revision == 0
    await running.hand_over()
    observing.take()
    assert observing.revision == 1
    with pytest.raises(WriteFailedError, match="another process is taking over") as open_yet:
        await set_rate(running, 9)
    assert open_yet.value.way_out == "wait for some seconds"
    running.give()
    with pytest.raises(WriteFailedError, match="another process has taken over") as known:
        await set_rate(running, 9)
    assert known.value.way_out == "ask that one"
    await set_rate(observing, 8)
    observing.close()
    assert Store.open(tmp_path, RULES, Clock()).revision == 2


@pytest.mark.parametrize("damaged", [False, True])
async def test_what_was_handed_over_is_had_again_once_it_is_free_and_whole(tmp_path: Path, *, damaged: bool) -> None:
    """Until then what was in force holds, and changes are refused."""
    running = Store.open(tmp_path, RULES, Clock())
    await set_rate(running, 7)
    before = running.rules()
    await running.hand_over()
    other = Store.open(tmp_path, RULES, Clock())
    await set_rate(other, 8)
    kept = contents(tmp_path)
    if damaged:
        other.close()
        for name in ("state.json", "state.json.previous"):
            (tmp_path / name).write_bytes(b"{")
    for _ in range(2):
        with pytest.raises(StoreError):
            running.take()
        assert running.rules() is before
        with pytest.raises(WriteFailedError, match="or has failed to and is not gone yet"):
            await set_rate(running, 9)
    other.close()
    for name in ("state.json", "state.json.previous"):
        (tmp_path / name).write_bytes(kept[name])
    running.take()
    assert running.revision == 2
    await set_rate(running, 9)
    assert running.revision == 3
    running.close()
