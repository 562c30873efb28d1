import java.util.List;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;

/** Where a topic is. */
final class Route {
    private static final long PATIENCE_NS = 120_000_000_000L;

    /** Asks until there is an answer: the client gives the name server three seconds, too little on a busy machine. */
    static List<MessageQueue> find(DefaultMQProducer producer, String topic) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_NS;
        while (true) {
            try {
                return producer.fetchPublishMessageQueues(topic);
            } catch (MQClientException error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(200);
            }
        }
    }
}
