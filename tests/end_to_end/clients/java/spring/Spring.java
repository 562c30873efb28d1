import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer;

/**
 * Spring AMQP as an application has it: a template with correlated confirms and returns, and a listener container beside it.
 *
 * <pre>Spring publish URL COUNT LIMITED FREE | Spring listen URL QUEUE SECONDS | Spring fail URL QUEUE SECONDS COUNT</pre>
 *
 * `publish` sends COUNT messages to the queue LIMITED, COUNT more with `mandatory`, and one to FREE, and consumes LIMITED all the while.
 * It prints one line: a letter for each message (A acked, N nacked, R nacked and returned), what the first refusal said, and how many
 * came to the listener. `listen` starts a container alone and prints what came of it, once one message is there or the time is over;
 * `fail` once COUNT are, of which its listener fails on each that comes for the first time.
 */
public final class Spring {
    private static final long PATIENCE_S = 60;

    public static void main(String[] arguments) throws Exception {
        CachingConnectionFactory factory = new CachingConnectionFactory(URI.create(arguments[1]));
        if (arguments[0].equals("publish")) {
            publish(factory, Integer.parseInt(arguments[2]), arguments[3], arguments[4]);
        } else {
            boolean fails = arguments[0].equals("fail");
            listen(factory, arguments[2], Long.parseLong(arguments[3]), fails, fails ? Integer.parseInt(arguments[4]) : 1);
        }
        factory.destroy();
        System.exit(0);
    }

    private static SimpleMessageListenerContainer listener(CachingConnectionFactory factory, String queue, boolean fails,
                                                           AtomicInteger received) {
        SimpleMessageListenerContainer container = new SimpleMessageListenerContainer(factory);
        container.setQueueNames(queue);
        container.setMessageListener(message -> {
            received.incrementAndGet();
            if (fails && !message.getMessageProperties().isRedelivered()) {
                throw new IllegalStateException("for the first time");
            }
        });
        container.setRecoveryInterval(500);
        container.setReceiveTimeout(200);
        container.start();
        return container;
    }

    private static void publish(CachingConnectionFactory factory, int count, String limited, String free) throws Exception {
        factory.setPublisherConfirmType(CachingConnectionFactory.ConfirmType.CORRELATED);
        factory.setPublisherReturns(true);
        RabbitTemplate template = new RabbitTemplate(factory);
        AtomicInteger received = new AtomicInteger();
        SimpleMessageListenerContainer container = listener(factory, limited, false, received);
        List<CorrelationData> plain = send(template, limited, count, false);
        List<CorrelationData> mandatory = send(template, limited, count, true);
        List<CorrelationData> other = send(template, free, 1, true);
        String letters = letters(plain) + "|" + letters(mandatory) + "|" + letters(other);
        long acked = letters.chars().filter(letter -> letter == 'A').count() - 1; // one went to the other queue
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (received.get() < acked && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        String said = "";
        for (CorrelationData one : mandatory) {
            if (one.getReturned() != null) {
                said = one.getReturned().getReplyCode() + " " + one.getReturned().getReplyText();
            }
        }
        System.out.printf("{\"letters\": \"%s\", \"said\": \"%s\", \"received\": %d, \"running\": %b}%n",
            letters, said.replace("\"", "'"), received.get(), container.isRunning());
        container.stop();
    }

    private static List<CorrelationData> send(RabbitTemplate template, String queue, int count, boolean mandatory) {
        template.setMandatory(mandatory);
        List<CorrelationData> sent = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            CorrelationData one = new CorrelationData(queue + mandatory + number);
            template.convertAndSend("", queue, "message " + number, one);
            sent.add(one);
        }
        return sent;
    }

    private static String letters(List<CorrelationData> sent) throws Exception {
        StringBuilder letters = new StringBuilder();
        for (CorrelationData one : sent) {
            boolean acked = one.getFuture().get(PATIENCE_S, TimeUnit.SECONDS).ack();
            letters.append(acked ? 'A' : one.getReturned() == null ? 'N' : 'R');
        }
        return letters.toString();
    }

    private static void listen(CachingConnectionFactory factory, String queue, long seconds, boolean fails, int count) throws Exception {
        AtomicInteger received = new AtomicInteger();
        SimpleMessageListenerContainer container = listener(factory, queue, fails, received);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (received.get() < count && container.isRunning() && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        System.out.printf("{\"received\": %d, \"running\": %b}%n", received.get(), container.isRunning());
        container.stop();
    }
}
