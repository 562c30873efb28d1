import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.message.MessageExt;

/** Looking at messages: their trace, by key, by id. */
final class Looking {
    private static final String TRACES = "RMQ_SYS_TRACE_TOPIC";

    static void register(Cases cases) {
        cases.add("trace", Looking::trace).consumes();
        cases.add("query_by_key", Looking::byKey);
        cases.add("query_by_unique_key", Looking::byUniqueKey);
        cases.add("view_by_id", Looking::byId);
    }

    private static void trace(Room room) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(room.topic, room.setup.credentials(), true, null);
        room.setup.configure(producer, room.topic);
        room.started(producer);
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(room.topic, room.setup.credentials(), new AllocateMessageQueueAveragely(), true, null);
        room.configured(consumer, room.topic);
        consumer.subscribe(room.topic, "*");
        Inbox inbox = new Inbox();
        consumer.registerMessageListener(inbox.concurrently);
        for (int number = 0; number < 5; number++) {
            producer.send(room.message(number));
        }
        room.started(consumer);
        inbox.await(5);
        Set<String> seen = new TreeSet<>();
        Waiting.until("15 traces", () -> { // a sent, a before and an after of each
            seen.clear();
            for (List<MessageExt> messages : room.read(TRACES, 1).values()) {
                for (MessageExt message : messages) {
                    if (Room.body(message).contains(room.topic)) {
                        note(room, message, seen);
                    }
                }
            }
            return seen.size() >= 15;
        });
        room.fact("traces", seen);
    }

    private static void note(Room room, MessageExt message, Set<String> seen) {
        TraceDataEncoder.decoderFromTraceDataString(Room.body(message)).forEach(context -> context.getTraceBeans().forEach(bean -> {
            String which = bean.getKeys() == null ? "" : bean.getKeys();
            if (which.contains(room.topic)) {
                seen.add(context.getTraceType() + " " + context.isSuccess() + " " + which);
            }
        }));
    }

    private static void byKey(Room room) throws Exception {
        Pushing.fill(room, 10);
        String key = room.topic + "-key-7";
        List<String> found = new ArrayList<>();
        Waiting.until("the key is indexed", () -> {
            found.clear();
            room.admin().queryMessage(room.topic, key, 32, 0, Long.MAX_VALUE).getMessageList()
                .forEach(message -> found.add(Room.body(message)));
            return !found.isEmpty();
        });
        room.expect("found", "[body-7]", found);
        room.fact("an unknown one", Failure.code(() -> room.admin().queryMessage(room.topic, key + "0", 32, 0, Long.MAX_VALUE)));
    }

    private static void byUniqueKey(Room room) throws Exception {
        SendResult sent = room.producer().send(room.message(3));
        List<String> found = new ArrayList<>();
        Waiting.until("the key is indexed", () -> {
            found.add(Room.body(room.admin().viewMessage(room.topic, sent.getMsgId())));
            return true;
        });
        room.expect("found", "[body-3]", found);
    }

    private static void byId(Room room) throws Exception {
        SendResult sent = room.producer().send(room.message(3)); // the id says where: address and offset
        List<MessageExt> all = new ArrayList<>();
        Waiting.until("an answer", () -> all.add(room.reader().viewMessage(room.topic, sent.getOffsetMsgId())));
        MessageExt found = all.get(0);
        room.expect("body", "body-3", Room.body(found));
        room.expect("key", room.topic + "-key-3", found.getKeys());
        room.expect("queue offset", sent.getQueueOffset(), found.getQueueOffset());
    }
}
