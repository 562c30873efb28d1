import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends of every kind, and what is stored of them. */
final class Sending {
    private static final int MEBIBYTE = 1 << 20;

    static void register(Cases cases) {
        cases.add("send_delay_level", Sending::delayLevel).queues(1);
        cases.add("send_timer", Sending::timer).queues(1);
        cases.add("send_sync", Sending::sync);
        cases.add("send_async", Sending::async);
        cases.add("send_oneway", Sending::oneway);
        cases.add("send_batch", Sending::batch);
        cases.add("send_batch_to_queue", Sending::batchToQueue);
        cases.add("send_ordered", Sending::ordered);
        cases.add("send_to_queue", Sending::toQueue);
        cases.add("send_large", Sending::large).queues(1);
        cases.add("send_too_large", Sending::tooLarge).queues(1);
        cases.add("send_compressed", Sending::compressed).queues(1);
        cases.add("send_properties", Sending::properties).queues(1);
        cases.add("send_to_new_topic", Sending::toNewTopic);
        cases.add("send_to_unknown_queue", Sending::toUnknownQueue);
        cases.add("send_over_tls", Sending::overTls);
        cases.add("send_vip", Sending::vip);
    }

    /** Sends `count` messages one after the other and notes how each ended. */
    static void some(Room room, DefaultMQProducer producer, int count) throws Exception {
        Map<String, Integer> statuses = new TreeMap<>();
        TreeSet<String> ids = new TreeSet<>();
        TreeSet<String> brokers = new TreeSet<>();
        TreeSet<Integer> queues = new TreeSet<>();
        for (int number = 0; number < count; number++) {
            SendResult result = producer.send(room.message(number));
            statuses.merge(result.getSendStatus() + " region=" + result.getRegionId() + " trace=" + result.isTraceOn(), 1, Integer::sum);
            ids.add(result.getOffsetMsgId());
            brokers.add(result.getMessageQueue().getBrokerName());
            queues.add(result.getMessageQueue().getQueueId());
        }
        room.expect("statuses", Map.of("SEND_OK region=DefaultRegion trace=true", count), statuses);
        room.expect("different ids", count, ids.size());
        room.expect("brokers", "[broker-a]", brokers);
        room.fact("queues", queues);
    }

    private static void sync(Room room) throws Exception {
        some(room, room.producer(), 20);
        room.expect("stored", Room.bodies(0, 20), room.readBodies(room.topic, 20));
    }

    private static void async(Room room) throws Exception {
        DefaultMQProducer producer = room.producer();
        AtomicInteger accepted = new AtomicInteger();
        CountDownLatch open = new CountDownLatch(100);
        for (int number = 0; number < 100; number++) {
            producer.send(room.message(number), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    accepted.incrementAndGet();
                    open.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    room.trouble(error.toString());
                    open.countDown();
                }
            });
        }
        room.expect("all called back", true, open.await(2 * Setup.PATIENCE_MS, TimeUnit.MILLISECONDS));
        room.expect("accepted", 100, accepted.get());
        room.expect("stored", Room.bodies(0, 100), room.readBodies(room.topic, 100));
    }

    private static void oneway(Room room) throws Exception {
        DefaultMQProducer producer = room.producer();
        for (int number = 0; number < 50; number++) {
            producer.sendOneway(room.message(number));
        }
        room.expect("stored", Room.bodies(0, 50), room.readBodies(room.topic, 50));
    }

    private static void batch(Room room) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            messages.add(room.message(number));
        }
        SendResult result = room.producer().send(messages);
        room.expect("status", "SEND_OK", result.getSendStatus().toString());
        room.expect("ids", 10, result.getMsgId().split(",").length);
        room.expect("stored", Room.bodies(0, 10), room.readBodies(room.topic, 10));
    }

    private static void batchToQueue(Room room) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            messages.add(room.message(number));
        }
        SendResult result = room.producer().send(messages, new MessageQueue(room.topic, "broker-a", 2));
        room.expect("queue and offset", "2:0", result.getMessageQueue().getQueueId() + ":" + result.getQueueOffset());
        room.expect("stored in the queue", 10, room.read(room.topic, 10).get(2).size());
    }

    private static void ordered(Room room) throws Exception {
        DefaultMQProducer producer = room.producer();
        for (int number = 0; number < 40; number++) {
            SendResult result = producer.send(room.message(number), (queues, message, key) -> queues.get((Integer) key % 4), number);
            if (result.getQueueOffset() != number / 4) {
                room.trouble("message " + number + " has offset " + result.getQueueOffset());
            }
        }
        Map<Integer, List<String>> stored = new TreeMap<>();
        room.read(room.topic, 40).forEach((queue, messages) -> messages.forEach(
            message -> stored.computeIfAbsent(queue, first -> new ArrayList<>()).add(Room.body(message))));
        room.fact("stored by queue", stored);
        room.expect("stored in queue 3", "[body-3, body-7, body-11, body-15, body-19, body-23, body-27, body-31, body-35, body-39]",
            stored.get(3));
    }

    private static void toQueue(Room room) throws Exception {
        SendResult result = room.producer().send(room.message(0), new MessageQueue(room.topic, "broker-a", 3));
        room.expect("queue and offset", "3:0", result.getMessageQueue().getQueueId() + ":" + result.getQueueOffset());
    }

    private static void delayLevel(Room room) throws Exception {
        DefaultMQProducer producer = room.producer();
        for (int number = 0; number < 3; number++) {
            Message message = room.message(number);
            message.setDelayTimeLevel(1); // one second
            producer.send(message);
        }
        delayed(room, 900);
    }

    private static void timer(Room room) throws Exception {
        DefaultMQProducer producer = room.producer();
        for (int number = 0; number < 3; number++) {
            Message message = room.message(number);
            MessageAccessor.putProperty(message, "TIMER_DELAY_MS", "2000"); // 4.9 has no method for it
            producer.send(message);
        }
        delayed(room, 900); // the broker's wheel turns by the second
    }

    private static void delayed(Room room, long atLeastMs) throws Exception {
        List<MessageExt> delivered = room.read(room.topic, 3).get(0);
        List<String> bodies = new ArrayList<>();
        for (MessageExt message : delivered) {
            bodies.add(Room.body(message));
            if (message.getStoreTimestamp() - message.getBornTimestamp() < atLeastMs) {
                room.trouble(Room.body(message) + " was not delayed");
            }
        }
        bodies.sort(null);
        room.expect("delivered later", Room.bodies(0, 3), bodies);
    }

    private static void large(Room room) throws Exception {
        byte[] body = new byte[4 * MEBIBYTE - 1024];
        new Random(20).nextBytes(body); // cannot be compressed
        DefaultMQProducer producer = room.producer();
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        room.expect("status", "SEND_OK", producer.send(new Message(room.topic, body)).getSendStatus().toString());
        room.expect("checksum", checksum(body), checksum(room.read(room.topic, 1).get(0).get(0).getBody()));
    }

    private static void tooLarge(Room room) throws Exception {
        DefaultMQProducer producer = room.producer();
        producer.setMaxMessageSize(8 * MEBIBYTE); // the client lets it go, the broker does not
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        byte[] body = new byte[6 * MEBIBYTE];
        room.expect("refused with", 13, Failure.code(() -> producer.send(new Message(room.topic, body))));
        room.expect("the next one", "SEND_OK", producer.send(room.message(0)).getSendStatus().toString());
    }

    private static void compressed(Room room) throws Exception {
        byte[] body = "sluice ".repeat(30_000).getBytes(StandardCharsets.UTF_8);
        room.producer().send(new Message(room.topic, body));
        MessageExt stored = room.read(room.topic, 1).get(0).get(0);
        room.expect("checksum", checksum(body), checksum(stored.getBody()));
        room.expect("stored small", true, stored.getStoreSize() < 10_000);
        room.fact("system flag", stored.getSysFlag());
    }

    private static void properties(Room room) throws Exception {
        Message message = new Message(room.topic, "täg", "one two", 7, "größe".getBytes(StandardCharsets.UTF_8), true);
        message.setBuyerId("b");
        message.putUserProperty("price", "3.5");
        message.putUserProperty("ünïcode", "\u4f60\u597d \ud83d\ude00");
        message.putUserProperty("empty json", "{\"a\":[1,true,null]}");
        room.producer().send(message);
        MessageExt stored = room.read(room.topic, 1).get(0).get(0);
        room.expect("body", "größe", Room.body(stored));
        room.expect("flag", 7, stored.getFlag());
        room.expect("unicode", "\u4f60\u597d \ud83d\ude00", stored.getUserProperty("ünïcode"));
        for (String name : new TreeSet<>(stored.getProperties().keySet())) {
            room.fact("property " + name, Arrays.asList("UNIQ_KEY", "MIN_OFFSET", "MAX_OFFSET").contains(name) ? "..."
                : stored.getProperty(name));
        }
    }

    private static void toNewTopic(Room room) throws Exception {
        SendResult result = room.producer().send(room.message(room.topic + "-new", 0)); // by the route of TBW102, until it has one
        room.expect("status", "SEND_OK", result.getSendStatus().toString());
        room.expect("topic", room.topic + "-new", result.getMessageQueue().getTopic());
    }

    private static void toUnknownQueue(Room room) throws Exception {
        DefaultMQProducer producer = room.producer();
        room.expect("refused with", 29, Failure.code(() -> producer.send(room.message(0), new MessageQueue(room.topic, "broker-a", 99))));
        room.fact("in words", Failure.words(() -> producer.send(room.message(0), new MessageQueue(room.topic, "broker-a", 99))));
    }

    private static void overTls(Room room) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(room.topic, room.setup.credentials());
        room.setup.configure(producer, "tls");
        producer.setUseTLS(true);
        some(room, room.started(producer), 20);
        var consumer = room.push(room.topic, "tls");
        consumer.setUseTLS(true);
        consumer.subscribe(room.topic, "*");
        Inbox inbox = new Inbox();
        consumer.registerMessageListener(inbox.concurrently);
        room.started(consumer);
        inbox.await(20);
        room.expect("consumed", Room.bodies(0, 20), inbox.bodies());
    }

    private static void vip(Room room) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(room.topic, room.setup.credentials());
        room.setup.configure(producer, "vip");
        producer.setVipChannelEnabled(true);
        some(room, room.started(producer), 10);
    }

    static long checksum(byte[] bytes) {
        CRC32 sum = new CRC32();
        sum.update(bytes);
        return sum.getValue();
    }
}
