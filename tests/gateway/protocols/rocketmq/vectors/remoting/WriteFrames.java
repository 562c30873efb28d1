import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * Writes frames as RocketMQ's own RemotingCommand encodes them, and what each means: one line of JSON a frame, to the file it is given
 * (on stdout there would be logback's own words between them).
 *
 * {"from": client or broker, "name", "type": serialization, "code", "opaque", "flag", "remark", "language", "version", "ext": what the header was given,
 * "body": bytes, "messages": of a send, "stored": messages in a pull's answer, "frame": hex}
 *
 * Compiles against 4.9 and 5.x: header classes are looked up by name, and what a version does not have is left out.
 */
public final class WriteFrames {
    private static final String[] TEXTS = {
        "orders", "%RETRY%workers", "%DLQ%workers", "ns%orders", "bestellungen-\u00e4\u4e2d", "q\"u'o\\t/e", "\u0000\u0001\t\n\u001f\u007f\u0085",
        "\u2028\u2029\ufeff", "\ud83d\ude80", "a:b{c}[d],e", "true", "12", "null", "\\u0062", ",\"b\":\"other\"",
    };
    private static final int[] OPAQUES = {7, 0, -1, Integer.MAX_VALUE, Integer.MIN_VALUE, 1, 1_000_000};
    private static final LanguageCode[] LANGUAGES = {LanguageCode.JAVA, LanguageCode.CPP, LanguageCode.GO, LanguageCode.OTHER};
    private static final int[] VERSIONS = {479, 0, 409, 32767};
    private static final String PROPERTIES = "UNIQ_KEY\u00017F00000112342A139A5534EF0A3B0001\u0002WAIT\u0001true\u0002TAGS\u0001\"a\\b\"\u0002";
    private static final byte[] BODY = "hello".getBytes(StandardCharsets.UTF_8);

    private final List<String> lines = new ArrayList<>();
    private String speaker = "client";

    /** Values by name, in pairs; nulls are left out of the header as RocketMQ leaves them out of the frame. */
    private static Map<String, Object> values(Object... pairs) {
        Map<String, Object> found = new LinkedHashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            found.put((String) pairs[at], pairs[at + 1]);
        }
        return found;
    }

    private static Map<String, Object> longNames(String topic, String group, boolean batch, String properties) {
        return values("producerGroup", group, "topic", topic, "defaultTopic", "TBW102", "defaultTopicQueueNums", 4, "queueId", 2, "sysFlag", 0,
            "bornTimestamp", 1795247411000L, "flag", 0, "properties", properties, "reconsumeTimes", 0, "unitMode", false, "maxReconsumeTimes", 16,
            "batch", batch);
    }

    private static Map<String, Object> shortNames(String topic, String group, boolean batch, String properties) {
        return values("a", group, "b", topic, "c", "TBW102", "d", 4, "e", 2, "f", 0, "g", 1795247411000L, "h", 0, "i", properties, "j", 0,
            "k", false, "l", 16, "m", batch, "n", "broker-a");
    }

    private static Map<String, Object> send(int code, String topic, String group, boolean batch, String properties) {
        return code == 10 || code == 324 ? longNames(topic, group, batch, properties) : shortNames(topic, group, batch, properties);
    }

    private static String sendHeader(int code) {
        return code == 10 || code == 324 ? "SendMessageRequestHeader" : "SendMessageRequestHeaderV2";
    }

    private void sends(SerializeType type) throws Exception {
        for (int code : new int[] {10, 310, 320, 324, 325}) {
            for (String text : TEXTS) {
                frame(type, "topic", code, sendHeader(code), send(code, text, "producers", false, PROPERTIES)).body(BODY).messages(1).write();
            }
        }
        for (String text : TEXTS) {
            frame(type, "group", 310, sendHeader(310), send(310, "orders", text, false, text)).body(BODY).messages(1).write();
            frame(type, "group", 36, "ConsumerSendMsgBackRequestHeader", values("offset", 123456789L, "group", text, "delayLevel", 0,
                "originMsgId", text, "originTopic", "orders", "unitMode", false, "maxReconsumeTimes", 16)).messages(1).write();
            frame(type, "remark", 310, sendHeader(310), send(310, "orders", "g", false, "")).remark(text).messages(1).write();
        }
        StringBuilder huge = new StringBuilder();
        while (huge.length() < 12_000) {
            huge.append("KEY").append(huge.length()).append("\u0001\"\u4e2d\\\u0002");
        }
        for (int code : new int[] {10, 310}) {
            frame(type, "huge properties", code, sendHeader(code), send(code, "orders", "g", false, huge.toString())).body(BODY).messages(1).write();
            frame(type, "nulls", code, sendHeader(code), values(code == 10 ? "topic" : "b", "orders")).messages(1).write();
            frame(type, "one-way", code, sendHeader(code), send(code, "orders", "g", false, PROPERTIES)).oneWay().body(BODY).messages(1).write();
            frame(type, "compressed", code, sendHeader(code), values(code == 10 ? "topic" : "b", "orders", code == 10 ? "sysFlag" : "f", 0x301))
                .body(new byte[300]).messages(1).write();
            frame(type, "half message", code, sendHeader(code), send(code, "orders", "g", false, "TRAN_MSG\u0001true\u0002PGROUP\u0001g\u0002"))
                .body(BODY).messages(1).write();
            frame(type, "signed", code, sendHeader(code), send(code, "orders", "g", false, PROPERTIES)).signed().body(BODY).messages(1).write();
            frame(type, "an answer with a send's code", code, sendHeader(code), send(code, "orders", "g", false, "")).answer().body(BODY).write();
            frame(type, "no header", code, null, values()).body(BODY).write();
        }
        for (int code : new int[] {10, 310, 320}) {
            for (int count : new int[] {1, 2, 5, 40}) {
                List<Message> messages = new ArrayList<>();
                for (int at = 0; at < count; at++) {
                    Message message = new Message("orders", TEXTS[at % TEXTS.length], "key" + at, new byte[at * 7 % 50]);
                    message.putUserProperty("name\u4e2d", "v" + at);
                    messages.add(message);
                }
                MessageBatch batch = MessageBatch.generateFromList(messages);
                frame(type, "batch of " + count, code, sendHeader(code), send(code, "orders", "g", true, "WAIT\u0001true\u0002"))
                    .body(batch.encode()).messages(count).write();
                frame(type, "not a batch: " + count, code, sendHeader(code), send(code, "orders", "g", false, "")).body(batch.encode()).messages(1).write();
            }
        }
    }

    private void others(SerializeType type) throws Exception {
        Map<String, Object> pull = values("consumerGroup", "workers", "topic", "orders", "queueId", 3, "queueOffset", 12345678901L, "maxMsgNums", 32,
            "sysFlag", 7, "commitOffset", 5L, "suspendTimeoutMillis", 15000L, "subscription", "a || b", "subVersion", 1795247411000L,
            "expressionType", "TAG", "maxMsgBytes", 262144);
        Map<String, Object> pop = values("consumerGroup", "workers", "topic", "orders", "queueId", -1, "maxMsgNums", 32, "invisibleTime", 60000L,
            "pollTime", 14000L, "bornTime", 1795247411000L, "initMode", 1, "expType", "TAG", "exp", "*", "order", false, "attemptId", null);
        for (String text : TEXTS) {
            pull.put("topic", text);
            pull.put("subscription", text);
            frame(type, "topic", 11, "PullMessageRequestHeader", pull).write();
            pop.put("consumerGroup", text);
            frame(type, "group", 200050, "PopMessageRequestHeader", pop).write();
        }
        pull.put("sysFlag", 16);
        pull.put("queueOffset", -1L);
        frame(type, "lite", 361, "PullMessageRequestHeader", pull).write();
        frame(type, "peek", 200052, "PeekMessageRequestHeader", values("consumerGroup", "workers", "topic", "orders", "queueId", 0, "maxMsgNums", 32)).write();
        frame(type, "notification", 200054, "NotificationRequestHeader", values("consumerGroup", "workers", "topic", "orders", "queueId", 0,
            "pollTime", 14000L, "bornTime", 1795247411000L, "order", false, "attemptId", null)).write();
        frame(type, "ack", 200051, "AckMessageRequestHeader", values("consumerGroup", "workers", "topic", "orders", "queueId", 0, "extraInfo", "0 1 2 3",
            "offset", 5L)).write();
        frame(type, "recall", 370, "RecallMessageRequestHeader", values("producerGroup", "g", "topic", "orders", "recallHandle", "djEgaGFuZGxl")).write();
        frame(type, "end of a transaction", 37, "EndTransactionRequestHeader", values("topic", "orders", "producerGroup", "g", "tranStateTableOffset", 1L,
            "commitLogOffset", 2L, "commitOrRollback", 8, "fromTransactionCheck", true, "msgId", "m", "transactionId", "t")).oneWay().write();
        frame(type, "heartbeat", 34, null, values()).body("{\"clientID\":\"\u4e2d@1\"}".getBytes(StandardCharsets.UTF_8)).write();
        frame(type, "route", 105, "GetRouteInfoRequestHeader", values("topic", "orders", "acceptStandardJsonOnly", true)).write();
        frame(type, "consumer list", 38, "GetConsumerListByGroupRequestHeader", values("consumerGroup", "workers")).write();
        frame(type, "lock", 41, null, values()).body(BODY).write();
        frame(type, "offset", 15, "UpdateConsumerOffsetRequestHeader", values("consumerGroup", "workers", "topic", "orders", "queueId", 1,
            "commitOffset", 9L)).oneWay().write();
        frame(type, "unregister", 35, "UnregisterClientRequestHeader", values("clientID", "c", "producerGroup", "g", "consumerGroup", null)).write();
        frame(type, "unknown code", 29_999, null, values()).body(BODY).write();
        frame(type, "answer to the broker", 0, null, values()).answer().body("{\"properties\":{}}".getBytes(StandardCharsets.UTF_8)).write();
        frame(type, "answer to the broker", 1, null, values()).answer().remark("not here").write();
    }

    /** What the broker says: answers, and requests of its own. */
    private void broker(SerializeType type) throws Exception {
        Map<String, Object> pulled = values("suggestWhichBrokerId", 0L, "nextBeginOffset", 12345678901L, "minOffset", 0L, "maxOffset", 12345678999L);
        for (int count : new int[] {0, 1, 3, 32}) {
            ByteBuf bodies = Unpooled.buffer();
            for (int at = 0; at < count; at++) {
                bodies.writeBytes(stored(at, at % 2 == 1));
            }
            frame(type, "pulled " + count, count == 0 ? 19 : 0, "PullMessageResponseHeader", pulled).answer().body(ByteBufUtil.getBytes(bodies)).stored(count).write();
        }
        for (String text : TEXTS) {
            frame(type, "sent", 0, "SendMessageResponseHeader", values("msgId", text, "queueId", 1, "queueOffset", 77L, "transactionId", null)).answer().write();
            frame(type, "remark", 2, null, values()).answer().remark(text).write();
        }
        frame(type, "refused", 215, null, values()).answer().remark("[REJECTREQUEST]system busy, start flow control for a while").write();
        frame(type, "go away", 1500, null, values()).answer().write();
        frame(type, "popped", 0, "PopMessageResponseHeader", values("popTime", 1795247411000L, "invisibleTime", 60000L, "reviveQid", 3, "restNum", 0L,
            "startOffsetInfo", "0 0 5", "msgOffsetInfo", "0 0 5,6", "orderCountInfo", "")).answer().body(stored(1, false)).stored(1).write();
        frame(type, "polling timeout", 210, "PopMessageResponseHeader", values("popTime", 0L, "invisibleTime", 0L, "reviveQid", 0, "restNum", 0L)).answer().write();
        frame(type, "check", 39, "CheckTransactionStateRequestHeader", values("tranStateTableOffset", 1L, "commitLogOffset", 2L, "msgId", "m",
            "transactionId", "t", "offsetMsgId", "o")).oneWay().body(stored(0, false)).write();
        frame(type, "consumers changed", 40, "NotifyConsumerIdsChangedRequestHeader", values("consumerGroup", "workers")).oneWay().write();
        frame(type, "reset offset", 220, "ResetOffsetRequestHeader", values("topic", "orders", "group", "workers", "timestamp", 5L, "isForce", true))
            .oneWay().body("{}".getBytes(StandardCharsets.UTF_8)).write();
        frame(type, "consumer status", 221, "GetConsumerStatusRequestHeader", values("topic", "orders", "group", "workers", "clientAddr", "c")).write();
        frame(type, "running info", 307, "GetConsumerRunningInfoRequestHeader", values("consumerGroup", "workers", "clientId", "c", "jstackEnable", false)).write();
        frame(type, "consume directly", 309, "ConsumeMessageDirectlyResultRequestHeader", values("consumerGroup", "workers", "clientId", "c", "msgId", "m",
            "brokerName", "b")).body(stored(2, true)).write();
        frame(type, "reply", 326, "ReplyMessageRequestHeader", values("producerGroup", "g", "topic", "c_REPLY_TOPIC", "queueId", 0, "sysFlag", 0,
            "bornTimestamp", 1L, "flag", 0, "properties", PROPERTIES, "reconsumeTimes", 0, "unitMode", false, "bornHost", "h:1", "storeHost", "s:2",
            "storeTimestamp", 2L, "defaultTopic", "d", "defaultTopicQueueNums", 4)).body(BODY).write();
    }

    /** A message as the broker's store has it. */
    private static byte[] stored(int number, boolean six) throws Exception {
        InetAddress address = InetAddress.getByAddress(six ? new byte[16] : new byte[] {10, 0, 0, 7});
        MessageExt message = new MessageExt();
        message.setTopic("orders");
        message.setBody(new byte[number * 13]);
        message.setQueueId(number);
        message.setQueueOffset(number);
        message.setCommitLogOffset(1000L + number);
        message.setBornTimestamp(1795247411000L);
        message.setStoreTimestamp(1795247411001L);
        message.setBornHost(new InetSocketAddress(address, 40_000));
        message.setStoreHost(new InetSocketAddress(address, 10_911));
        if (six) {
            message.setBornHostV6Flag();
            message.setStoreHostAddressV6Flag();
        }
        message.putUserProperty("number", "\u4e2d" + number);
        return MessageDecoder.encode(message, false);
    }

    private Frame frame(SerializeType type, String name, int code, String headerClass, Map<String, Object> ext) {
        return new Frame(type, name, code, headerClass, new LinkedHashMap<>(ext));
    }

    /** One frame to be. */
    private final class Frame {
        private final String name;
        private final String headerClass;
        private final Map<String, Object> ext;
        private final RemotingCommand command;
        private boolean signed = false;
        private int messages = 0;
        private int stored = 0;

        Frame(SerializeType type, String name, int code, String headerClass, Map<String, Object> ext) {
            this.name = name;
            this.headerClass = headerClass;
            this.ext = ext;
            this.command = RemotingCommand.createRequestCommand(code, Headers.make(headerClass, ext));
            command.setSerializeTypeCurrentRPC(type);
        }

        Frame body(byte[] body) {
            command.setBody(body);
            return this;
        }

        Frame remark(String remark) {
            command.setRemark(remark);
            return this;
        }

        Frame oneWay() {
            command.markOnewayRPC();
            return this;
        }

        Frame answer() {
            command.markResponseType();
            return this;
        }

        /** As the hook for access control does it: the header becomes a map first, so that it can be signed. */
        Frame signed() {
            signed = true;
            return this;
        }

        Frame messages(int count) {
            messages = count;
            return this;
        }

        Frame stored(int count) {
            stored = count;
            return this;
        }

        void write() {
            if (headerClass != null && command.readCustomHeader() == null) {
                return; // this version does not have it
            }
            command.setOpaque(OPAQUES[lines.size() % OPAQUES.length]);
            command.setLanguage(LANGUAGES[lines.size() % LANGUAGES.length]);
            command.setVersion(VERSIONS[lines.size() % VERSIONS.length]);
            if (signed) {
                command.makeCustomHeaderToNet();
                command.addExtField("AccessKey", "key");
                command.addExtField("Signature", "c2ln+/=");
            }
            ByteBuf out = Unpooled.buffer();
            command.fastEncodeHeader(out); // as NettyEncoder does
            if (command.getBody() != null) {
                out.writeBytes(command.getBody());
            }
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("from", speaker);
            line.put("name", name);
            line.put("type", command.getSerializeTypeCurrentRPC().name());
            line.put("code", command.getCode());
            line.put("opaque", command.getOpaque());
            line.put("flag", command.getFlag());
            line.put("remark", command.getRemark());
            line.put("language", command.getLanguage().name());
            line.put("version", command.getVersion());
            line.put("ext", ext);
            line.put("body", command.getBody() == null ? 0 : command.getBody().length);
            line.put("messages", messages);
            line.put("stored", stored);
            line.put("frame", ByteBufUtil.hexDump(out));
            lines.add(Json.text(line));
        }
    }

    public static void main(String[] arguments) throws Exception {
        WriteFrames writer = new WriteFrames();
        for (SerializeType type : SerializeType.values()) {
            writer.speaker = "client";
            writer.sends(type);
            writer.others(type);
            writer.speaker = "broker";
            writer.broker(type);
        }
        Files.write(Path.of(arguments[0]), writer.lines);
    }
}
