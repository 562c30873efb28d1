import java.net.URI;
import org.springframework.amqp.AmqpException;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.connection.Connection;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.context.support.GenericApplicationContext;

/** A topology on Spring AMQP: queues are beans, which its RabbitAdmin declares whenever it has connected. URL COUNT. */
public final class Topology {
    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[1]);
        CachingConnectionFactory factory = new CachingConnectionFactory(URI.create(arguments[0]));
        GenericApplicationContext context = new GenericApplicationContext();
        for (int number = 0; number < count; number++) {
            String name = "topology." + number;
            context.registerBean(name, Queue.class, () -> new Queue(name, false, true, false));
        }
        context.refresh();
        RabbitAdmin admin = new RabbitAdmin(factory);
        admin.setApplicationContext(context);
        admin.afterPropertiesSet();
        Connection connection = factory.createConnection();
        System.out.printf("{\"declared\": %d}%n", count);
        while (connection.isOpen()) {
            Thread.sleep(50);
        }
        long began = System.nanoTime();
        while (true) {
            try {
                factory.createConnection();
                break;
            } catch (AmqpException exception) { // its broker is not there yet
                if (admin.getLastDeclarationExceptionEvent() != null) {
                    throw exception;
                }
                Thread.sleep(500);
            }
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        String fault = admin.getLastDeclarationExceptionEvent() == null ? "" : "\"" + admin.getLastDeclarationExceptionEvent() + "\"";
        System.out.printf("{\"recovered\": %d, \"seconds\": %.3f, \"errors\": [%s]}%n", count, seconds, fault);
        Thread.currentThread().join(); // until it is killed
    }
}
