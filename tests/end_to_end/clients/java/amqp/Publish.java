import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * A publisher that handles confirms as the client's own tutorial does: in batches, by clearing the head of a sorted map.
 *
 * <pre>Publish URL EXCHANGE KEY RUN COUNT SIZE WINDOW [EVERY KEY_OF_EVERY]</pre>
 *
 * Prints {"sent": 3, "outcomes": ["AN?"], "multiple": 1, "elapsed_s": 0.1}: one letter per message in the order of publishing,
 * A acked, N nacked, ? no answer; and how many answers covered several messages. Message ids are RUN-0-SEQUENCE. Every EVERYth message
 * goes to KEY_OF_EVERY.
 */
public final class Publish {
    public static void main(String[] arguments) throws Exception {
        String exchange = arguments[1];
        String key = arguments[2];
        String run = arguments[3];
        int count = Integer.parseInt(arguments[4]);
        byte[] padding = new byte[Integer.parseInt(arguments[5])];
        Arrays.fill(padding, (byte) '.');
        int every = arguments.length > 7 ? Integer.parseInt(arguments[7]) : 0;
        Semaphore room = new Semaphore(Integer.parseInt(arguments[6]));

        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        factory.setAutomaticRecoveryEnabled(false);
        char[] outcomes = new char[count];
        Arrays.fill(outcomes, '?');
        ConcurrentNavigableMap<Long, Integer> outstanding = new ConcurrentSkipListMap<>();
        int[] multiples = {0};
        long started = System.nanoTime();
        try (Connection connection = factory.newConnection()) {
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            channel.addConfirmListener(
                (tag, multiple) -> settle(outstanding, outcomes, room, multiples, tag, multiple, 'A'),
                (tag, multiple) -> settle(outstanding, outcomes, room, multiples, tag, multiple, 'N'));
            for (int sequence = 0; sequence < count; sequence++) {
                room.acquire();
                String id = run + "-0-" + sequence;
                byte[] body = padding.clone();
                byte[] start = id.getBytes(StandardCharsets.UTF_8);
                System.arraycopy(start, 0, body, 0, Math.min(start.length, body.length));
                AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder().messageId(id).build();
                outstanding.put(channel.getNextPublishSeqNo(), sequence);
                String route = every > 0 && (sequence + 1) % every == 0 ? arguments[8] : key;
                channel.basicPublish(exchange, route, properties, body);
            }
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(240);
            while (!outstanding.isEmpty() && System.nanoTime() < deadline) {
                Thread.sleep(2);
            }
        }
        System.out.printf("{\"sent\": %d, \"outcomes\": [\"%s\"], \"multiple\": %d, \"elapsed_s\": %.3f}%n",
            count, new String(outcomes), multiples[0], (System.nanoTime() - started) / 1e9);
        System.exit(0);
    }

    private static void settle(ConcurrentNavigableMap<Long, Integer> outstanding, char[] outcomes, Semaphore room, int[] multiples,
                               long tag, boolean multiple, char outcome) {
        if (multiple) {
            multiples[0]++;
            ConcurrentNavigableMap<Long, Integer> head = outstanding.headMap(tag, true);
            head.values().forEach(sequence -> {
                outcomes[sequence] = outcome;
                room.release();
            });
            head.clear();
        } else {
            Integer sequence = outstanding.remove(tag);
            if (sequence != null) {
                outcomes[sequence] = outcome;
                room.release();
            }
        }
    }
}
