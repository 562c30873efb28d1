import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;

/** What the client has had since 5.x. */
final class Modern {
    static void register(Cases cases) {
        cases.add("pop_again", Modern::popAgain).consumes();
        cases.add("pop", Modern::pop).consumes();
        cases.add("recall", Modern::recall).queues(1);
        cases.add("compressed_lz4", room -> compressed(room, CompressionType.LZ4)).queues(1);
        cases.add("compressed_zstd", room -> compressed(room, CompressionType.ZSTD)).queues(1);
        cases.add("namespace_v2", Modern::namespace);
    }

    private static DefaultMQPushConsumer popping(Room room) throws Exception {
        room.admin().setMessageRequestMode(room.setup.broker(), room.topic, room.topic, MessageRequestMode.POP, 8, 10_000);
        Pushing.fill(room, 20);
        DefaultMQPushConsumer consumer = room.push(room.topic, room.topic + "-pops");
        consumer.setClientRebalance(false); // the broker says from which queues, and that it is to pop
        consumer.setPopInvisibleTime(20_000);
        consumer.subscribe(room.topic, "*");
        return consumer;
    }

    private static void pop(Room room) throws Exception {
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = popping(room);
        consumer.registerMessageListener(inbox.concurrently);
        room.started(consumer);
        inbox.awaitExactly(20);
        room.expect("consumed", Room.bodies(0, 20), inbox.bodies());
        Set<Boolean> popped = new TreeSet<>();
        inbox.all().forEach(message -> popped.add(message.getProperty("POP_CK") != null));
        room.expect("by pop", "[true]", popped);
    }

    private static void popAgain(Room room) throws Exception {
        Set<String> first = new ConcurrentSkipListSet<>();
        List<MessageExt> again = new ArrayList<>();
        DefaultMQPushConsumer consumer = popping(room);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (first.add(Room.body(message)) && Room.body(message).endsWith("7")) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER; // becomes visible again after 10 s
                }
                if (Room.body(message).endsWith("7")) {
                    synchronized (again) {
                        again.add(message);
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        room.started(consumer);
        Waiting.until("two came again", () -> {
            synchronized (again) {
                return again.size() >= 2;
            }
        });
        Set<String> bodies = new TreeSet<>();
        again.forEach(message -> bodies.add(Room.body(message) + " time " + message.getReconsumeTimes()));
        room.expect("all came", 20, first.size());
        room.fact("again", bodies);
    }

    private static void recall(Room room) throws Exception {
        DefaultMQProducer producer = room.producer();
        List<SendResult> sent = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            Message message = room.message(number);
            message.setDelayTimeMs(12_000); // far enough away to be recalled on a busy machine too
            sent.add(producer.send(message));
        }
        String id = producer.recallMessage(room.topic, sent.get(1).getRecallHandle());
        room.expect("says which", true, id.equals(sent.get(1).getMsgId()));
        room.expect("delivered", "[body-0, body-2]", room.readBodies(room.topic, 2));
        Thread.sleep(1500);
        room.expect("delivered in the end", 2, room.stored(room.topic));
        room.fact("with a handle that is none", Failure.code(() -> producer.recallMessage(room.topic, "nonsense")));
    }

    private static void compressed(Room room, CompressionType type) throws Exception {
        DefaultMQProducer producer = room.producer();
        producer.setCompressType(type);
        byte[] body = "sluice ".repeat(30_000).getBytes();
        producer.send(new Message(room.topic, body));
        MessageExt stored = room.read(room.topic, 1).get(0).get(0);
        room.expect("checksum", Sending.checksum(body), Sending.checksum(stored.getBody()));
        room.expect("stored small", true, stored.getStoreSize() < 10_000);
        room.fact("system flag", stored.getSysFlag());
    }

    /** Version 2 sends the name of the space in the header (`ns`, `nsd`); a broker without a proxy ignores it. */
    private static void namespace(Room room) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(room.topic, room.setup.credentials());
        room.setup.configure(producer, room.topic);
        producer.setNamespaceV2("space");
        room.started(producer);
        for (int number = 0; number < 5; number++) {
            producer.send(room.message(number));
        }
        room.expect("stored", Room.bodies(0, 5), room.readBodies(room.topic, 5));
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = room.push(room.topic, room.topic + "-consumes");
        consumer.setNamespaceV2("space");
        consumer.subscribe(room.topic, "*");
        consumer.registerMessageListener(inbox.concurrently);
        room.started(consumer);
        inbox.await(5);
        room.expect("consumed", Room.bodies(0, 5), inbox.bodies());
    }
}
