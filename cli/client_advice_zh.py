"""What `client_advice.py` says of client libraries, in Chinese, for the dashboard: English text -> Chinese text.

`docs/reference/generate.py` makes the dashboard's tables of it and stops at a text without its Chinese. `{}` stands for BACK_OFF.
Names of classes, calls, options and messages are as the library has them.
"""

from __future__ import annotations

from typing import Final

from cli.client_advice import AMQP, BACK_OFF, CONSUMING, DROPPED, HELD, ROCKETMQ, SPOOLED

CHINESE: Final[dict[str, str]] = {
    BACK_OFF: "等待一段逐次加长的时间（0.1 s、0.2 s、0.4 s……）后重发，不要循环立即重试",
    AMQP[HELD]: "无提示：confirm 会晚到；未启用 confirm 时消息在信道上等待",
    AMQP[SPOOLED]: "无提示：可继续发布，confirm 晚到；等待 confirm 的发布调用在消息通过后才返回",
    "nothing: the task arrives later, in order; with confirm_publish apply_async returns when it has passed":
        "无提示：任务稍后按顺序到达；开启 confirm_publish 时 apply_async 在消息通过后才返回",
    ROCKETMQ[HELD]: "无提示：发送调用返回较晚",
    AMQP[DROPPED]: "无提示：发布成功，但消息已丢弃（启用 confirm 时与被拒绝相同）",
    AMQP[CONSUMING]: "投递变慢，顺序不变，不丢消息",
    ROCKETMQ[CONSUMING]: "拉取返回较晚或没有消息，不丢消息",
    "NackError from basic_publish": "basic_publish 抛出 NackError",
    "add_on_connection_blocked_callback is called with the reason": "add_on_connection_blocked_callback 注册的回调被调用，并带有原因",
    "ChannelClosedByBroker (506, RATE_LIMITED); without confirms a later ChannelWrongStateError":
        "ChannelClosedByBroker（506，RATE_LIMITED）；未启用 confirm 时稍后出现 ChannelWrongStateError",
    f"call channel.confirm_delivery(); catch NackError and {BACK_OFF}": "调用 channel.confirm_delivery()；捕获 NackError，{}",
    "DeliveryError from publish(); of a mandatory message no exception: publish() returns it":
        "publish() 抛出 DeliveryError；mandatory 消息不抛异常，而由 publish() 返回",
    "a warning in aiormq's log": "aiormq 的日志中有一条警告",
    "ChannelClosed": "ChannelClosed",
    f"open channels with on_return_raises=True; catch DeliveryError and {BACK_OFF}":
        "以 on_return_raises=True 打开信道；捕获 DeliveryError，{}",
    "MessageNacked, where confirm_publish is on": "开启 confirm_publish 时抛出 MessageNacked",
    "nothing: apply_async returns, the task arrives later, in order": "无提示：apply_async 正常返回，任务稍后按顺序到达",
    "on_blocked is called": "on_blocked 被调用",
    "ResourceError with the text; the channel is opened again by itself": "带说明的 ResourceError；信道会自动重新打开",
    "tasks start more slowly, in order; none is lost": "任务启动变慢，顺序不变，不会丢失",
    "set broker_transport_options = {'confirm_publish': True} to learn of refusals; kombu's retry policy repeats them with pauses":
        "设置 broker_transport_options = {'confirm_publish': True} 以得知拒绝；kombu 的重试策略会间隔重发",
    "publish() returns False; of a mandatory message AMQPMessageError with the text":
        "publish() 返回 False；mandatory 消息则抛出带说明的 AMQPMessageError",
    "connection.is_blocked is True": "connection.is_blocked 为 True",
    "AMQPChannelError; without confirms check_for_errors() raises it":
        "AMQPChannelError；未启用 confirm 时由 check_for_errors() 抛出",
    f"call channel.confirm_deliveries(); where publish() returns False, {BACK_OFF}":
        "调用 channel.confirm_deliveries()；publish() 返回 False 时，{}",
    "the ConfirmCallback of RabbitTemplate gets ack=false; without confirms nothing is refused, it waits":
        "RabbitTemplate 的 ConfirmCallback 收到 ack=false；未启用 confirm 时不拒绝，而是等待",
    "a ConnectionBlockedEvent": "ConnectionBlockedEvent 事件",
    "an error in the log of CachingConnectionFactory with the text; the channel is opened again":
        "CachingConnectionFactory 的日志中有带说明的错误；信道会重新打开",
    f"spring.rabbitmq.publisher-confirm-type=correlated; in the ConfirmCallback, {BACK_OFF}":
        "设置 spring.rabbitmq.publisher-confirm-type=correlated；在 ConfirmCallback 中，{}",
    "waitForConfirms() is false, ConfirmListener.handleNack is called":
        "waitForConfirms() 返回 false，ConfirmListener.handleNack 被调用",
    "BlockedListener.handleBlocked is called with the reason": "BlockedListener.handleBlocked 被调用，并带有原因",
    "ShutdownSignalException or AlreadyClosedException with the text": "带说明的 ShutdownSignalException 或 AlreadyClosedException",
    f"call channel.confirmSelect(); for each nacked sequence number, {BACK_OFF}":
        "调用 channel.confirmSelect()；对每个被 nack 的序号，{}",
    "Ack: false from NotifyPublish or DeferredConfirmation.Wait": "NotifyPublish 或 DeferredConfirmation.Wait 给出 Ack: false",
    "NotifyBlocked with the reason": "NotifyBlocked 收到通知，并带有原因",
    "NotifyClose with code 506 and the text": "NotifyClose 收到代码 506 和说明",
    f"use version 1.8.0 or later: before it, a refused message may be reported as acked. Where Ack is false, {BACK_OFF}":
        "请使用 1.8.0 或更高版本：更早的版本可能把被拒绝的消息报告为已确认。Ack 为 false 时，{}",
    "wait_for_confirms is false, the tag is in nacked_set": "wait_for_confirms 返回 false，标签在 nacked_set 中",
    "on_blocked is called with the reason": "on_blocked 被调用，并带有原因",
    "Timeout::Error from wait_for_confirms after 15 s; the next use raises ChannelAlreadyClosed with the text":
        "15 秒后 wait_for_confirms 抛出 Timeout::Error；下次使用信道时抛出带说明的 ChannelAlreadyClosed",
    f"call channel.confirm_select; for each tag in nacked_set, {BACK_OFF}":
        "调用 channel.confirm_select；对 nacked_set 中的每个标签，{}",
    "the publish callback gets the error 'message nacked'": "publish 的回调收到错误 'message nacked'",
    "the event 'blocked' with the reason": "'blocked' 事件，并带有原因",
    "the channel's event 'error' with the text; where nobody listens to it, the process ends":
        "信道的 'error' 事件，带说明；若无人监听，进程会退出",
    f"use createConfirmChannel() and listen to 'error'; on 'message nacked', {BACK_OFF}":
        "使用 createConfirmChannel() 并监听 'error'；收到 'message nacked' 时，{}",
    "the frame basic.nack": "basic.nack 帧",
    "the frame connection.blocked, where the application declared the capability":
        "应用声明了该能力时，收到 connection.blocked 帧",
    "the frame channel.close with the text": "带说明的 channel.close 帧",
    f"select confirms and read basic.nack; then {BACK_OFF}": "启用 confirm 并读取 basic.nack；然后{}",
    "MQBrokerException, code 215, [RateLimit] ... need wait:<n>microsecs; not repeated":
        "MQBrokerException，代码 215，[RateLimit] ... need wait:<n>microsecs；不会自动重试",
    "MQClientException, code 2, after 3 attempts at once": "立即尝试 3 次后抛出 MQClientException，代码 2",
    "the send returns later, or after 2.5 s as refused": "发送调用返回较晚，或在 2.5 秒后按被拒绝返回",
    "RemotingTooMuchRequestException after 3 s": "3 秒后抛出 RemotingTooMuchRequestException",
    "MQClientException 'Send [3] times' after 0.1 s": "0.1 秒后抛出 MQClientException 'Send [3] times'",
    "catch MQBrokerException, and where getResponseCode() is 215 wait for the time in the message, then send again":
        "捕获 MQBrokerException；getResponseCode() 为 215 时，按消息中的时间等待后重发",
    "MQBrokerException, code 2; not repeated": "MQBrokerException，代码 2；不会自动重试",
    "a time-out after 3 s": "3 秒后超时",
    "'No route info of this topic' after 3 attempts at once: the limit is not named":
        "立即尝试 3 次后报 'No route info of this topic'：不会说明是限流",
    "'No route info of this topic' after 3 attempts at once": "立即尝试 3 次后报 'No route info of this topic'",
    "'No route info of this topic' after 9 s and 3 attempts": "9 秒内尝试 3 次后报 'No route info of this topic'",
    "send more slowly: this client repeats each refused send at once. Ask for action: delay, which it does not notice":
        "放慢发送：此客户端会立即重试每次被拒绝的发送。可申请改用 action: delay，客户端不会察觉",
    "an error 'CODE: 215, DESC: [RateLimit] ...'; not repeated": "错误 'CODE: 215, DESC: [RateLimit] ...'；不会自动重试",
    "an error 'CODE: 2 ...'; not repeated": "错误 'CODE: 2 ...'；不会自动重试",
    "'request timeout' after 12 s and 4 attempts; an asynchronous send panics the process":
        "12 秒内尝试 4 次后报 'request timeout'；异步发送会使进程 panic",
    "'request timeout' after 12 s and 4 attempts": "12 秒内尝试 4 次后报 'request timeout'",
    "where the error contains 'CODE: 215', wait for the time in it, then send again":
        "错误中含 'CODE: 215' 时，按其中的时间等待后重发",
    "MQClientException, code 215; not repeated": "MQClientException，代码 215；不会自动重试",
    "an error with code 2; not repeated": "代码为 2 的错误；不会自动重试",
    "'Send [4] times' after 3 s": "3 秒后报 'Send [4] times'",
    "'Send [4] times' at once": "立即报 'Send [4] times'",
    "where err.code is 215, wait for the time in the message, then send again": "err.code 为 215 时，按消息中的时间等待后重发",
    "some sends fail as INTERNAL_SERVER_ERROR": "部分发送以 INTERNAL_SERVER_ERROR 失败",
    "TOO_MANY_REQUESTS, which the client repeats by itself with pauses": "TOO_MANY_REQUESTS，客户端会自行间隔重试",
    "a time-out": "超时",
    "ask for reply: system_busy (the Proxy makes TOO_MANY_REQUESTS of it) or action: delay":
        "可申请改用 reply: system_busy（Proxy 会将其转为 TOO_MANY_REQUESTS）或 action: delay",
}  # fmt: skip
