import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.RejectedExecutionHandler;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * An application with several topics that sends to each at a steady rate, synchronously, and says each second what it saw. It retries
 * once: the broker sheds what has waited at moments 10 ms apart, so a client that was shed tries again right after such a moment, and with
 * the client's usual two retries hardly any send fails on a fast machine; it takes 0.3 s instead of 0.003.
 *
 * <pre>Steady NAMESRV GROUP RATE SECONDS SIZE TOPIC...</pre>
 *
 * A few threads per topic, as a web application has, so that a slow send does not keep the next from its time; what is due while all of
 * them wait is left out. All go over one connection. A line of JSON for every second of the wall clock that is over, of the sends that ended in it:
 * {"second": s, "topics": {"T": {"ms": [how long each took that succeeded], "failed_ms": [.. that failed], "codes": {"2": n}}}}.
 * Codes are those of Produce.java. It ends by itself after SECONDS.
 */
public final class Steady {
    private static final int THREADS = 4; // per topic: at 15 sends a second each may take 260 ms
    private static final long GRACE_MS = 100; // of a second that is over, its sends may still be recorded so late

    public static void main(String[] arguments) throws Exception {
        double rate = Double.parseDouble(arguments[2]);
        double seconds = Double.parseDouble(arguments[3]);
        byte[] body = "x".repeat(Integer.parseInt(arguments[4])).getBytes(StandardCharsets.UTF_8);
        List<String> topics = Arrays.asList(arguments).subList(5, arguments.length);
        DefaultMQProducer producer = new DefaultMQProducer(arguments[1]);
        producer.setNamesrvAddr(arguments[0]);
        producer.setRetryTimesWhenSendFailed(1);
        producer.setInstanceName(arguments[1] + "-" + ProcessHandle.current().pid());
        producer.start();
        for (String topic : topics) {
            Route.find(producer, topic);
        }
        ConcurrentLinkedQueue<Sent> ended = new ConcurrentLinkedQueue<>();
        Thread reporter = new Thread(() -> report(topics, ended));
        reporter.setDaemon(true);
        reporter.start();
        Map<String, ExecutorService> threads = new LinkedHashMap<>();
        for (String topic : topics) {
            RejectedExecutionHandler leaveOut = new ThreadPoolExecutor.DiscardPolicy();
            threads.put(topic, new ThreadPoolExecutor(THREADS, THREADS, 0, TimeUnit.SECONDS, new SynchronousQueue<>(), leaveOut));
        }
        long first = System.nanoTime();
        for (long number = 0; number < seconds * rate * topics.size(); number++) { // the topics take turns
            String topic = topics.get((int) (number % topics.size()));
            long due = first + (long) (number / rate / topics.size() * 1e9);
            long early;
            while ((early = due - System.nanoTime()) > 0) {
                LockSupport.parkNanos(early);
            }
            threads.get(topic).execute(() -> ended.add(send(producer, new Message(topic, body))));
        }
        Thread.sleep(5000); // no send takes longer; and the last line
        Runtime.getRuntime().halt(0); // an orderly shutdown takes seconds and is not what is measured
    }

    private static Sent send(DefaultMQProducer producer, Message message) {
        long began = System.nanoTime();
        int code = 0;
        try {
            producer.send(message);
        } catch (Exception error) {
            code = Produce.code(error);
        }
        return new Sent(message.getTopic(), System.nanoTime() - began, code);
    }

    private static void report(List<String> topics, ConcurrentLinkedQueue<Sent> ended) {
        for (long second = System.currentTimeMillis() / 1000;; second++) {
            long over = (second + 1) * 1000;
            LockSupport.parkNanos(Math.max(0, over + GRACE_MS - System.currentTimeMillis()) * 1_000_000);
            Map<String, Seen> seen = new LinkedHashMap<>();
            topics.forEach(topic -> seen.put(topic, new Seen()));
            Sent sent;
            while ((sent = ended.peek()) != null && sent.endedMs < over) {
                seen.get(ended.poll().topic).add(sent);
            }
            List<String> lines = new ArrayList<>();
            seen.forEach((topic, each) -> lines.add(Produce.quoted(topic) + ": " + each.report()));
            System.out.println("{\"second\": " + second + ", \"topics\": {" + String.join(", ", lines) + "}}");
            System.out.flush();
        }
    }

    /** One send that is over. */
    private static final class Sent {
        final long endedMs = System.currentTimeMillis();
        final String topic;
        final long tookNs;
        final int code;

        Sent(String topic, long tookNs, int code) {
            this.topic = topic;
            this.tookNs = tookNs;
            this.code = code;
        }
    }

    /** One topic's second. */
    private static final class Seen {
        final List<String> taken = new ArrayList<>();
        final List<String> failed = new ArrayList<>();
        final Map<Integer, Integer> codes = new LinkedHashMap<>();

        void add(Sent sent) {
            (sent.code == 0 ? taken : failed).add(String.format(Locale.ROOT, "%.2f", sent.tookNs / 1e6));
            if (sent.code != 0) {
                codes.merge(sent.code, 1, Integer::sum);
            }
        }

        String report() {
            return "{\"ms\": [" + String.join(", ", taken) + "], \"failed_ms\": [" + String.join(", ", failed) + "], \"codes\": "
                + Produce.object(codes) + "}";
        }
    }
}
