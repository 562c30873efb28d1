import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumers of several kinds at once, in one client and so on one connection to the broker, each from the first offset on.
 *
 * <pre>Consumers NAMESRV SECONDS WAY:GROUP:TOPIC:EXPECTED...</pre>
 *
 * WAY is push, lite (lite pull) or pop. Ends when each consumer has seen EXPECTED different messages, or after SECONDS; with EXPECTED 0
 * after SECONDS. Prints a line for each: {"topic": t, "consumed": [ids in the order of consumption], "at_ms": [since the start, of each]}.
 */
public final class Consumers {
    private final String topic;
    private final int expected;
    private final List<String> consumed = Collections.synchronizedList(new ArrayList<>());
    private final List<String> times = Collections.synchronizedList(new ArrayList<>());
    private final Set<String> distinct = ConcurrentHashMap.newKeySet();
    private final long began;

    private Consumers(String topic, int expected, long began) {
        this.topic = topic;
        this.expected = expected;
        this.began = began;
    }

    public static void main(String[] arguments) throws Exception {
        long began = System.nanoTime();
        long deadline = began + (long) (Double.parseDouble(arguments[1]) * 1e9);
        List<Consumers> all = new ArrayList<>();
        for (int number = 2; number < arguments.length; number++) {
            String[] words = arguments[number].split(":");
            Consumers one = new Consumers(words[2], Integer.parseInt(words[3]), began);
            all.add(one);
            if (words[0].equals("lite")) {
                one.pull(arguments[0], words[1]);
            } else {
                one.push(arguments[0], words[1], words[0].equals("pop"));
            }
        }
        while (!all.stream().allMatch(Consumers::done) && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        for (Consumers one : all) {
            synchronized (one.consumed) {
                System.out.println("{\"topic\": " + Produce.quoted(one.topic) + ", \"consumed\": " + Produce.array(new ArrayList<>(one.consumed))
                    + ", \"at_ms\": [" + String.join(", ", one.times) + "]}");
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private boolean done() {
        return expected > 0 && distinct.size() >= expected;
    }

    private void note(MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        int end = body.indexOf('.');
        String id = end < 0 ? body : body.substring(0, end);
        synchronized (consumed) {
            consumed.add(id);
            times.add(Long.toString((System.nanoTime() - began) / 1_000_000));
        }
        distinct.add(id);
    }

    private static String instance() {
        return "consumers-" + ProcessHandle.current().pid();
    }

    private void push(String nameServer, String group, boolean pop) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(instance());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(3000);
        consumer.setPollNameServerInterval(2000);
        if (pop) { // since 5.0; the broker must have been told that the group pops
            consumer.getClass().getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(this::note);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        Route.start(consumer);
    }

    private void pull(String nameServer, String group) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(instance());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(3000);
        consumer.setPollNameServerInterval(2000);
        consumer.subscribe(topic, "*");
        consumer.start();
        Thread poller = new Thread(() -> {
            while (true) {
                consumer.poll(200).forEach(this::note);
            }
        });
        poller.setDaemon(true);
        poller.start();
    }
}
