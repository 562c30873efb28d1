"""The account of what a client has settled: what of it can be given back."""

from __future__ import annotations

from gateway.protocols.amqp.deliveries import settlements
from gateway.protocols.amqp.deliveries.settlements import Settlements


def delivered(account: Settlements, count: int, *, of_stream: bool) -> None:
    account.delivered += count
    if of_stream:
        account.keep_of_stream(count)


def test_what_is_of_a_stream_is_not_given_back() -> None:
    account = Settlements()
    delivered(account, 3, of_stream=False)
    delivered(account, 2, of_stream=True)
    delivered(account, 1, of_stream=True)
    delivered(account, 3, of_stream=False)
    delivered(account, 2, of_stream=True)
    assert account.to_give_back() == [1, 2, 3, 7, 8, 9]
    account.settle(2, multiple=True)
    account.settle(8, multiple=False)
    account.settle(5, multiple=False)
    assert account.to_give_back() == [3, 7, 9]
    account.settle(10, multiple=True)
    assert account.to_give_back() == []
    delivered(account, 1, of_stream=False)
    assert account.to_give_back() == [12]


def test_the_account_of_streams_is_bounded_and_forgets_what_is_settled() -> None:
    account = Settlements()
    most = settlements.MAX_OF_STREAMS
    for _ in range(most + 5):
        delivered(account, 1, of_stream=True)
        delivered(account, 1, of_stream=False)
    assert len(account.of_streams) == most
    assert account.to_give_back() == [*range(2, 2 * most, 2), 2 * most + 10]
    account.settle(account.delivered, multiple=True)
    delivered(account, 1, of_stream=True)
    assert list(account.of_streams) == [range(account.delivered, account.delivered + 1)]
