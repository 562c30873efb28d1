import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Several consumers of one group: queues are split among them, and taken over when one leaves. */
final class Balancing {
    private static final int QUEUES = 8;

    static void register(Cases cases) {
        cases.add("rebalance", room -> twoShare(room, false)).queues(QUEUES).consumes();
        cases.add("rebalance_orderly", room -> twoShare(room, true)).queues(QUEUES).consumes();
    }

    private static void twoShare(Room room, boolean orderly) throws Exception {
        Inbox one = new Inbox();
        Inbox two = new Inbox();
        DefaultMQPushConsumer first = consumer(room, one, room.topic + "-one", orderly);
        Waiting.until("the first has all queues", () -> queues(room, first).size() == QUEUES);
        DefaultMQPushConsumer second = consumer(room, two, room.topic + "-two", orderly);
        Waiting.until("both have half", () -> queues(room, first).size() == QUEUES / 2 && queues(room, second).size() == QUEUES / 2);
        Set<Integer> firsts = queues(room, first);
        Set<Integer> seconds = queues(room, second);
        room.fact("the first's", firsts);
        room.fact("the second's", seconds);
        send(room, 0);
        Waiting.until("16 consumed", () -> consumed(one, two).size() >= 16);
        room.expect("by the first", firsts, queuesOf(one));
        room.expect("by the second", seconds, queuesOf(two));
        second.shutdown();
        Waiting.until("the first has taken over", () -> queues(room, first).size() == QUEUES);
        send(room, 16);
        Waiting.until("32 consumed", () -> consumed(one, two).size() >= 32);
        room.expect("consumed in all", 32, consumed(one, two).size());
        room.expect("by the first in the end", "[0, 1, 2, 3, 4, 5, 6, 7]", queuesOf(one));
        room.expect("by the second in the end", seconds, queuesOf(two));
    }

    /** What was consumed by one or the other; some of it twice, where a queue changed hands before its offset was committed. */
    private static Set<String> consumed(Inbox one, Inbox two) {
        Set<String> bodies = new TreeSet<>(one.bodies());
        bodies.addAll(two.bodies());
        return bodies;
    }

    private static void send(Room room, int from) throws Exception {
        DefaultMQProducer producer = room.producer();
        for (int number = from; number < from + 2 * QUEUES; number++) {
            producer.send(room.message(number), new MessageQueue(room.topic, "broker-a", number % QUEUES));
        }
    }

    private static DefaultMQPushConsumer consumer(Room room, Inbox inbox, String instance, boolean orderly) throws Exception {
        DefaultMQPushConsumer consumer = room.push(room.topic, instance);
        consumer.subscribe(room.topic, "*");
        consumer.setPersistConsumerOffsetInterval(1000);
        if (orderly) {
            consumer.registerMessageListener(inbox.orderly);
        } else {
            consumer.registerMessageListener(inbox.concurrently);
        }
        return room.started(consumer);
    }

    private static Set<Integer> queues(Room room, DefaultMQPushConsumer consumer) {
        Set<Integer> found = new TreeSet<>();
        Map<MessageQueue, ?> table = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable();
        for (MessageQueue queue : table.keySet()) {
            if (queue.getTopic().equals(room.topic)) {
                found.add(queue.getQueueId());
            }
        }
        return found;
    }

    private static Set<Integer> queuesOf(Inbox inbox) {
        Set<Integer> found = new TreeSet<>();
        for (MessageExt message : inbox.all()) {
            found.add(message.getQueueId());
        }
        return found;
    }
}
