import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers: concurrent, orderly, broadcast, filtered; what fails is sent back, and ends as a dead letter. */
final class Pushing {
    static void register(Cases cases) {
        cases.add("push_retry", Pushing::retry).consumes();
        cases.add("push_dead_letter", Pushing::deadLetter).consumes().topic("%DLQ%CASE");
        cases.add("push_concurrently", Pushing::concurrently).consumes();
        cases.add("push_orderly", Pushing::orderly).consumes();
        cases.add("push_orderly_suspended", Pushing::suspended).consumes();
        cases.add("push_broadcast", Pushing::broadcast);
        cases.add("push_waits", Pushing::waits).consumes();
        cases.add("push_large", Pushing::large).consumes();
        cases.add("filter_tags", Pushing::tags).consumes();
        cases.add("filter_sql", Pushing::sql).consumes();
        cases.add("filter_sql_wrong", Pushing::wrongSql).consumes();
    }

    static void fill(Room room, int count) throws Exception {
        DefaultMQProducer producer = room.producer();
        for (int number = 0; number < count; number++) {
            producer.send(room.message(number), new MessageQueue(room.topic, "broker-a", number % 4));
        }
    }

    private static void concurrently(Room room) throws Exception {
        fill(room, 100);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = room.push(room.topic, room.lane);
        consumer.subscribe(room.topic, "*");
        consumer.registerMessageListener(inbox.concurrently);
        room.started(consumer);
        inbox.awaitExactly(100);
        room.expect("consumed", Room.bodies(0, 100), inbox.bodies());
    }

    // Orderly consumers have a connection of their own: a lock that is not answered within a second makes the client end the connection.

    private static void orderly(Room room) throws Exception {
        fill(room, 100);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = room.push(room.topic, room.topic);
        consumer.subscribe(room.topic, "*");
        consumer.registerMessageListener(inbox.orderly);
        room.started(consumer);
        inbox.awaitExactly(100);
        Map<Integer, List<String>> expected = new TreeMap<>();
        for (int number = 0; number < 100; number++) {
            expected.computeIfAbsent(number % 4, queue -> new ArrayList<>()).add("body-" + number);
        }
        room.expect("consumed by queue", expected, inbox.byQueue());
    }

    private static void suspended(Room room) throws Exception {
        fill(room, 8);
        Inbox inbox = new Inbox();
        Set<String> refused = Collections.synchronizedSet(new TreeSet<>());
        DefaultMQPushConsumer consumer = room.push(room.topic, room.topic);
        consumer.subscribe(room.topic, "*");
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                if (refused.add(Room.body(message))) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                inbox.add(message);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        room.started(consumer);
        inbox.awaitExactly(8);
        room.expect("consumed by queue", "{0=[body-0, body-4], 1=[body-1, body-5], 2=[body-2, body-6], 3=[body-3, body-7]}",
            inbox.byQueue());
    }

    private static void retry(Room room) throws Exception {
        fill(room, 20);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = room.push(room.topic, room.lane);
        consumer.subscribe(room.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                boolean even = message.getQueueId() % 2 == 0;
                if (message.getReconsumeTimes() == 0 && even) {
                    context.setDelayLevelWhenNextConsume(1); // one second
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                inbox.add(message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        room.started(consumer);
        inbox.awaitExactly(20);
        Map<String, Integer> times = new TreeMap<>();
        Set<String> retryTopics = new TreeSet<>();
        for (MessageExt message : inbox.all()) {
            times.merge("reconsumed " + message.getReconsumeTimes(), 1, Integer::sum);
            retryTopics.add(String.valueOf(message.getTopic()));
        }
        room.expect("consumed", Room.bodies(0, 20), inbox.bodies());
        room.expect("times", "{reconsumed 0=10, reconsumed 1=10}", times);
        room.expect("under the topics", "[" + room.topic + "]", retryTopics);
        room.expect("in the retry topic", 10, room.stored("%RETRY%" + room.topic));
    }

    private static void deadLetter(Room room) throws Exception {
        fill(room, 4);
        Set<String> deliveries = Collections.synchronizedSet(new TreeSet<>());
        DefaultMQPushConsumer consumer = room.push(room.topic, room.lane);
        consumer.subscribe(room.topic, "*");
        consumer.setMaxReconsumeTimes(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> deliveries.add(Room.body(message) + " time " + message.getReconsumeTimes()));
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        room.started(consumer);
        List<MessageExt> dead = room.read("%DLQ%" + room.topic, 4).get(0);
        List<String> bodies = new ArrayList<>();
        Set<String> origins = new TreeSet<>();
        for (MessageExt message : dead) {
            bodies.add(Room.body(message));
            origins.add(message.getProperty("RETRY_TOPIC") + " after " + message.getReconsumeTimes());
        }
        bodies.sort(null);
        room.expect("deliveries", 8, deliveries.size());
        room.expect("dead", Room.bodies(0, 4), bodies);
        room.fact("origins", origins);
        room.expect("in the retry topic", 4, room.stored("%RETRY%" + room.topic));
    }

    private static void broadcast(Room room) throws Exception {
        Inbox one = new Inbox();
        Inbox two = new Inbox();
        int number = 0;
        for (Inbox inbox : List.of(one, two)) {
            DefaultMQPushConsumer consumer = room.push(room.topic, room.topic + "-" + number++);
            Broadcasting.set(consumer);
            consumer.subscribe(room.topic, "*");
            consumer.registerMessageListener(inbox.concurrently);
            room.started(consumer);
        }
        fill(room, 12);
        one.awaitExactly(12);
        two.awaitExactly(12);
        room.expect("first", Room.bodies(0, 12), one.bodies());
        room.expect("second", Room.bodies(0, 12), two.bodies());
    }

    /** The consumer waits in long polls on empty queues; what comes later is delivered at once: in one of five rounds, as a machine may be busy. */
    private static void waits(Room room) throws Exception {
        Inbox inbox = new Inbox();
        AtomicLong slowest = new AtomicLong();
        DefaultMQPushConsumer consumer = room.push(room.topic, room.lane);
        consumer.subscribe(room.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.currentTimeMillis();
            messages.forEach(message -> slowest.accumulateAndGet(now - message.getStoreTimestamp(), Math::max));
            return inbox.concurrently.consumeMessage(messages, context);
        });
        room.started(consumer);
        var queues = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable();
        Waiting.until("queues are allocated", () -> queues.size() == 5); // one is of the retry topic
        boolean late = true;
        for (int came = 0; late && came < 5 * 8; came += 8) {
            Thread.sleep(2000);
            slowest.set(0);
            fill(room, 8);
            inbox.awaitExactly(came + 8);
            List<String> bodies = new ArrayList<>();
            inbox.all().stream().skip(came).forEach(message -> bodies.add(Room.body(message)));
            bodies.sort(null);
            room.expect("consumed", Room.bodies(0, 8), bodies);
            late = slowest.get() > 10_000; // a poll's end is after 15 s
        }
        room.expect("only after a poll's end", false, late);
    }

    /** Many answers of several MiB at a time. */
    private static void large(Room room) throws Exception {
        DefaultMQProducer producer = room.producer();
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        for (int number = 0; number < 12; number++) {
            byte[] body = new byte[1_500_000];
            new Random(number).nextBytes(body);
            producer.send(new Message(room.topic, "", String.valueOf(number), body));
        }
        Map<String, Long> sums = new TreeMap<>();
        DefaultMQPushConsumer consumer = room.push(room.topic, room.lane);
        consumer.subscribe(room.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (sums) {
                messages.forEach(message -> sums.put(message.getKeys(), Sending.checksum(message.getBody())));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        room.started(consumer);
        Waiting.until("all consumed", () -> {
            synchronized (sums) {
                return sums.size() == 12;
            }
        });
        room.fact("checksums", sums); // the random bodies are the same in every run
    }

    private static void filtered(Room room, MessageSelector selector, List<String> expected) throws Exception {
        DefaultMQProducer producer = room.producer();
        for (int number = 0; number < 20; number++) {
            Message message = room.message(number);
            message.setTags(new String[] {"red", "green", "blue"}[number % 3]);
            message.putUserProperty("price", String.valueOf(number));
            producer.send(message);
        }
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = room.push(room.topic, room.lane);
        consumer.subscribe(room.topic, selector);
        consumer.registerMessageListener(inbox.concurrently);
        room.started(consumer);
        inbox.awaitExactly(expected.size());
        expected.sort(null);
        room.expect("consumed", expected, inbox.bodies());
    }

    private static void tags(Room room) throws Exception {
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 20; number++) {
            if (number % 3 != 1) {
                expected.add("body-" + number);
            }
        }
        filtered(room, MessageSelector.byTag("red || blue"), expected);
    }

    private static void sql(Room room) throws Exception {
        List<String> expected = new ArrayList<>(List.of("body-6", "body-9", "body-12", "body-15", "body-19"));
        filtered(room, MessageSelector.bySql("(TAGS = 'red' AND price BETWEEN 5 AND 15) OR price = 19"), expected);
    }

    private static void wrongSql(Room room) throws Exception {
        DefaultMQPushConsumer consumer = room.push(room.topic, room.lane + "-own-" + room.topic);
        consumer.subscribe(room.topic, MessageSelector.bySql("price >>> 5"));
        consumer.registerMessageListener(new Inbox().concurrently);
        room.fact("refused with", Failure.code(() -> {
            room.started(consumer);
            return null;
        }));
    }
}
