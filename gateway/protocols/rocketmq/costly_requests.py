"""Requests that are no messages and cost the broker, or the name server, more than it seems: which operation each is, so that a rule may
limit them (`docs/rocketmq.md`).

They create and delete topics and groups (`declare`, `delete`), look something up (`query`: routes, messages by key, id and time, what
consoles show), are an operator's commands (`admin`), or give back what a consumer has popped (`requeue`; what one has pulled is sent back,
`frames.py`). Each is a request of its operation where a rule looks at that. One that is over its
limit waits, and others of its connection pass it by; when its client will not wait any longer, it is refused.

Not among them, because the broker's clients or replicas stop where they fail: positions, locks, membership, and what a replica copies from
its master (`docs/reference/ways-in.md`).
"""

from __future__ import annotations

from typing import Final

from limiter.operations import ADMIN, DECLARE, DELETE, QUERY, REQUEUE

CODES_OF: Final[dict[str, tuple[int, ...]]] = {
    DECLARE: (
        17, 18, 513,  # UPDATE_AND_CREATE_TOPIC, _LIST, UPDATE_AND_CREATE_STATIC_TOPIC
        200, 225, 353, 401,  # UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, _LIST, UPDATE_AND_GET_GROUP_FORBIDDEN, SET_MESSAGE_REQUEST_MODE
    ),
    DELETE: (215, 216, 207),  # DELETE_TOPIC_IN_BROKER, DELETE_TOPIC_IN_NAMESRV, DELETE_SUBSCRIPTIONGROUP
    QUERY: (
        12, 33, 321, 29, 303,  # messages: by key, by id, by place in a queue, by time; time span of a group's backlog
        105, 106, 901, 101, 219, 206, 224, 304, 311, 312, 313, 319,  # name server: routes, brokers, lists of topics, its settings
        22, 23, 26, 28, 47, 202, 203, 204, 208, 214, 300, 305, 307, 315, 317, 328, 343, 345, 351, 352, 2003,  # broker: consoles' views
        52, 54,  # ACLs of brokers before 5.3
        200_074, 200_075, 200_076, 200_077, 200_078,  # the same of light topics
    ),
    REQUEUE: (200_053,),  # CHANGE_MESSAGE_INVISIBLETIME
    ADMIN: (
        25, 27, 306, 316, 329, 354, 355, 2001, 2002, 2004, 5001, 301, 302, 200_079,  # settings, cleaning, exports, filters
        100, 102, 318, 205, 327,  # of name servers
        211, 212, 222, 223, 314, 209, 210, 213, 309,  # groups: resets, clones, stops, a message consumed at an operator's word
        *range(3001, 3011), 50, 51, 53,  # users and ACLs; of brokers before 5.3
    ),
}  # fmt: skip
OPERATION_OF: Final[dict[int, str]] = {code: operation for operation, codes in CODES_OF.items() for code in codes}
