import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * RocketMQ 5's gRPC client behind RocketMQ's Proxy.
 *
 * <pre>Grpc ENDPOINTS TOPIC GROUP COUNT ATTEMPTS WITHIN</pre>
 *
 * Sends COUNT messages one by one, ATTEMPTS times at most each, then receives and acks what was sent as GROUP, until it has all or WITHIN
 * seconds are over. Prints {"sent": 3, "refused": {"TooManyRequestsException": 2}, "received": 3}; what was received twice counts once.
 */
public final class Grpc {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[3]);
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0]).enableSsl(false).setRequestTimeout(Duration.ofSeconds(20)).build();
        Set<String> sent = new TreeSet<>();
        Map<String, Integer> refused = new TreeMap<>();
        try (Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(topic).setMaxAttempts(Integer.parseInt(arguments[4])).build()) {
            for (int number = 0; number < count; number++) {
                String body = "message " + number;
                try {
                    producer.send(provider.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8)).build());
                    sent.add(body);
                } catch (ClientException error) {
                    refused.merge(error.getClass().getSimpleName(), 1, Integer::sum);
                    System.err.println(error);
                }
            }
        }
        Set<String> received = new TreeSet<>();
        long end = System.nanoTime() + Long.parseLong(arguments[5]) * 1_000_000_000L;
        try (SimpleConsumer consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(arguments[2]).setAwaitDuration(Duration.ofSeconds(2))
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build()) {
            while (received.size() < sent.size() && System.nanoTime() < end) {
                for (MessageView message : consumer.receive(16, Duration.ofSeconds(60))) {
                    String body = StandardCharsets.UTF_8.decode(message.getBody()).toString();
                    if (sent.contains(body)) {
                        received.add(body);
                    }
                    consumer.ack(message);
                }
            }
        }
        StringBuilder reasons = new StringBuilder();
        refused.forEach((name, times) -> reasons.append(reasons.length() > 0 ? "," : "").append('"').append(name).append("\":").append(times));
        System.out.printf("{\"sent\":%d,\"refused\":{%s},\"received\":%d}%n", sent.size(), reasons, received.size());
        System.out.flush();
        System.exit(0);
    }
}
