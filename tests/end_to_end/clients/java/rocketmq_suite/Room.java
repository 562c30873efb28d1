import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What one case works in: names of its own, clients that are shut down when it ends, and the facts it has found. */
final class Room {
    final Setup setup;
    final String topic; // the group's name as well
    final String lane;
    private final Case given;
    private final Map<String, Object> facts = new TreeMap<>();
    private final List<String> troubles = new ArrayList<>();
    private final Deque<Runnable> ending = new ArrayDeque<>();
    private DefaultMQProducer producer;

    Room(Setup setup, Case given) {
        this.setup = setup;
        this.given = given;
        topic = setup.topic(given.name);
        lane = setup.lane();
    }

    /** Runs the case; returns its line of JSON. */
    String use() {
        try {
            given.body.run(this);
        } catch (Throwable error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            trouble(trace.toString());
        }
        for (Runnable end : ending) {
            end.run();
        }
        Map<String, Object> line = new LinkedHashMap<>();
        synchronized (this) {
            line.put("run", setup.run);
            line.put("case", given.name);
            line.put("outcome", troubles.isEmpty() ? "ok" : "failed");
            line.put("facts", facts);
            line.put("trouble", troubles);
            return JSON.toJSONString(line, SerializerFeature.MapSortField, SerializerFeature.WriteMapNullValue,
                SerializerFeature.DisableCircularReferenceDetect);
        }
    }

    // ---- facts -------------------------------------------------------------------------------------------------------

    /** A fact that is compared with what the other way says. */
    synchronized void fact(String name, Object value) {
        facts.put(name, normal(value));
    }

    /** A fact that is known beforehand: the case fails where it is another. */
    synchronized void expect(String name, Object expected, Object actual) {
        fact(name, actual);
        if (!Objects.equals(String.valueOf(expected), String.valueOf(actual))) {
            trouble(name + ": expected " + normal(expected) + ", was " + normal(actual));
        }
    }

    synchronized void trouble(String text) {
        troubles.add(text);
    }

    /** As JSON, without what differs from run to run: the run's name, and addresses. */
    private Object normal(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return value;
        }
        if (value instanceof Map) {
            Map<String, Object> normal = new TreeMap<>();
            ((Map<?, ?>) value).forEach((key, each) -> normal.put(String.valueOf(normal(String.valueOf(key))), normal(each)));
            return normal;
        }
        if (value instanceof Collection) {
            List<Object> normal = new ArrayList<>();
            ((Collection<?>) value).forEach(each -> normal.add(normal(each)));
            return normal;
        }
        String text = String.valueOf(value).replace(setup.run, "RUN");
        String named = setup.broker() == null ? text : text.replace(setup.broker(), "BROKER");
        return named.replaceAll("\\d+\\.\\d+\\.\\d+\\.\\d+:\\d+", "ADDRESS");
    }

    // ---- clients -----------------------------------------------------------------------------------------------------

    DefaultMQAdminExt admin() {
        return setup.admin;
    }

    /** The case's own producer, on its lane. */
    synchronized DefaultMQProducer producer() throws Exception {
        if (producer == null) {
            producer = new DefaultMQProducer(topic, setup.credentials());
            setup.configure(producer, lane);
            started(producer);
        }
        return producer;
    }

    DefaultMQProducer started(DefaultMQProducer producer) throws Exception {
        producer.setSendMsgTimeout(Setup.PATIENCE_MS);
        producer.start();
        ending.push(producer::shutdown);
        return producer;
    }

    /**
     * Waits until the broker answers on the producer's own connection. What comes first on a new one may take a busy machine longer than a
     * broker waits before it asks about a transaction.
     */
    void connected(DefaultMQProducer producer) throws Exception {
        Waiting.until("an answer to " + producer.getProducerGroup(), () -> producer.maxOffset(new MessageQueue(topic, "broker-a", 0)) >= 0);
    }

    TransactionMQProducer transactionProducer() {
        TransactionMQProducer producer = new TransactionMQProducer(topic, setup.credentials());
        setup.configure(producer, lane);
        return producer;
    }

    DefaultMQPushConsumer push(String group, String instance) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, setup.credentials(), new AllocateMessageQueueAveragely());
        return configured(consumer, instance);
    }

    DefaultMQPushConsumer configured(DefaultMQPushConsumer consumer, String instance) {
        setup.configure(consumer, instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        return consumer;
    }

    DefaultMQPushConsumer started(DefaultMQPushConsumer consumer) throws Exception {
        consumer.start();
        ending.push(consumer::shutdown);
        return consumer;
    }

    DefaultLitePullConsumer lite() {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(topic, setup.credentials());
        setup.configure(consumer, lane);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullThreadNums(2);
        return consumer;
    }

    DefaultLitePullConsumer started(DefaultLitePullConsumer consumer) throws Exception {
        consumer.start();
        ending.push(consumer::shutdown);
        return consumer;
    }

    DefaultMQPullConsumer pull(String group) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, setup.credentials());
        setup.configure(consumer, lane);
        consumer.setConsumerPullTimeoutMillis(Setup.PATIENCE_MS);
        consumer.setBrokerSuspendMaxTimeMillis(Setup.PATIENCE_MS);
        consumer.setConsumerTimeoutMillisWhenSuspend(2 * Setup.PATIENCE_MS);
        consumer.start();
        ending.push(consumer::shutdown);
        return consumer;
    }

    // ---- messages ----------------------------------------------------------------------------------------------------

    Message message(int number) {
        return message(topic, number);
    }

    Message message(String to, int number) {
        return new Message(to, "tag", topic + "-key-" + number, ("body-" + number).getBytes(StandardCharsets.UTF_8));
    }

    static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    static List<String> bodies(int from, int to) {
        List<String> bodies = new ArrayList<>();
        for (int number = from; number < to; number++) {
            bodies.add("body-" + number);
        }
        bodies.sort(null);
        return bodies;
    }

    DefaultMQPullConsumer reader() {
        return setup.reader(lane);
    }

    /** How many messages a topic holds; asks again where an answer is late. */
    int stored(String of) throws Exception {
        int[] sum = new int[1];
        Waiting.until("the offsets of " + of, () -> {
            sum[0] = 0;
            for (MessageQueue queue : reader().fetchSubscribeMessageQueues(of)) {
                sum[0] += reader().maxOffset(queue) - reader().minOffset(queue);
            }
            return true;
        });
        return sum[0];
    }

    /**
     * Everything a topic holds once that are `count` messages: by queue, in order of their offsets. Asks again where the client has given its
     * connection up, which the cases of a lane share.
     */
    Map<Integer, List<MessageExt>> read(String of, int count) throws Exception {
        Waiting.until(count + " messages in " + of, () -> stored(of) >= count);
        Map<Integer, List<MessageExt>> found = new TreeMap<>();
        Waiting.until("reading " + of, () -> {
            found.clear();
            for (MessageQueue queue : reader().fetchSubscribeMessageQueues(of)) {
                found.put(queue.getQueueId(), read(queue));
            }
            return true;
        });
        return found;
    }

    private List<MessageExt> read(MessageQueue queue) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        long offset = reader().minOffset(queue);
        long end = reader().maxOffset(queue);
        while (offset < end) {
            PullResult result = reader().pull(queue, "*", offset, 32);
            if (result.getMsgFoundList() != null) {
                messages.addAll(result.getMsgFoundList());
            }
            offset = result.getNextBeginOffset();
        }
        return messages;
    }

    /** The bodies of everything a topic holds, sorted. */
    List<String> readBodies(String of, int count) throws Exception {
        List<String> bodies = new ArrayList<>();
        read(of, count).values().forEach(messages -> messages.forEach(message -> bodies.add(body(message))));
        bodies.sort(null);
        return bodies;
    }
}
