"""RocketMQ's own topics, which a broad rule must not touch: limiting them breaks transactions, delays, traces or request-reply.

A system topic is limited only by a rule that names it exactly. Retry and dead-letter topics (`%RETRY%...`, `%DLQ%...`) are not among
them: they carry users' messages, and a storm of retries is just what a limit is for (`docs/rocketmq.md`, The incident).
"""

from __future__ import annotations

from typing import Final

# apache/rocketmq common/topic/TopicValidator.java and MixAll.java, as listed in docs/design/rocketmq.md 2.1
SYSTEM_TOPICS: Final = frozenset(
    {
        "BenchmarkTest",
        "CHECKPOINT_TOPIC",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "TBW102",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
SYSTEM_PREFIX: Final = "rmq_sys_"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"  # <cluster>_REPLY_TOPIC carries the answers of request-reply


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX) or topic.endswith(REPLY_SUFFIX)
