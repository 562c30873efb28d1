// Writes test vectors with RocketMQ's own classes: a JSON array on stdout.
//
//   javac -cp 'lib/*' Vectors.java && java -cp .:'lib/*' Vectors > java-5.3.3.json      (lib: rocketmq-client 5.3.3 from Maven Central)

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;
import org.apache.rocketmq.remoting.protocol.header.ConsumerSendMsgBackRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeaderV2;

public class Vectors {
    static final List<String> LINES = new ArrayList<>();

    static SendMessageRequestHeader send(String topic, boolean batch, String group) {
        SendMessageRequestHeader header = new SendMessageRequestHeader();
        header.setProducerGroup(group);
        header.setTopic(topic);
        header.setDefaultTopic("TBW102");
        header.setDefaultTopicQueueNums(4);
        header.setQueueId(2);
        header.setSysFlag(0);
        header.setBornTimestamp(1795247411000L);
        header.setFlag(0);
        header.setProperties("UNIQ_KEY\u00017F00000112342A139A5534EF0A3B0001\u0002WAIT\u0001true\u0002TAGS\u0001\"a\\b\"\u0002");
        header.setReconsumeTimes(0);
        header.setUnitMode(false);
        header.setMaxReconsumeTimes(16);
        header.setBatch(batch);
        header.setBrokerName("broker-a");
        return header;
    }

    static void add(String name, SerializeType type, RemotingCommand command, byte[] body, boolean oneWay, String topic, String group, int messages) {
        command.setSerializeTypeCurrentRPC(type);
        command.setOpaque(7000 + LINES.size());
        if (oneWay) {
            command.markOnewayRPC();
        }
        command.setBody(body);
        ByteBuffer encoded = command.encode();
        StringBuilder hex = new StringBuilder();
        while (encoded.hasRemaining()) {
            hex.append(String.format("%02x", encoded.get()));
        }
        LINES.add(String.format(
            "{\"name\": \"%s %s\", \"topic\": %s, \"group\": %s, \"messages\": %d, \"one_way\": %b, \"opaque\": %d, \"size\": %d, \"frame\": \"%s\"}",
            name, type, topic == null ? "null" : "\"" + topic + "\"", group == null ? "null" : "\"" + group + "\"", messages, oneWay,
            command.getOpaque(), body == null ? 0 : body.length, hex));
    }

    public static void main(String[] arguments) {
        byte[] body = "hello".getBytes(StandardCharsets.UTF_8);
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            messages.add(new Message("orders", "tag", "key" + i, new byte[i * 10]));
        }

        byte[] batchBody = MessageDecoder.encodeMessages(messages);
        for (SerializeType type : SerializeType.values()) {
            add("send", type, RemotingCommand.createRequestCommand(10, send("orders", false, "producers")), body, false, "orders", "producers", 1);
            SendMessageRequestHeader header = send("%RETRY%workers", false, "CLIENT_INNER_PRODUCER");
            add("send to retry", type, RemotingCommand.createRequestCommand(10, header), body, false, "%RETRY%workers", "CLIENT_INNER_PRODUCER", 1);
            SendMessageRequestHeaderV2 v2 = SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(send("orders", false, "producers"));
            add("send v2", type, RemotingCommand.createRequestCommand(310, v2), body, false, "orders", "producers", 1);
            v2 = SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(send("orders", false, "producers"));
            add("send v2 one-way", type, RemotingCommand.createRequestCommand(310, v2), body, true, "orders", "producers", 1);
            v2 = SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(send("bestellungen-\u00e4\u4e2d", false, "gr\u00fcn"));
            add("send v2 not ascii", type, RemotingCommand.createRequestCommand(310, v2), body, false, "bestellungen-\u00e4\u4e2d", "gr\u00fcn", 1);
            v2 = SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(send("orders", true, "producers"));
            add("send batch", type, RemotingCommand.createRequestCommand(320, v2), batchBody, false, "orders", "producers", messages.size());
            v2 = SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(send("c_REPLY_TOPIC", false, "producers"));
            add("reply v2", type, RemotingCommand.createRequestCommand(325, v2), body, false, "c_REPLY_TOPIC", "producers", 1);
            add("reply", type, RemotingCommand.createRequestCommand(324, send("c_REPLY_TOPIC", false, "producers")), body, false, "c_REPLY_TOPIC", "producers", 1);
            ConsumerSendMsgBackRequestHeader back = new ConsumerSendMsgBackRequestHeader();
            back.setGroup("workers");
            back.setOriginTopic("orders");
            back.setOffset(123456789L);
            back.setDelayLevel(0);
            back.setOriginMsgId("7F00000112342A139A5534EF0A3B0001");
            back.setMaxReconsumeTimes(16);
            add("send back", type, RemotingCommand.createRequestCommand(36, back), null, false, "%RETRY%workers", "workers", 1);
            PullMessageRequestHeader pull = new PullMessageRequestHeader();
            pull.setConsumerGroup("workers");
            pull.setTopic("orders");
            pull.setQueueId(0);
            pull.setQueueOffset(0L);
            pull.setMaxMsgNums(32);
            pull.setSysFlag(2);
            pull.setCommitOffset(0L);
            pull.setSuspendTimeoutMillis(15000L);
            pull.setSubscription("*");
            pull.setSubVersion(0L);
            add("pull", type, RemotingCommand.createRequestCommand(11, pull), null, false, null, null, 0);
            add("heartbeat", type, RemotingCommand.createRequestCommand(34, null), "{}".getBytes(StandardCharsets.UTF_8), false, null, null, 0);
            RemotingCommand answer = RemotingCommand.createRequestCommand(310, SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(send("orders", false, "producers")));
            answer.markResponseType();
            add("an answer with a send's code", type, answer, body, false, null, null, 0);
        }
        System.out.println("[\n" + String.join(",\n", LINES) + "\n]");
    }
}
