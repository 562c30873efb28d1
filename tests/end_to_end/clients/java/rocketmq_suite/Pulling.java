import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask: lite pull (subscribe, assign), plain pull, offsets, and messages sent back by hand. */
final class Pulling {
    static void register(Cases cases) {
        cases.add("pull_blocked", Pulling::blocked).queues(1);
        cases.add("lite_subscribe", Pulling::subscribe).consumes();
        cases.add("lite_assign", Pulling::assign);
        cases.add("pull", Pulling::plain).queues(1);
        cases.add("offsets", Pulling::offsets).queues(1);
        cases.add("send_back_by_broker_name", room -> sendBack(room, "broker-a")).queues(1).consumes();
        cases.add("send_back_by_store_host", room -> sendBack(room, null)).queues(1).consumes();
    }

    private static List<String> poll(DefaultLitePullConsumer consumer, int count) throws Exception {
        List<String> bodies = new ArrayList<>();
        Waiting.until(count + " messages polled", () -> {
            consumer.poll(200).forEach(message -> bodies.add(Room.body(message)));
            return bodies.size() >= count;
        });
        return bodies;
    }

    private static List<String> pollUntil(DefaultLitePullConsumer consumer, String last) throws Exception {
        List<String> bodies = new ArrayList<>();
        Waiting.until(last + " polled", () -> {
            consumer.poll(200).forEach(message -> bodies.add(Room.body(message)));
            return bodies.contains(last);
        });
        return bodies;
    }

    private static void subscribe(Room room) throws Exception {
        Pushing.fill(room, 40);
        DefaultLitePullConsumer consumer = room.lite();
        consumer.setAutoCommit(false);
        consumer.subscribe(room.topic, "*");
        room.started(consumer);
        List<String> bodies = poll(consumer, 40);
        bodies.sort(null);
        room.expect("polled", Room.bodies(0, 40), bodies);
        Map<MessageQueue, Long> offsets = new HashMap<>();
        for (MessageQueue queue : consumer.assignment()) {
            offsets.put(queue, 10L);
        }
        consumer.commitSync(offsets, true); // without this map they go to the broker only every 5 s
        Waiting.until("offsets are committed", () -> committed(room).toString().equals("{0=10, 1=10, 2=10, 3=10}"));
        room.fact("committed", committed(room));
    }

    /** The offsets of the case's group as the broker has them, by queue. */
    private static Map<Integer, Long> committed(Room room) throws Exception {
        Map<Integer, Long> offsets = new TreeMap<>();
        room.admin().examineConsumeStats(room.topic).getOffsetTable().forEach((queue, offset) -> {
            if (queue.getTopic().equals(room.topic)) {
                offsets.put(queue.getQueueId(), offset.getConsumerOffset());
            }
        });
        return offsets;
    }

    private static void assign(Room room) throws Exception {
        Pushing.fill(room, 40);
        DefaultLitePullConsumer consumer = room.lite();
        consumer.setAutoCommit(false);
        room.started(consumer);
        Collection<MessageQueue> all = consumer.fetchMessageQueues(room.topic);
        List<MessageQueue> mine = new ArrayList<>();
        all.stream().filter(queue -> queue.getQueueId() == 1).forEach(mine::add);
        consumer.assign(mine);
        consumer.seek(mine.get(0), 4);
        room.expect("queues", 4, all.size());
        List<String> polled = pollUntil(consumer, "body-37"); // pulls begin with the assignment: some from before the seek may come first
        room.expect("polled in the end", "[body-17, body-21, body-25, body-29, body-33, body-37]",
            polled.subList(polled.size() - 6, polled.size()));
        // A seek interrupts the thread that pulls. Where that thread is about to send, this client closes its own connection, and whatever
        // waits for an answer on it fails (5.5.0: so in 8 of 272 runs on a busy machine, directly as often as through a gateway).
        Waiting.until("the first of all time is looked up", () -> {
            room.expect("offset of the first of all time", 0, consumer.offsetForTimestamp(mine.get(0), 0L));
            return true;
        });
        Waiting.until("the consumer is at the beginning again", () -> {
            consumer.seekToBegin(mine.get(0));
            return true;
        });
        room.expect("polled again", 10, new TreeSet<>(pollUntil(consumer, "body-37")).size());
    }

    private static void plain(Room room) throws Exception {
        room.producer().send(room.message(0));
        room.producer().send(room.message(1));
        room.read(room.topic, 2); // a message is acknowledged a moment before it can be pulled
        DefaultMQPullConsumer consumer = room.pull(room.topic);
        MessageQueue queue = new MessageQueue(room.topic, "broker-a", 0);
        for (long offset : new long[] {0, 1, 2, 5}) {
            PullResult result = consumer.pull(queue, "*", offset, 1);
            int found = result.getMsgFoundList() == null ? 0 : result.getMsgFoundList().size();
            room.fact("from " + offset, result.getPullStatus() + " next " + result.getNextBeginOffset() + " min " + result.getMinOffset()
                + " max " + result.getMaxOffset() + " found " + found);
        }
        room.expect("tag without messages", "NO_MATCHED_MSG", consumer.pull(queue, "other", 0, 32).getPullStatus().toString());
    }

    /** One pull waits at the broker, and is answered when a message comes; then one that nothing comes for. */
    private static void blocked(Room room) throws Exception {
        DefaultMQPullConsumer consumer = room.pull(room.topic);
        MessageQueue queue = new MessageQueue(room.topic, "broker-a", 0);
        CompletableFuture<PullResult> held = CompletableFuture.supplyAsync(() -> {
            try {
                return consumer.pullBlockIfNotFound(queue, "*", 0, 32);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
        Thread.sleep(1500);
        room.expect("answered without a message", false, held.isDone());
        room.producer().send(room.message(0));
        PullResult result = held.get(2 * Setup.PATIENCE_MS, TimeUnit.MILLISECONDS);
        room.expect("answered", "FOUND", result.getPullStatus().toString());
        room.expect("with", "body-0", Room.body(result.getMsgFoundList().get(0)));
        consumer.setBrokerSuspendMaxTimeMillis(1000);
        room.expect("nothing came", "NO_NEW_MSG", consumer.pullBlockIfNotFound(queue, "*", 1, 32).getPullStatus().toString());
    }

    private static void offsets(Room room) throws Exception {
        for (int number = 0; number < 5; number++) {
            room.producer().send(room.message(number));
            Thread.sleep(30); // different times of storing
        }
        List<MessageExt> stored = room.read(room.topic, 5).get(0);
        DefaultMQPullConsumer consumer = room.pull(room.topic);
        MessageQueue queue = new MessageQueue(room.topic, "broker-a", 0);
        room.expect("min", 0, consumer.minOffset(queue));
        room.expect("max", 5, consumer.maxOffset(queue));
        room.expect("at the third's time", 2, consumer.searchOffset(queue, stored.get(2).getStoreTimestamp()));
        room.expect("at the beginning of time", 0, consumer.searchOffset(queue, 1));
        room.expect("at the end of time", 5, consumer.searchOffset(queue, System.currentTimeMillis() + 3_600_000));
        room.expect("earliest is the first's", true, consumer.earliestMsgStoreTime(queue) == stored.get(0).getStoreTimestamp());
        room.fact("before any commit", consumer.fetchConsumeOffset(queue, true));
        Waiting.until("the offset is committed", () -> {
            consumer.updateConsumeOffset(queue, 3);
            consumer.getOffsetStore().persistAll(new HashSet<>(List.of(queue))); // one-way
            return committed(room).getOrDefault(0, 0L) == 3;
        });
        room.expect("after the commit", 3, consumer.fetchConsumeOffset(queue, true));
        var table = room.admin().examineConsumeStats(room.topic).getOffsetTable();
        TreeSet<String> lags = new TreeSet<>();
        table.forEach((of, offset) -> lags.add(of.getTopic() + " " + offset.getBrokerOffset() + "-" + offset.getConsumerOffset()));
        room.expect("lag", "[" + room.topic + " 5-3]", lags);
    }

    private static void sendBack(Room room, String brokerName) throws Exception {
        room.producer().send(room.message(0));
        MessageExt message = room.read(room.topic, 1).get(0).get(0);
        room.pull(room.topic).sendMessageBack(message, 1, brokerName, room.topic);
        MessageExt again = room.read("%RETRY%" + room.topic, 1).get(0).get(0);
        room.expect("body", "body-0", Room.body(again));
        room.expect("origin", room.topic, again.getProperty("RETRY_TOPIC"));
        room.expect("times", 1, again.getReconsumeTimes());
    }
}
