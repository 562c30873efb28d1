import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.TopologyRecoveryException;
import com.rabbitmq.client.impl.ForgivingExceptionHandler;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

/** A topology on RabbitMQ's Java client, which recovers it by itself. URL COUNT. */
public final class Topology {
    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[1]);
        AtomicInteger errors = new AtomicInteger();
        CountDownLatch recovered = new CountDownLatch(1);
        long[] began = new long[1];
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        factory.setNetworkRecoveryInterval(500);
        factory.setExceptionHandler(new ForgivingExceptionHandler() {
            @Override
            public void handleTopologyRecoveryException(Connection connection, Channel channel, TopologyRecoveryException exception) {
                errors.incrementAndGet();
            }
        });
        Connection connection = factory.newConnection();
        connection.addShutdownListener(cause -> began[0] = System.nanoTime());
        ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
            @Override
            public void handleRecovery(Recoverable recoverable) {
                recovered.countDown();
            }

            @Override
            public void handleRecoveryStarted(Recoverable recoverable) {
            }
        });
        Channel channel = connection.createChannel();
        for (int number = 0; number < count; number++) {
            channel.queueDeclare("topology." + number, false, true, false, null);
        }
        System.out.printf("{\"declared\": %d}%n", count);
        recovered.await();
        double seconds = (System.nanoTime() - began[0]) / 1e9;
        System.out.printf("{\"recovered\": %d, \"seconds\": %.3f, \"errors\": [%s]}%n", count, seconds, errors.get() > 0 ? errors : "");
        Thread.currentThread().join(); // until it is killed
    }
}
