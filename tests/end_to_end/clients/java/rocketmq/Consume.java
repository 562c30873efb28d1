import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer from the first offset on.
 *
 * <pre>Consume NAMESRV GROUP TOPIC[,TOPIC...] EXPECTED SECONDS concurrently|orderly</pre>
 *
 * Ends when EXPECTED different messages were consumed, or after SECONDS. EXPECTED may be the name of a file that will hold the number.
 * Prints {"consumed": ["RUN-TOPIC-CONNECTION-SEQUENCE", ... in the order of consumption]}.
 */
public final class Consume {
    static Runnable run(String[] arguments, Consumer<String> report) throws Exception {
        long deadline = System.nanoTime() + (long) (Double.parseDouble(arguments[4]) * 1e9);
        List<String> consumed = Collections.synchronizedList(new ArrayList<>());
        Set<String> distinct = Collections.synchronizedSet(new TreeSet<>());

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[1]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setInstanceName(Jobs.instance("consume"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(3000);
        consumer.setPollNameServerInterval(2000);
        for (String topic : arguments[2].split(",")) {
            consumer.subscribe(topic, "*");
        }
        if (arguments[5].equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> note(message, consumed, distinct));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> note(message, consumed, distinct));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        Route.start(consumer);
        while (distinct.size() < expected(arguments[3]) && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        consumer.shutdown(); // commits the offsets and leaves the group
        report.accept("{\"consumed\": " + Produce.array(new ArrayList<>(consumed)) + "}");
        return () -> { };
    }

    private static int expected(String word) throws Exception {
        if (word.matches("[0-9]+")) {
            return Integer.parseInt(word);
        }
        Path file = Path.of(word);
        return Files.exists(file) ? Integer.parseInt(Files.readString(file)) : Integer.MAX_VALUE;
    }

    private static void note(MessageExt message, List<String> consumed, Set<String> distinct) {
        consumed.add(id(message));
        distinct.add(id(message));
    }

    private static String id(MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        int end = body.indexOf('.');
        return end < 0 ? body : body.substring(0, end);
    }
}
