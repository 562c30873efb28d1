import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/** What a push consumer was given, in the order in which it came. */
final class Inbox {
    private final List<MessageExt> messages = new ArrayList<>();

    /** Takes everything. */
    final MessageListenerConcurrently concurrently = this::concurrently;
    final MessageListenerOrderly orderly = this::orderly;

    synchronized void add(MessageExt message) {
        messages.add(message);
    }

    synchronized int size() {
        return messages.size();
    }

    synchronized List<MessageExt> all() {
        return new ArrayList<>(messages);
    }

    /** All bodies, sorted: concurrent consumption has no order. */
    List<String> bodies() {
        List<String> bodies = new ArrayList<>();
        all().forEach(message -> bodies.add(Room.body(message)));
        bodies.sort(null);
        return bodies;
    }

    /** The bodies by queue, in the order in which they came. */
    Map<Integer, List<String>> byQueue() {
        Map<Integer, List<String>> found = new TreeMap<>();
        all().forEach(message -> found.computeIfAbsent(message.getQueueId(), queue -> new ArrayList<>()).add(Room.body(message)));
        return found;
    }

    void await(int count) throws Exception {
        Waiting.until(count + " messages consumed", () -> size() >= count);
    }

    /** Waits for that many, and a moment more: there must not be more of them. */
    void awaitExactly(int count) throws Exception {
        await(count);
        Thread.sleep(500);
    }

    private ConsumeConcurrentlyStatus concurrently(List<MessageExt> given, ConsumeConcurrentlyContext context) {
        given.forEach(this::add);
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    private ConsumeOrderlyStatus orderly(List<MessageExt> given, ConsumeOrderlyContext context) {
        given.forEach(this::add);
        return ConsumeOrderlyStatus.SUCCESS;
    }
}
