import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.ServiceState;
import org.apache.rocketmq.common.message.MessageQueue;

/** Where a topic is, on a machine whose name server is slow at times. */
final class Route {
    static final int PATIENCE_MS = 120_000; // where how long a busy machine takes is not what is tested; the client's own is 3 s

    /** Asks until there is an answer: the client gives the name server three seconds, too little on a busy machine. */
    static List<MessageQueue> find(DefaultMQProducer producer, String topic) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000L;
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

    /** Starts a consumer, which asks again every poll interval where the name server was too slow for its first question. */
    static void start(DefaultMQPushConsumer consumer) throws MQClientException {
        try {
            consumer.start();
        } catch (IllegalStateException error) {
            if (consumer.getDefaultMQPushConsumerImpl().getServiceState() != ServiceState.RUNNING) {
                throw error;
            }
        }
    }
}
