"""The oracle's own buckets, checked so that it can check others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.models import quota_oracle


@given(st.integers(1, 10**6))
def test_a_bucket_holds_its_amount_and_answers_at_most_two_percent_above_it(amount: int) -> None:
    top = quota_oracle.bucket_top(quota_oracle.bucket(amount))
    assert amount <= top <= amount * 1.02
