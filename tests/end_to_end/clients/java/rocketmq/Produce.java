import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends messages in every way the client knows, and says for each what the application saw.
 *
 * <pre>Produce NAMESRV RUN CONNECTIONS VIP TLS TIMEOUT JOB...</pre>
 *
 * A job is `topic=T,mode=sync|async|oneway|batch|ordered,count=N,seconds=S,rate=R,size=B,batch=K,threads=P`; all jobs run at once, on
 * every connection (one client instance each) with P threads; `count` and `rate` are per thread. Bodies begin with
 * RUN-TOPIC-NUMBER-SEQUENCE, where NUMBER counts the job's threads over all connections (with one thread each: the connections).
 * With `until=FILE` a job also ends when there is such a file. VIP and TLS are true or false; TIMEOUT is what each request is given, ms.
 * One line of JSON per job:
 * {"topic", "mode", "sent", "ok", "codes": {"215": refused requests}, "errors": ["distinct texts"], "outcomes": ["AR.."] per thread
 * (A accepted, R refused or failed; one per request), "started_ms", "elapsed_s", "median_ms", "max_ms", "begun_per_100ms" and "accepted_per_100ms": {slot: n}}.
 * Code -1: the client raised something that carries no code; -2: it never called back.
 */
public final class Produce {
    static Runnable run(String[] arguments, Consumer<String> report) throws Exception {
        int connections = Integer.parseInt(arguments[2]);
        List<Job> jobs = new ArrayList<>();
        for (String text : Arrays.asList(arguments).subList(6, arguments.length)) {
            jobs.add(new Job(arguments[1], text));
        }
        List<DefaultMQProducer> producers = new ArrayList<>();
        for (int number = 0; number < connections; number++) {
            DefaultMQProducer producer = new DefaultMQProducer(arguments[1]);
            producer.setNamesrvAddr(arguments[0]);
            producer.setInstanceName(Jobs.instance(arguments[1]));
            producer.setVipChannelEnabled(Boolean.parseBoolean(arguments[3]));
            producer.setUseTLS(Boolean.parseBoolean(arguments[4]));
            producer.setSendMsgTimeout(Integer.parseInt(arguments[5]));
            producer.setMqClientApiTimeout(Integer.parseInt(arguments[5])); // a heartbeat that comes late would take the connection along
            producer.start();
            for (Job job : jobs) {
                Route.find(producer, job.topic);
            }
            producers.add(producer);
        }
        List<Thread> threads = new ArrayList<>();
        for (Job job : jobs) {
            for (int number = 0; number < connections * job.threads; number++) {
                Line line = new Line(job, producers.get(number / job.threads), number);
                job.lines.add(line);
                threads.add(new Thread(line));
            }
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        for (Job job : jobs) {
            if (job.mode.equals("oneway")) {
                for (DefaultMQProducer producer : producers) {
                    awaitWritten(producer, job.topic);
                }
            }
        }
        for (Job job : jobs) {
            report.accept(job.report());
        }
        return () -> producers.forEach(DefaultMQProducer::shutdown);
    }

    /** Asks the broker something behind the one-way sends: once it answers, all of them are written, and not lost with this program. */
    private static void awaitWritten(DefaultMQProducer producer, String topic) throws Exception {
        for (MessageQueue queue : Route.find(producer, topic)) {
            for (long deadline = System.nanoTime() + 200_000_000_000L;;) {
                try {
                    producer.maxOffset(queue);
                    break;
                } catch (MQClientException error) { // within its 3 s; a busy machine takes longer
                    if (System.nanoTime() > deadline) {
                        throw error;
                    }
                }
            }
        }
    }

    private static final class Job {
        final String run;
        final String topic;
        final String mode;
        final int count;
        final double seconds;
        final double rate;
        final int size;
        final int batch;
        final int threads;
        final File until;
        final List<Line> lines = new ArrayList<>();

        Job(String run, String text) {
            Map<String, String> settings = new LinkedHashMap<>();
            for (String pair : text.split(",")) {
                settings.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
            }
            this.run = run;
            topic = settings.get("topic");
            mode = settings.getOrDefault("mode", "sync");
            count = Integer.parseInt(settings.getOrDefault("count", "0"));
            seconds = Double.parseDouble(settings.getOrDefault("seconds", "0"));
            rate = Double.parseDouble(settings.getOrDefault("rate", "0"));
            size = Integer.parseInt(settings.getOrDefault("size", "100"));
            batch = Integer.parseInt(settings.getOrDefault("batch", "1"));
            threads = Integer.parseInt(settings.getOrDefault("threads", "1"));
            until = settings.containsKey("until") ? new File(settings.get("until")) : null;
        }

        String report() {
            Map<Integer, Integer> codes = new TreeMap<>();
            Map<Long, Integer> begun = new TreeMap<>();
            Map<Long, Integer> accepted = new TreeMap<>();
            Map<String, Integer> errors = new LinkedHashMap<>();
            List<Long> times = new ArrayList<>();
            List<String> outcomes = new ArrayList<>();
            int sent = 0;
            int ok = 0;
            long started = Long.MAX_VALUE;
            double ended = 0;
            for (Line line : lines) {
                StringBuilder letters = new StringBuilder();
                for (Outcome outcome : line.outcomes) {
                    sent++;
                    begun.merge(outcome.begunMs / 100, 1, Integer::sum);
                    if (outcome.code == 0) {
                        ok++;
                        accepted.merge(outcome.finishedMs / 100, 1, Integer::sum);
                    } else {
                        codes.merge(outcome.code, 1, Integer::sum);
                        if (errors.size() < 3) {
                            errors.merge(String.valueOf(outcome.error), 1, Integer::sum);
                        }
                    }
                    letters.append(outcome.code == 0 ? 'A' : 'R');
                    times.add(outcome.tookNs);
                }
                outcomes.add(letters.toString());
                started = Math.min(started, line.startedMs);
                ended = Math.max(ended, line.startedMs / 1e3 + line.elapsedSeconds);
            }
            double elapsed = ended - started / 1e3; // of all together: on a busy machine threads do not begin at the same time
            times.sort(null);
            double median = times.isEmpty() ? 0 : times.get(times.size() / 2) / 1e6;
            double max = times.isEmpty() ? 0 : times.get(times.size() - 1) / 1e6;
            return "{\"topic\": " + quoted(topic) + ", \"mode\": " + quoted(mode) + ", \"sent\": " + sent + ", \"ok\": " + ok
                + ", \"codes\": " + object(codes) + ", \"errors\": " + array(errors.keySet()) + ", \"outcomes\": " + array(outcomes)
                + ", \"started_ms\": " + started + ", \"elapsed_s\": " + elapsed + ", \"median_ms\": " + median + ", \"max_ms\": " + max
                + ", \"begun_per_100ms\": " + object(begun) + ", \"accepted_per_100ms\": " + object(accepted) + "}";
        }
    }

    private static final class Outcome {
        final long begunMs = System.currentTimeMillis();
        volatile int code = -2;
        volatile String error;
        volatile long finishedMs;
        volatile long tookNs;
    }

    /** One thread of a job. */
    private static final class Line implements Runnable {
        final Job job;
        final DefaultMQProducer producer;
        final int number;
        final ConcurrentLinkedQueue<Outcome> outcomes = new ConcurrentLinkedQueue<>();
        final Semaphore room = new Semaphore(64);
        long startedMs;
        double elapsedSeconds;

        Line(Job job, DefaultMQProducer producer, int number) {
            this.job = job;
            this.producer = producer;
            this.number = number;
        }

        @Override
        public void run() {
            startedMs = System.currentTimeMillis();
            long started = System.nanoTime();
            for (int sequence = 0; job.count == 0 || sequence < job.count; sequence++) {
                if (job.seconds > 0 && System.nanoTime() - started >= job.seconds * 1e9 || job.until != null && job.until.exists()) {
                    break;
                }
                if (job.rate > 0) {
                    long due = started + (long) (sequence / job.rate * 1e9);
                    long early;
                    while ((early = due - System.nanoTime()) > 0) {
                        LockSupport.parkNanos(early);
                    }
                }
                Outcome outcome = new Outcome();
                outcomes.add(outcome);
                send(sequence, outcome);
            }
            try {
                room.tryAcquire(64, 240, TimeUnit.SECONDS); // every asynchronous send has called back
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
            elapsedSeconds = (System.nanoTime() - started) / 1e9;
        }

        private void send(int sequence, Outcome outcome) {
            long began = System.nanoTime();
            try {
                switch (job.mode) {
                    case "async":
                        room.acquire();
                        producer.send(message(sequence), new SendCallback() {
                            @Override
                            public void onSuccess(SendResult result) {
                                settle(outcome, began, 0, null);
                                room.release();
                            }

                            @Override
                            public void onException(Throwable error) {
                                settle(outcome, began, code(error), error);
                                room.release();
                            }
                        });
                        return;
                    case "oneway":
                        producer.sendOneway(message(sequence));
                        break;
                    case "batch":
                        List<Message> messages = new ArrayList<>();
                        for (int part = 0; part < job.batch; part++) {
                            messages.add(message(sequence * job.batch + part));
                        }
                        producer.send(messages);
                        break;
                    case "ordered":
                        producer.send(message(sequence), (queues, any, hash) -> queues.get((Integer) hash % queues.size()), 0);
                        break;
                    default:
                        producer.send(message(sequence));
                }
                settle(outcome, began, 0, null);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            } catch (Exception error) {
                settle(outcome, began, code(error), error);
                if (job.mode.equals("async")) {
                    room.release();
                }
            }
        }

        private Message message(int sequence) {
            StringBuilder text = new StringBuilder(job.run + "-" + job.topic + "-" + number + "-" + sequence);
            while (text.length() < job.size) {
                text.append('.');
            }
            return new Message(job.topic, text.toString().getBytes(StandardCharsets.UTF_8));
        }

        private static void settle(Outcome outcome, long began, int code, Throwable error) {
            outcome.finishedMs = System.currentTimeMillis();
            outcome.tookNs = System.nanoTime() - began;
            outcome.error = error == null ? null : error.toString();
            outcome.code = code;
        }
    }

    static int code(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) {
                return ((MQBrokerException) cause).getResponseCode();
            }
        }
        return error instanceof MQClientException ? ((MQClientException) error).getResponseCode() : -1;
    }

    static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            if (letter == '"' || letter == '\\') {
                out.append('\\').append(letter);
            } else if (letter < ' ') {
                out.append(String.format("\\u%04x", (int) letter));
            } else {
                out.append(letter);
            }
        }
        return out.append('"').toString();
    }

    static String array(Iterable<String> texts) {
        StringBuilder out = new StringBuilder();
        for (String text : texts) {
            out.append(out.length() == 0 ? "" : ", ").append(quoted(text));
        }
        return "[" + out + "]";
    }

    static String object(Map<?, Integer> numbers) {
        StringBuilder out = new StringBuilder();
        numbers.forEach((key, value) -> out.append(out.length() == 0 ? "" : ", ").append(quoted(key.toString())).append(": ").append(value));
        return "{" + out + "}";
    }
}
