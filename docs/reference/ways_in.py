"""The table of ways in: what a client can ask of a broker, and what limits it. `generate.py` writes the page.

`tests/contracts/test_ways_in.py` walks the methods and codes of the protocols and holds each row against what the gateway does with a
request of it.

A row's `operation` is that of the rules which limit it; "": no rule sees it, and `by` says what bounds it, if anything does. `judged`: the
request itself is; else what comes of it is (the deliveries of a `basic.consume`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Way:
    """Methods of AMQP, or request codes of RocketMQ with the names that 5.5.0 has for them, that are limited alike."""

    names: tuple[str, ...]
    operation: str
    counted: str
    why: str
    judged: bool = True
    by: str = ""
    codes: tuple[int, ...] = ()
    also: str = ""  # a second operation that limits it


def amqp(names: str, operation: str, counted: str, why: str, *, judged: bool = True, by: str = "", also: str = "") -> Way:
    return Way(tuple(names.split()), operation, counted, why, judged, by, also=also)


WAITS: Final = "[waits in its place on its channel](../rabbitmq.md#limits-on-declaring-binding-deleting-purging-and-opening)"
AMQP_CLIENTS: Final = (
    amqp("basic.publish", "produce", "one message and its bytes, for its exchange and routing key; each name in CC and BCC once more",
         "[copies](../rabbitmq.md#copies-cc-and-bcc); [too large](../rabbitmq.md#messages-that-are-too-large)"),
    amqp("basic.get", "consume", "one message, where there is one; else one `get`, for who says it",
         f"for its message it waits for its turn, then it is answered with basic.get-empty. Over the limit of gets it {WAITS}",
         also="get"),
    amqp("basic.consume", "consume", "each message delivered, for its queue", "the method passes; deliveries wait for their turn",
         judged=False),
    amqp("basic.nack basic.reject", "requeue", "with `requeue`: one message for each delivery given back, for its queue",
         "waits for its turn, in the prefetch. Without `requeue` it passes, as an ack"),
    amqp("basic.recover basic.recover-async", "requeue", "one message for each unanswered delivery of the channel",
         "as basic.nack; basic.recover-async within a transaction passes"),
    amqp("basic.ack", "", "nothing", "it frees what the broker keeps; holding it would make the broker deliver again"),
    amqp("basic.qos basic.cancel", "", "nothing", "they bound what the client gets, or end it"),
    amqp("confirm.select tx.select tx.commit tx.rollback", "", "nothing", "publishes in between count when they come"),
    amqp("channel.open", "open", "one, for who says it", f"{WAITS}. Beside it channel_max bounds them (RabbitMQ: 2,047)"),
    amqp("channel.flow channel.flow-ok channel.close channel.close-ok", "", "nothing", "they stop or end something"),
    amqp("queue.declare exchange.declare", "declare", "one, for who says it; passive ones too", WAITS),
    amqp("queue.bind queue.unbind exchange.bind exchange.unbind", "bind", "one, for who says it", WAITS),
    amqp("queue.delete exchange.delete", "delete", "one, for who says it", WAITS),
    amqp("queue.purge", "purge", "one, for who says it, however many messages it drops", WAITS),
    amqp("connection.open", "connect", "one, for the user, virtual host and client that the broker has let in",
         "[waits up to `max_delay`, then it is refused](../rabbitmq.md#limits-on-connecting). Beside it the next row"),
    amqp("connection.start-ok connection.secure-ok connection.tune-ok", "",
         "one connection, also one whose password is wrong",
         "over it refused in the protocol's words: [too many connections](../rabbitmq.md#too-many-connections)",
         by="`max_connections`, `max_connections_per_address`, `max_connections_per_user`, `max_connection_rate` of the listener"),
    amqp("connection.close connection.close-ok connection.update-secret", "", "nothing", "they end the connection, or keep it alive"),
)  # fmt: skip
AMQP_BROKER: Final = (
    amqp("basic.deliver basic.get-ok", "consume", "one message and its body's bytes, for its queue", "waits for its turn", judged=False),
    amqp("basic.return basic.get-empty basic.consume-ok basic.cancel-ok basic.qos-ok basic.recover-ok", "", "nothing",
         "answers to what passed; a return of its own refusals comes from the gateway"),
    amqp("channel.open-ok confirm.select-ok tx.select-ok tx.commit-ok tx.rollback-ok", "", "nothing", "answers"),
    amqp("queue.declare-ok queue.bind-ok queue.unbind-ok queue.purge-ok queue.delete-ok exchange.declare-ok exchange.bind-ok "
         "exchange.unbind-ok exchange.delete-ok", "", "nothing", "answers"),
    amqp("connection.start connection.secure connection.tune connection.open-ok connection.update-secret-ok "
         "connection.blocked connection.unblocked", "", "nothing",
         "the handshake (a larger frame_max than `max_frame` is lowered), and notices"),
)  # fmt: skip


def rocketmq(names: str, operation: str, counted: str, why: str, *, by: str = "", also: str = "") -> Way:
    """`names`: as `SEND_MESSAGE 10`."""
    words = names.split()
    return Way(tuple(words[::2]), operation, counted, why, True, by, tuple(map(int, words[1::2])), also)


HELD: Final = "[waits, for up to 2.5s; then it is refused](../rocketmq.md#limits-on-topics-groups-queries-and-commands)"
ROCKETMQ: Final = (
    rocketmq("SEND_MESSAGE 10 SEND_MESSAGE_V2 310 SEND_BATCH_MESSAGE 320 SEND_REPLY_MESSAGE 324 SEND_REPLY_MESSAGE_V2 325", "produce",
             "the messages of its body, as the flag of a batch says, and the body's bytes, for its topic",
             "half messages count when they are sent; [too large](../rocketmq.md#messages-that-are-too-large)"),
    rocketmq("RECALL_MESSAGE 370", "produce", "one message, for its topic", "the broker stores a message that takes another one back"),
    rocketmq("CONSUMER_SEND_MSG_BACK 36", "produce",
             "one message, for the group's retry topic; for rules of `operation: requeue` for the group",
             "[send-backs](../rocketmq.md#send-backs-over-their-limit)", also="requeue"),
    rocketmq("PULL_MESSAGE 11 LITE_PULL_MESSAGE 361 POP_MESSAGE 200050 POP_LITE_MESSAGE 200070", "consume",
             "the messages of its answer, for topic and group", "held, as the broker's own long poll; then answered that there is none"),
    rocketmq("NOTIFICATION 200054", "consume", "nothing: it brings no message", "held while the pulls of its group are"),
    rocketmq("PEEK_MESSAGE 200052", "", "nothing", "it takes no message off; no consumer of RocketMQ's clients goes on by it"),
    rocketmq("ACK_MESSAGE 200051 BATCH_ACK_MESSAGE 200151 ACK_LITE_MESSAGE 200072 POP_ROLLBACK 200056", "", "nothing",
             "an ack that waits makes the broker deliver again"),
    rocketmq("CHANGE_MESSAGE_INVISIBLETIME 200053", "requeue", "one message, for the group",
             "POP's nack: [held, for up to 2.5s, then refused](../rocketmq.md#limits-on-what-consumers-give-back)"),
    rocketmq("END_TRANSACTION 37 CHECK_TRANSACTION_STATE 39 RESUME_CHECK_HALF_MESSAGE 323", "", "nothing",
             "the half message has counted; without its end the broker asks again"),
    rocketmq("HEART_BEAT 34 UNREGISTER_CLIENT 35 CHECK_CLIENT_CONFIG 46 GET_CONSUMER_LIST_BY_GROUP 38 LOCK_BATCH_MQ 41 "
             "UNLOCK_BATCH_MQ 42 "
             "QUERY_ASSIGNMENT 400 POLLING_INFO 200055 LITE_SUBSCRIPTION_CTL 200071", "", "nothing",
             "membership and the division of queues: a member that waits here loses its queues"),
    rocketmq("QUERY_CONSUMER_OFFSET 14 UPDATE_CONSUMER_OFFSET 15 GET_MAX_OFFSET 30 GET_MIN_OFFSET 31 "
             "GET_EARLIEST_MSG_STORETIME 32 QUERY_BROKER_OFFSET 13 QUERY_CORRECTION_OFFSET 308", "", "nothing",
             "positions: what is not kept is consumed twice"),
    rocketmq("GET_ROUTEINFO_BY_TOPIC 105 GET_BROKER_CLUSTER_INFO 106 GET_BROKER_MEMBER_GROUP 901 GET_KV_CONFIG 101 "
             "GET_KVLIST_BY_NAMESPACE 219 GET_ALL_TOPIC_LIST_FROM_NAMESERVER 206 GET_TOPICS_BY_CLUSTER 224 "
             "GET_SYSTEM_TOPIC_LIST_FROM_NS 304 GET_UNIT_TOPIC_LIST 311 GET_HAS_UNIT_SUB_TOPIC_LIST 312 "
             "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST 313 GET_NAMESRV_CONFIG 319", "query", "one, for who asks",
             f"{HELD}. A name server answers from memory; a client without a route cannot send"),
    rocketmq("REGISTER_BROKER 103 UNREGISTER_BROKER 104 REGISTER_TOPIC_IN_NAMESRV 217 QUERY_DATA_VERSION 322 BROKER_HEARTBEAT 904", "",
             "`sluice_broker_registrations_refused_total`", "brokers' own; a broker's listener passes them",
             by="a `rocketmq-nameserver` listener refuses them"),
    rocketmq("QUERY_MESSAGE 12 VIEW_MESSAGE_BY_ID 33 QUERY_CONSUME_QUEUE 321 SEARCH_OFFSET_BY_TIMESTAMP 29 "
             "QUERY_CONSUME_TIME_SPAN 303", "query", "one, for who asks",
             f"{HELD}. Searches by key, id, place and time, which read the store"),
    rocketmq("GET_TOPIC_CONFIG_LIST 22 GET_TOPIC_NAME_LIST 23 GET_BROKER_CONFIG 26 GET_BROKER_RUNTIME_INFO 28 "
             "GET_CLIENT_CONFIG 47 GET_TOPIC_STATS_INFO 202 GET_CONSUMER_CONNECTION_LIST 203 GET_PRODUCER_CONNECTION_LIST 204 "
             "GET_CONSUME_STATS 208 WHO_CONSUME_THE_MESSAGE 214 QUERY_TOPIC_CONSUME_BY_WHO 300 "
             "GET_SYSTEM_TOPIC_LIST_FROM_BROKER 305 GET_CONSUMER_RUNNING_INFO 307 VIEW_BROKER_STATS_DATA 315 "
             "GET_BROKER_CONSUME_STATS 317 GET_ALL_PRODUCER_INFO 328 QUERY_TOPICS_BY_CONSUMER 343 "
             "QUERY_SUBSCRIPTION_BY_CONSUMER 345 GET_TOPIC_CONFIG 351 GET_SUBSCRIPTIONGROUP_CONFIG 352 "
             "GET_BROKER_CLUSTER_ACL_INFO 52 GET_BROKER_CLUSTER_ACL_CONFIG 54 "
             "GET_COLD_DATA_FLOW_CTR_INFO 2003 GET_BROKER_LITE_INFO 200074 GET_PARENT_TOPIC_INFO 200075 "
             "GET_LITE_TOPIC_INFO 200076 GET_LITE_CLIENT_INFO 200077 GET_LITE_GROUP_INFO 200078", "query", "one, for who asks",
             f"{HELD}. Consoles' and operators' views"),
    rocketmq("GET_ALL_TOPIC_CONFIG 21 GET_ALL_CONSUMER_OFFSET 43 GET_ALL_DELAY_OFFSET 45 GET_TIMER_CHECK_POINT 60 "
             "GET_TIMER_METRICS 61 GET_ALL_SUBSCRIPTIONGROUP_CONFIG 201 GET_ALL_MESSAGE_REQUEST_MODE 402", "", "nothing",
             "what a replica copies from its master, every few seconds"),
    rocketmq("UPDATE_AND_CREATE_TOPIC 17 UPDATE_AND_CREATE_TOPIC_LIST 18 UPDATE_AND_CREATE_STATIC_TOPIC 513 "
             "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP 200 UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST 225 "
             "UPDATE_AND_GET_GROUP_FORBIDDEN 353 SET_MESSAGE_REQUEST_MODE 401", "declare", "one, for who says it",
             f"{HELD}. Topics and groups, created and changed"),
    rocketmq("DELETE_TOPIC_IN_BROKER 215 DELETE_TOPIC_IN_NAMESRV 216 DELETE_SUBSCRIPTIONGROUP 207", "delete", "one, for who says it",
             f"{HELD}. Topics and groups"),
    rocketmq("RESET_CONSUMER_OFFSET_IN_BROKER 212 RESET_CONSUMER_OFFSET_IN_CONSUMER 211 INVOKE_BROKER_TO_RESET_OFFSET 222 "
             "INVOKE_BROKER_TO_GET_CONSUMER_STATUS 223 CLONE_GROUP_OFFSET 314 SUSPEND_CONSUMER 209 RESUME_CONSUMER 210 "
             "ADJUST_CONSUMER_THREAD_POOL 213 CONSUME_MESSAGE_DIRECTLY 309", "admin", "one, for who says it",
             f"{HELD}. What operators do to groups"),
    rocketmq("UPDATE_BROKER_CONFIG 25 TRIGGER_DELETE_FILES 27 CLEAN_EXPIRED_CONSUMEQUEUE 306 CLEAN_UNUSED_TOPIC 316 "
             "DELETE_EXPIRED_COMMITLOG 329 CHECK_ROCKSDB_CQ_WRITE_PROGRESS 354 EXPORT_ROCKSDB_CONFIG_TO_JSON 355 "
             "UPDATE_COLD_DATA_FLOW_CTR_CONFIG 2001 REMOVE_COLD_DATA_FLOW_CTR_CONFIG 2002 SET_COMMITLOG_READ_MODE 2004 "
             "SWITCH_TIMER_ENGINE 5001 REGISTER_FILTER_SERVER 301 REGISTER_MESSAGE_FILTER_CLASS 302 "
             "TRIGGER_LITE_DISPATCH 200079 PUT_KV_CONFIG 100 DELETE_KV_CONFIG 102 UPDATE_NAMESRV_CONFIG 318 "
             "WIPE_WRITE_PERM_OF_BROKER 205 ADD_WRITE_PERM_OF_BROKER 327 AUTH_CREATE_USER 3001 AUTH_UPDATE_USER 3002 "
             "AUTH_DELETE_USER 3003 AUTH_GET_USER 3004 AUTH_LIST_USER 3005 AUTH_CREATE_ACL 3006 AUTH_UPDATE_ACL 3007 "
             "AUTH_DELETE_ACL 3008 AUTH_GET_ACL 3009 AUTH_LIST_ACL 3010 UPDATE_AND_CREATE_ACL_CONFIG 50 DELETE_ACL_CONFIG 51 "
             "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG 53", "admin", "one, for who says it",
             f"{HELD}. Operators' commands. Where `remote_admin` has MQCloud's older codes, 329 is the gateway's own"),
    rocketmq("ADD_BROKER 902 REMOVE_BROKER 903 EXCHANGE_BROKER_HA_INFO 906 GET_BROKER_HA_STATUS 907 RESET_MASTER_FLUSH_OFFSET 908 "
             "CONTROLLER_ALTER_SYNC_STATE_SET 1001 CONTROLLER_ELECT_MASTER 1002 CONTROLLER_REGISTER_BROKER 1003 "
             "CONTROLLER_GET_REPLICA_INFO 1004 "
             "CONTROLLER_GET_METADATA_INFO 1005 CONTROLLER_GET_SYNC_STATE_DATA 1006 GET_BROKER_EPOCH_CACHE 1007 "
             "NOTIFY_BROKER_ROLE_CHANGED 1008 "
             "UPDATE_CONTROLLER_CONFIG 1009 GET_CONTROLLER_CONFIG 1010 CLEAN_BROKER_DATA 1011 CONTROLLER_GET_NEXT_BROKER_ID 1012 "
             "CONTROLLER_APPLY_BROKER_ID 1013", "", "nothing", "among brokers and controllers, which talk directly"),
    rocketmq("NOTIFY_CONSUMER_IDS_CHANGED 40 RESET_CONSUMER_CLIENT_OFFSET 220 GET_CONSUMER_STATUS_FROM_CLIENT 221 "
             "PUSH_REPLY_MESSAGE_TO_CLIENT 326 NOTIFY_MIN_BROKER_ID_CHANGE 905 NOTIFY_UNSUBSCRIBE_LITE 200073", "", "nothing",
             "the broker's or name server's own requests to clients, and replies that were counted when they were sent"),
)  # fmt: skip

OTHERS: Final = (  # what is spoken, where, and what limits it
    ("AMQP 1.0 on an AMQP listener", "refused (`other_protocols: refuse`, the default)",
     "with `other_protocols: pass` it passes unlimited; `sluice check` warns of it"),
    ("MQTT, STOMP, streams (5552), web variants, RabbitMQ's management API and Prometheus", "nothing",
     "ports of their own, which sluice does not serve: shut them, or limit them in RabbitMQ ([page](../in-front-of-rabbitmq.md))"),
    ("RocketMQ's gRPC clients", "the rules of RocketMQ, by the Proxy's address",
     "[behind RocketMQ's Proxy](../rocketmq.md#behind-rocketmqs-proxy-for-grpc-clients) the Proxy is the client"),
    ("codes and methods that are in no row", "nothing", "they pass to the broker, whose answer passes back"),
    ("what is no protocol at all", "the connection is closed", "[close causes](close-causes.md)"),
)  # fmt: skip
