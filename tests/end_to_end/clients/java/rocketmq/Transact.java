import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Consumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends transactional messages: of each three one is committed at once, one rolled back, and one left open until the broker asks.
 *
 * <pre>Transact NAMESRV RUN TOPIC COUNT SECONDS</pre>
 *
 * Ends when the broker has asked about every open one and has stored what is committed, or after SECONDS. Prints {"committed": [ids], "rolled_back": [ids], "asked":
 * [ids the broker asked about, answered with commit], "executed": local transactions run, "codes": {"215": refused}}.
 */
public final class Transact {
    static Runnable run(String[] arguments, Consumer<String> report) throws Exception {
        int count = Integer.parseInt(arguments[3]);
        long deadline = System.nanoTime() + (long) (Double.parseDouble(arguments[4]) * 1e9);
        Set<String> committed = Collections.synchronizedSet(new TreeSet<>());
        Set<String> rolledBack = Collections.synchronizedSet(new TreeSet<>());
        Set<String> open = Collections.synchronizedSet(new TreeSet<>());
        Set<String> asked = Collections.synchronizedSet(new TreeSet<>());
        Map<Integer, Integer> codes = new TreeMap<>();

        TransactionMQProducer producer = new TransactionMQProducer(arguments[1]);
        producer.setNamesrvAddr(arguments[0]);
        producer.setInstanceName(Jobs.instance("transact"));
        producer.setHeartbeatBrokerInterval(3000);
        producer.setSendMsgTimeout(Route.PATIENCE_MS);
        producer.setMqClientApiTimeout(Route.PATIENCE_MS);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object sequence) {
                String id = new String(message.getBody(), StandardCharsets.UTF_8);
                switch ((Integer) sequence % 3) {
                    case 0:
                        committed.add(id);
                        return LocalTransactionState.COMMIT_MESSAGE;
                    case 1:
                        rolledBack.add(id);
                        return LocalTransactionState.ROLLBACK_MESSAGE;
                    default:
                        open.add(id);
                        return LocalTransactionState.UNKNOW;
                }
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String id = new String(message.getBody(), StandardCharsets.UTF_8);
                asked.add(id);
                return rolledBack.contains(id) ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        Route.find(producer, arguments[2]);
        long before = stored(producer, arguments[2]);
        for (int sequence = 0; sequence < count; sequence++) {
            byte[] body = (arguments[1] + "-" + arguments[2] + "-0-" + sequence).getBytes(StandardCharsets.UTF_8);
            try {
                producer.sendMessageInTransaction(new Message(arguments[2], body), sequence);
            } catch (Exception error) {
                codes.merge(Produce.code(error), 1, Integer::sum);
            }
        }
        // The answers are one-way: what is stored says that they have come.
        while (!(asked.containsAll(open) && stored(producer, arguments[2]) - before >= committed.size() + open.size())
            && System.nanoTime() < deadline) {
            Thread.sleep(50);
        }
        List<String> questions = new ArrayList<>(asked);
        report.accept("{\"committed\": " + Produce.array(committed) + ", \"rolled_back\": " + Produce.array(rolledBack) + ", \"asked\": "
            + Produce.array(questions) + ", \"executed\": " + (committed.size() + rolledBack.size() + open.size())
            + ", \"codes\": " + Produce.object(codes) + "}");
        return producer::shutdown;
    }

    /** How many messages the topic holds; -1 where an answer is late. */
    private static long stored(TransactionMQProducer producer, String topic) throws Exception {
        long sum = 0;
        for (MessageQueue queue : Route.find(producer, topic)) {
            try {
                sum += producer.maxOffset(queue);
            } catch (MQClientException error) {
                return -1;
            }
        }
        return sum;
    }
}
