"""Quotas in shadow mode, their way back, and the return of those that refuse too much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from admin.quota_watch import LOOK_S, MIN_AGE_S, QuotaWatch, Trial
from admin.store.state import PublishedQuotas
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from limiter.topics import rocketmq_topic
from support.admin.admin_client import Clock, Control, control

from .test_quotas import snapshot

ORDERS = rocketmq_topic(b"orders")


def topic(name: str, received: int, **counts: int) -> dict[str, object]:
    return {"protocol": "rocketmq", "topic": name, "operation": "produce", "received": received, **counts}


async def publish(api: Control, path: str = "/v1/quotas", query: str = "", **rates: int) -> Any:
    answer = await api.ask("PUT", f"{path}?force=1{query}", snapshot(**rates))
    assert answer.status == 200, answer.body
    return answer.json()


async def rate_in_force(api: Control) -> int | None:
    quotas = (await api.ask("GET", "/v1/quotas")).json()["quotas"]
    return quotas[0]["messages"]["rate"] if quotas else None


# ---- shadow ---------------------------------------------------------------------------------------------------------


async def test_quotas_in_shadow_mode_are_counted_and_not_enforced(api: Control) -> None:
    await publish(api, "/v1/quotas/shadow", orders=50)
    assert api.gateway.flood(ORDERS, 200, 10**9) == 200
    level = (await api.ask("GET", "/v1/limits/rocketmq/orders")).json()["levels"][-1]
    assert (level["origin"], level["mode"], level["limit"]["messages"]) == ("quota-shadow", "shadow", "50/s")
    assert (level["usage"]["admitted"], level["usage"]["shadow_refused"]) == (50, 150)
    assert await rate_in_force(api) is None
    assert (await api.ask("GET", "/v1/quotas/shadow")).json()["quotas"][0]["messages"]["rate"] == 50


async def test_a_topic_without_any_rule_is_tried_too(tmp_path: Path) -> None:
    async with control(tmp_path, ()) as api:
        await publish(api, "/v1/quotas/shadow", orders=50)
        assert api.gateway.flood(ORDERS, 5000, 10**9) == 5000
        state = [each for each in api.gateway.judge.states(10**9) if each.thing == "orders"]
        assert [(each.effective.origin, each.shadow_refused) for each in state] == [("quota-shadow", 4950)]


@pytest.mark.parametrize(
    "rule",
    [
        Rule("orders", Match(topic="orders", protocol="rocketmq"), limit=Limit(messages=Rate(100))),
        Rule("off", Match(protocol="rocketmq"), limit=Limit(messages=Rate(100)), mode="off"),
    ],
)
async def test_what_would_not_hold_if_it_were_published_is_not_tried(tmp_path: Path, rule: Rule) -> None:
    async with control(tmp_path, (rule,)) as api:
        await publish(api, "/v1/quotas/shadow", orders=50)
        assert [each["origin"] for each in (await api.ask("GET", "/v1/limits/rocketmq/orders")).json()["levels"]].count("quota-shadow") == 0


async def test_a_live_change_is_not_tried_against(api: Control) -> None:
    await publish(api, "/v1/quotas/shadow", orders=50)
    await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"messages": "7/s"})
    assert [each["origin"] for each in (await api.ask("GET", "/v1/limits/rocketmq/orders")).json()["levels"]] == ["override"]


async def test_an_explanation_is_of_what_holds(api: Control) -> None:
    await publish(api, "/v1/quotas/shadow", orders=50)
    explained = (await api.ask("GET", "/v1/limits/rocketmq/orders?explain=1")).json()["explanation"]
    assert [each["holds"]["origin"] for each in explained if each["per"] == "topic" and each["operation"] == "produce"] == ["default"]


async def test_publishing_ends_the_trial_and_a_restart_does_not(tmp_path: Path) -> None:
    async with control(tmp_path) as api:
        await publish(api, "/v1/quotas/shadow", orders=50)
    async with control(tmp_path) as api:
        api.gateway.flood(ORDERS, 200, 10**9)
        assert (await api.ask("GET", "/v1/limits/rocketmq/orders")).json()["levels"][-1]["usage"]["shadow_refused"] == 150
        await publish(api, orders=60)
        status = (await api.ask("GET", "/v1/quotas/status")).json()
        assert (status["shadow"], status["published"]["quotas"]) == (None, 1)
        assert len(list(api.folder.glob("quotas/*.json"))) == 1
        levels = (await api.ask("GET", "/v1/limits/rocketmq/orders")).json()["levels"]
        assert [each["origin"] for each in levels] == ["quota"]


async def test_a_trial_can_be_ended_and_its_nights_are_counted(api: Control) -> None:
    first = await publish(api, "/v1/quotas/shadow", orders=50)
    again = await publish(api, "/v1/quotas/shadow", orders=50)
    second = await publish(api, "/v1/quotas/shadow", orders=51)
    assert [each["published"]["nights"] for each in (first, again, second) if each["published"]] == [1, 1, 2]
    assert first["published"]["since"] == second["published"]["since"]
    assert len(list(api.folder.glob("quotas/*.json"))) == 1
    read = await api.ask("GET", "/v1/quotas/shadow")
    assert (await api.ask("DELETE", "/v1/quotas/shadow", headers={"If-Match": '"x"'})).status == 412
    assert (await api.ask("DELETE", "/v1/quotas/shadow", headers={"If-Match": read.etag})).json()["published"] is None
    assert (await api.ask("GET", "/v1/limits/rocketmq/orders")).json()["levels"][-1]["origin"] == "default"


async def test_a_night_that_was_taken_back_counts_once(api: Control) -> None:
    nights = []
    for day in (19, 20, 19, 20, 20, 21):
        tried = {**snapshot(orders=day), "date": f"2026-11-{day}"}
        nights.append((await api.ask("PUT", "/v1/quotas/shadow?force=1", tried)).json()["published"]["nights"])
    assert nights == [1, 2, 1, 2, 2, 3]


# ---- the way back ---------------------------------------------------------------------------------------------------


async def test_each_rollback_goes_one_further_back_and_leaves_limits_alone(api: Control) -> None:
    """findings 1.4: the second rollback published the bad snapshot again."""
    for rate in (10, 20, 30):
        await publish(api, orders=rate)
    await api.ask("PUT", "/v1/limits/rocketmq/other?force=1", {"messages": "7/s"})
    seen = []
    for _ in range(3):
        etag = (await api.ask("GET", "/v1/quotas")).etag
        answer = await api.ask("POST", "/v1/quotas:rollback", {"reason": "bad"}, headers={"If-Match": etag})
        assert answer.status == 200, answer.body
        seen.append(await rate_in_force(api))
    assert seen == [20, 10, None]
    assert (await api.ask("GET", "/v1/limits/rocketmq/other")).json()["override"]["messages"] == "7/s"
    assert (await api.ask("POST", "/v1/quotas:rollback?force=1")).status == 404


async def test_a_publication_after_a_rollback_leads_back_to_what_it_replaced(api: Control) -> None:
    for rate in (10, 20):
        await publish(api, orders=rate)
    await api.ask("POST", "/v1/quotas:rollback?force=1")
    await publish(api, orders=40)
    preview = (await api.ask("POST", "/v1/quotas:rollback?dry_run=1")).json()
    assert preview["changes"][0]["after"]["put_back"]
    await api.ask("POST", "/v1/quotas:rollback?force=1")
    assert await rate_in_force(api) == 10


# ---- realised refusals, and the return ------------------------------------------------------------------------------


async def test_realised_refusals_are_those_since_the_publication(api: Control) -> None:
    api.gateway.seen_topics = [topic("orders", 1000, refused=500), topic("other", 1000, refused=1000)]
    await publish(api, orders=50)
    api.gateway.seen_topics = [topic("orders", 3000, refused=540, dropped=40, delayed=20), topic("other", 9000, refused=9000)]
    realised = (await api.ask("GET", "/v1/quotas/status")).json()["realised"]
    assert (realised["offered"], realised["refused"], realised["ratio"]) == (2000, 100, 0.05)
    assert realised["topics"] == [{"protocol": "rocketmq", "topic": "orders", "offered": 2000, "refused": 100}]
    text = (await api.ask("GET", "/metrics")).body.decode()
    assert "sluice_quota_refused_ratio 0.05\n" in text
    assert "sluice_quota_age_seconds " in text
    assert f"sluice_quota_last_success_timestamp_seconds {api.clock.now:.0f}" in text.replace(".0\n", "\n")


@pytest.mark.parametrize(
    ("said", "ratio"),
    [
        ({"night": {"target_refused_ppm": 5000}, "parameters": {"target_refused_ppm": 1}}, "0.005"),
        ({"parameters": {"target_refused_ppm": 2000}}, "0.002"),
        ({}, None),
        ({"night": {"target_refused_ppm": "many"}}, None),
        ({"night": {"target_refused_ppm": True}}, None),
    ],
)
async def test_the_target_stands_beside_what_was_refused(api: Control, said: dict[str, Any], ratio: str | None) -> None:
    """The help told people to compare with 0.001, also where the night had another target."""
    answer = await api.ask("PUT", "/v1/quotas?force=1", {**snapshot(orders=50), **said})
    assert answer.status == 200, answer.body
    text = (await api.ask("GET", "/metrics")).body.decode()
    assert (f"sluice_quota_target_ratio {ratio}\n" in text) is (ratio is not None)
    assert (
        "sluice_quota_target_ratio " in text.replace("HELP sluice_quota_target_ratio ", "").replace("TYPE sluice_quota_target_ratio ", "")
    ) is (ratio is not None)


async def test_what_is_tried_is_counted_by_shadow_refusals(api: Control) -> None:
    await publish(api, "/v1/quotas/shadow", orders=50)
    api.gateway.seen_topics = [topic("orders", 1000, shadow_refused=250, refused=400)]
    assert (await api.ask("GET", "/v1/quotas/status")).json()["would_refuse"]["ratio"] == 0.25
    assert "sluice_quota_shadow_refused_ratio 0.25\n" in (await api.ask("GET", "/metrics")).body.decode()


async def test_without_quotas_there_are_no_series_of_them(api: Control) -> None:
    assert "sluice_quota_age_seconds " not in (await api.ask("GET", "/metrics")).body.decode()
    status = (await api.ask("GET", "/v1/quotas/status")).json()
    assert status == {
        "published": None, "shadow": None, "age_seconds": None, "realised": None, "would_refuse": None, "encodings": ["gzip"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("offered", "refused", "age", "returns"),
    [
        (10_000, 501, MIN_AGE_S, True),
        (10_000, 500, MIN_AGE_S, False),  # as much as it was published with
        (999, 999, MIN_AGE_S, False),  # too few to tell
        (10_000, 10_000, MIN_AGE_S - 1, False),  # too early to tell
    ],
)
async def test_quotas_that_refuse_more_than_promised_are_returned(
    api: Control, offered: int, refused: int, age: float, returns: bool
) -> None:
    watch = QuotaWatch(api.gateway, api.store, api.clock, api.clock)
    await publish(api, orders=10)
    await watch.look()
    await publish(api, query="&return_above_ppm=50000", orders=20)
    await watch.look()
    api.clock.now += age
    api.gateway.seen_topics = [topic("orders", offered, refused=refused)]
    await watch.look()
    await watch.return_if_too_much()
    assert await rate_in_force(api) == (10 if returns else 20)
    if returns:
        entry = (await api.ask("GET", "/v1/history?limit=1")).json()["items"][0]
        assert (entry["by"], entry["action"]) == ("sluice", "return of quotas")
        assert "501 of 10000 messages (5.01%) were refused under the quotas of" in entry["reason"]


@pytest.mark.parametrize(("age", "step", "returns"), [(MIN_AGE_S, -86_400, True), (MIN_AGE_S - 1, 900, False)])
async def test_a_clock_that_is_set_neither_keeps_quotas_nor_hurries_their_return(
    api: Control, age: float, step: float, returns: bool
) -> None:
    steady = Clock()
    watch = QuotaWatch(api.gateway, api.store, api.clock, steady)
    await publish(api, orders=10)
    await watch.look()
    await publish(api, query="&return_above_ppm=50000", orders=20)
    await watch.look()
    api.clock.now += step
    steady.now += age
    api.gateway.seen_topics = [topic("orders", 2000, refused=2000)]
    await watch.look()
    await watch.return_if_too_much()
    assert await rate_in_force(api) == (10 if returns else 20)


async def test_after_a_restart_the_return_waits_until_it_can_tell(api: Control) -> None:
    """The counters begin anew with the process: backlogs that come back at once say nothing of the quotas."""
    await publish(api, orders=10)
    await publish(api, query="&return_above_ppm=50000", orders=20)
    api.clock.now += 10 * MIN_AGE_S
    watch = QuotaWatch(api.gateway, api.store, api.clock, api.clock)
    api.gateway.seen_topics = [topic("orders", 2000, refused=2000)]
    for rate in (20, 10):
        await watch.look()
        await watch.return_if_too_much()
        assert await rate_in_force(api) == rate
        api.clock.now += MIN_AGE_S


async def test_what_was_put_back_stays(api: Control) -> None:
    """A flood must not lead through all the nights before."""
    watch = QuotaWatch(api.gateway, api.store, api.clock, api.clock)
    for rate in (10, 20, 30):
        await publish(api, query="&return_above_ppm=50000", orders=rate)
    for refused in (2000, 4000):
        await watch.look()
        api.clock.now += MIN_AGE_S
        api.gateway.seen_topics = [topic("orders", refused, refused=refused)]
        await watch.look()
        await watch.return_if_too_much()
    assert await rate_in_force(api) == 20


async def test_the_gateway_looks_by_itself(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    from admin.store.store import Store
    from support.admin.fake_gateway import FakeGateway

    store = Store.open(tmp_path / "state", (), Clock())
    gateway = FakeGateway(store.rules())
    watch = QuotaWatch(gateway, store, Clock())
    gateway.gathered.clear()
    with trio.move_on_after(3 * LOOK_S):
        await watch.run()
    assert gateway.gathered == []  # without quotas it asks for nothing
    store.close()


def test_a_topic_that_is_forgotten_keeps_what_was_counted_of_it() -> None:
    orders = ("rocketmq", "orders")
    trial = Trial(PublishedQuotas(sha256="1", quotas=1, computed_at=""), frozenset([orders]), 0.0, 0.0, {orders: (100, 10)})
    for counts in ({orders: (160, 30)}, {}, {orders: (40, 5)}, {orders: (50, 5)}):
        trial.count(counts)
    assert (trial.offered, trial.refused) == (110, 25)
