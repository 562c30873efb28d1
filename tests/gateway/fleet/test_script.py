"""The bucket in Redis grants what the owner in Python grants, on the real thing; and what only Redis has: keys that expire, or are lost."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis import Redis

from gateway.fleet.script import EXACT, PLACES, PRESENCE, SCRIPT, key_of, presence_key_of, rates_of, warm_up_us, whole_rate
from limiter.algorithms.token_bucket import TokenBucket
from limiter.algorithms.warm_up import warm_up
from limiter.leases.lent_places import LentPlaces
from limiter.leases.owner import LeaseOwner
from limiter.limits import SECOND, Limit, Rate
from support.brokers.redis_server import RedisServer

pytestmark = pytest.mark.slow  # a Redis

START = 1_795_000_000_000_000  # microseconds since 1970: as large as Redis' own
HOUR = 3_600_000_000
NAMES = count()


class Bucket:
    """A bucket of its own in Redis."""

    def __init__(self, client: Redis) -> None:
        self.client = client
        self.key = key_of("tests", ("topic", "", "rocketmq", f"t{next(NAMES)}"))
        self.left = (0, 0)

    def ask(
        self,
        limit: Limit,
        wish: tuple[int, int],
        now_us: int,
        member: str = "a",
        begin: tuple[int | str, int | str] = ("", ""),
        algorithm: str = "token_bucket",
    ) -> tuple[int, int]:
        warm_up = warm_up_us(limit, algorithm)
        answer = self.client.eval(SCRIPT, 1, self.key, now_us, *rates_of(limit), *wish, *begin, member, warm_up)
        self.left = (answer[2], answer[3])
        return answer[0], answer[1]


class Model:
    """The same bucket, as `limiter.leases.leased_bucket` and `limiter.algorithms` have it."""

    def __init__(self, limit: Limit) -> None:
        self.bucket = TokenBucket(limit, START * 1000)
        self.owner = LeaseOwner()

    def ask(self, limit: Limit, wish: tuple[int, int], now_us: int, member: str = "a") -> tuple[int, int]:
        if rates_of(limit) != rates_of(self.bucket.limit):
            self.bucket.change(limit, now_us * 1000)
        self.bucket.settle(0, 0, 0, now_us * 1000)  # Redis looks at the clock at each ask, whatever is asked for
        return self.owner.grant("t", self.bucket, ord(member), *wish, now_us * 1000)


@pytest.fixture(scope="module")
def client(redis_server: RedisServer) -> Redis:
    return redis_server.client()


@pytest.fixture
def bucket(client: Redis) -> Bucket:
    return Bucket(client)


def per_second(messages: int, burst: int | None = None) -> Limit:
    return Limit(messages=Rate(messages), messages_burst=burst)


def once(*_: object) -> settings:
    return settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


rates = st.builds(Rate, st.integers(1, 10**6), st.sampled_from([SECOND, 60 * SECOND, 1000, 7 * SECOND, 3600 * SECOND]))
limits = st.builds(
    Limit,
    messages=st.none() | rates,
    bytes=st.none() | rates,
    messages_burst=st.none() | st.integers(1, 10**6),
    burst_ns=st.none() | st.integers(1000, 10 * SECOND),
).filter(lambda limit: not limit.limits_nothing())
wishes = st.one_of(st.integers(0, 50), st.integers(-1000, 10**7))
steps = st.one_of(st.integers(0, 200_000), st.integers(-3_000_000, HOUR), st.sampled_from([-1_000_001, -1_000_000, -999_999, 0, 1]))


def fitting(limit: Limit, wish: tuple[int, int]) -> tuple[int, int]:
    """Nobody asks for what is not limited."""
    return (wish[0] if limit.messages else 0, wish[1] if limit.bytes else 0)


@given(limits, st.lists(st.tuples(steps, st.sampled_from("abc"), st.tuples(wishes, wishes)), max_size=40))
@once()
def test_it_grants_what_the_owner_grants(client: Redis, limit: Limit, schedule: list[tuple[int, str, tuple[int, int]]]) -> None:
    bucket, model, now = Bucket(client), Model(limit), START
    bucket.ask(limit, (0, 0), now)  # now both are there
    for step, member, wish in schedule:
        now += step
        asked = fitting(limit, wish)
        assert bucket.ask(limit, asked, now, member) == model.ask(limit, asked, now, member)


warm_ups = st.builds(
    Limit,
    messages=st.builds(Rate, st.integers(1, 10_000)),
    messages_burst=st.none() | st.integers(1, 20_000),
    warm_up_ns=st.integers(SECOND, 60 * SECOND),
)


@given(warm_ups, st.lists(st.tuples(st.integers(0, 3_000_000), st.one_of(st.integers(-20, 50), st.integers(0, 10**5))), max_size=40))
@once()
def test_what_warms_up_does_so_as_in_the_owner(client: Redis, limit: Limit, schedule: list[tuple[int, int]]) -> None:
    """In doubles: a token and one in a thousand more or less."""
    bucket, model, owner, now = Bucket(client), warm_up(limit, START * 1000), LeaseOwner(), START
    bucket.ask(limit, (0, 0), now, algorithm="warm_up")
    got = expected = 0
    for step, wanted in schedule:
        now += step
        model.settle(0, 0, 0, now * 1000)
        wish = max(wanted, -expected)  # nobody gives back what it has not got
        asked = bucket.ask(limit, (wish, 0), now, algorithm="warm_up")[0]
        granted = owner.grant("t", model, 1, wish, 0, now * 1000)[0]
        got, expected = got + asked + min(wish, 0), expected + granted + min(wish, 0)
        assert got == pytest.approx(expected, rel=1e-3, abs=1.01)


@given(
    st.sampled_from([1, 2, 3, 10, 64]),
    st.lists(st.tuples(st.integers(0, 900_000), st.integers(1, 5), st.sampled_from([0, 1, 5, 70]), st.integers(0, 12)), max_size=40),
)
@example(most=10, schedule=[(0, 1, 70, 1), (6_000_000, 1, 70, 1), (1000, 2, 70, 0)])
@example(most=2, schedule=[(0, 1, 1, 0), (1000, 2, 5, 0), (1000, 3, 5, 0), (1000, 1, 1, 0), (600_000, 2, 5, 1), (0, 3, 5, 1), (0, 1, 1, 0)])
@once()
def test_places_are_lent_as_by_the_owner(client: Redis, most: int, schedule: list[tuple[int, int, int, int]]) -> None:
    """Whatever members say."""
    key, model, now = f"places-{next(NAMES)}", LentPlaces(Limit(concurrent=most), START * 1000), START
    for step, member, needed, held in schedule:
        now += step
        answer = client.eval(PLACES, 1, key, now, str(member), most, needed, held)
        assert answer == [model.lend(member, needed, held, now * 1000), 0, most, now]


human = st.builds(
    Limit,
    messages=st.builds(Rate, st.integers(1, 5000)),
    bytes=st.builds(Rate, st.integers(1000, 10**8)),
    messages_burst=st.integers(100, 10**4),
    bytes_burst=st.integers(100, 10**7),
)


@given(human, human, st.lists(st.tuples(st.booleans(), st.integers(0, 500_000), st.integers(0, 2000)), max_size=20))
@once()
def test_another_limit_keeps_the_fill_in_proportion(client: Redis, one: Limit, other: Limit, schedule: list[tuple[bool, int, int]]) -> None:
    """Also where gateways disagree about the limit and ask in turn. Some tokens more or less: proportions are not whole."""
    bucket, model, now, limit = Bucket(client), Model(one), START, one
    bucket.ask(one, (0, 0), now)
    for changes, step, wish in schedule:
        now += step
        if changes:
            limit = other if limit is one else one
        got, expected = bucket.ask(limit, (wish, wish), now), model.ask(limit, (wish, wish), now)
        assert got == pytest.approx(expected, rel=0.03, abs=3)  # 3 tokens of the smallest burst
        fills = [left / most for left, most in zip(bucket.left, (limit.messages_capacity(), limit.bytes_capacity()), strict=True)]
        assert min(fills) == pytest.approx(model.bucket.fill(now * 1000), abs=0.03)


def test_gateways_that_disagree_starve_nobody(bucket: Bucket) -> None:
    """Two limits in turn, twenty times a second: what is on its way to the next token is kept each time."""
    granted = sum(bucket.ask(per_second(1 + n % 2, burst=2), (1, 0), START + n * 50_000)[0] for n in range(400))
    assert 20 * 1 <= granted <= 20 * 2 + 2


def test_a_slow_rate_drifts_not_at_all(bucket: Bucket) -> None:
    third = Limit(messages=Rate(1, 3 * SECOND), messages_burst=1)
    granted = [bucket.ask(third, (1, 0), START + n * 100_000)[0] for n in range(3001)]
    assert [n for n, got in enumerate(granted) if got] == list(range(0, 3001, 30))


@pytest.mark.parametrize(
    "rate",
    [Rate(10**15), Rate(10**15 - 11), Rate(999_999_937), Rate(1, 86_400 * SECOND), Rate(1, 10**19), Rate(999_983, 86_399 * SECOND + 1)],
)
def test_every_rate_fits_into_doubles_and_is_as_good_as_exact(rate: Rate) -> None:
    amount, per = whole_rate(rate)
    assert amount * per < EXACT
    if rate.per_ns < 10**18:
        assert amount / per == pytest.approx(rate.amount * 1000 / rate.per_ns, rel=1e-9)
    assert amount > 0


@given(st.integers(10**8, 10**15), st.integers(1, 10**12), st.integers(0, 10**13))
@once()
def test_large_rates_are_exact_too(client: Redis, amount: int, burst: int, elapsed: int) -> None:
    limit = Limit(messages=Rate(*whole(amount)), messages_burst=burst)
    bucket, model = Bucket(client), Model(limit)
    for now in (START, START + elapsed, START + 2 * elapsed + 1):
        assert bucket.ask(limit, (10**14, 0), now) == model.ask(limit, (10**14, 0), now)


def whole(amount: int) -> tuple[int, int]:
    """A rate of about `amount` per second that the script has exactly."""
    micro, per = whole_rate(Rate(amount))
    return micro, per * 1000


# ---- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_expires_when_its_bucket_is_full_again(bucket: Bucket) -> None:
    limit = per_second(10, burst=40)
    bucket.ask(limit, (30, 0), START)
    assert bucket.client.pttl(bucket.key) == pytest.approx(4000, abs=200)  # 30 tokens at 10/s, and a second
    bucket.ask(limit, (-30, 0), START)
    assert bucket.client.pttl(bucket.key) == pytest.approx(1000, abs=200)


def test_a_bucket_that_never_fills_expires_all_the_same(bucket: Bucket) -> None:
    bucket.ask(Limit(messages=Rate(1, 10**18), messages_burst=10**9), (10**9, 0), START)
    assert bucket.client.pttl(bucket.key) == pytest.approx(366 * 86_400_000, rel=0.001)


def test_a_lost_key_begins_where_its_user_saw_it_last(bucket: Bucket) -> None:
    limit = Limit(messages=Rate(100), bytes=Rate(1000))
    assert bucket.ask(limit, (95, 900), START) == (95, 900)
    seen = bucket.left
    bucket.client.delete(bucket.key)
    assert bucket.ask(limit, (100, 1000), START + 60_000_000, begin=seen) == (5, 100)


def test_a_key_that_redis_has_is_not_begun_anew(bucket: Bucket) -> None:
    assert bucket.ask(per_second(100), (100, 0), START) == (100, 0)
    assert bucket.ask(per_second(100), (100, 0), START, begin=(77, 77)) == (0, 0)


def test_a_key_of_another_kind_is_an_error_and_stays(bucket: Bucket) -> None:
    bucket.client.set(bucket.key, "somebody else's")
    with pytest.raises(Exception, match="WRONGTYPE"):
        bucket.ask(per_second(100), (1, 0), START)
    assert bucket.client.get(bucket.key) == b"somebody else's"


def test_without_a_time_given_it_asks_redis(bucket: Bucket) -> None:
    limit = per_second(1000)
    assert bucket.ask(limit, (1000, 0), 0) == (1000, 0)
    seconds, _ = bucket.client.time()
    assert int(bucket.client.hget(bucket.key, "t") or 0) // 1_000_000 == pytest.approx(seconds, abs=2)


def test_a_gateway_that_is_short_no_more_is_forgotten(bucket: Bucket) -> None:
    limit = per_second(100)
    bucket.ask(limit, (150, 0), START, "a")
    assert bucket.client.hexists(bucket.key, "s:a")
    bucket.ask(limit, (1, 0), START + 100_000, "b")
    bucket.ask(limit, (1, 0), START + 400_000, "b")
    assert bucket.client.hkeys(bucket.key) == [b"t", b"r", b"m", b"mr", b"b", b"br"]


def test_keys_tell_all_names_apart_and_have_one_hash_tag() -> None:
    identities = [
        ("user", "r", "", "a|b"),
        ("user", "r|", "", "a"),
        ("user", "r", "", "a%7Cb"),
        ("user", "r", "", "}a{"),
        ("user", "r", "", "\udc80ü"),
    ]
    keys = {key_of(fleet, identity) for fleet in ("one", "two") for identity in identities}
    assert len(keys) == 10
    assert {(key.count("{"), key.count("}"), key[:8], key[-4:]) for key in keys} == {(1, 1, "sluice:{", "}:v1")}
    assert key_of("orders", ("topic", "", "amqp", "%2F/jobs/new")) == "sluice:{orders|topic||amqp|%252F/jobs/new}:v1"


# ---- who is there -----------------------------------------------------------------------------------------------------


def test_gateways_count_while_they_show_themselves(client: Redis) -> None:
    key = presence_key_of("presence")

    def show(member: str, second: int, verb: str = "stay") -> int:
        found = client.eval(PRESENCE, 1, key, START + second * 1_000_000, member, verb)
        assert isinstance(found, int)
        return found

    assert [show("a", 0), show("b", 0), show("a", 1), show("c", 4), show("a", 4)] == [1, 2, 2, 3, 3]
    assert show("a", 6) == 2  # b is gone
    assert show("c", 7, "leave") == 1
    assert show("a", -100) == 1  # the clock stepped back: what is ahead of it counts for nothing
    assert 0 < client.pttl(key) <= 10_000
