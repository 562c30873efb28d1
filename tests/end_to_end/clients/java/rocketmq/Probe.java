import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** The probe on the Java client: one order a line on stdin, one report a line on stdout (support/clients/rocketmq_probes.py says what they mean). */
public final class Probe {
    private static final long FREE_AFTER_MS = 200; // the limited send is with the gateway by then
    private static DefaultMQProducer producer;

    private final Map<String, String> order;
    private final CountDownLatch heldBegins = new CountDownLatch(1);

    private Probe(Map<String, String> order) {
        this.order = order;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream reports = System.out;
        System.setOut(System.err); // what the logging library says of itself is not a report
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, String> order = new HashMap<>();
            for (String word : line.trim().split("\\s+")) {
                order.put(word.substring(0, word.indexOf('=')), word.substring(word.indexOf('=') + 1));
            }
            String answer;
            try {
                Probe probe = new Probe(order);
                answer = order.get("do").equals("send") ? probe.send() : probe.consume();
            } catch (Exception error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                answer = "{\"broken\": " + Produce.quoted(trace.toString()) + "}";
            }
            reports.println(answer);
            reports.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private int number(String name) {
        return Integer.parseInt(order.getOrDefault(name, "0"));
    }

    // ---- send ------------------------------------------------------------------------------------------------------

    private String send() throws Exception {
        if (producer == null) {
            producer = new DefaultMQProducer("probe-producers");
            producer.setNamesrvAddr(order.get("namesrv"));
            producer.setInstanceName("probe-" + ProcessHandle.current().pid());
            producer.setMqClientApiTimeout(Route.PATIENCE_MS); // a heartbeat's: one that comes late would take the connection along
            producer.start();
        }
        producer.setSendMsgTimeout(Route.PATIENCE_MS);
        String free = order.getOrDefault("free", "");
        Route.find(producer, order.get("topic"));
        if (!free.isEmpty()) {
            Route.find(producer, free);
        }
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        List<String> seenFree = new ArrayList<>();
        List<String> over = new ArrayList<>();
        long began = System.nanoTime();
        Thread limited = new Thread(() -> sendAll(seen));
        limited.start();
        int before = 0;
        if (!free.isEmpty()) {
            heldBegins.await();
            Thread.sleep(FREE_AFTER_MS);
            for (int sequence = 0; sequence < number("free_count"); sequence++) {
                seenFree.add(attempt(() -> producer.send(new Message(free, body("free", 0)))));
                over.add(String.valueOf((System.nanoTime() - began) / 1e9));
                before += limited.isAlive() ? 1 : 0;
            }
        }
        limited.join();
        double elapsed = (System.nanoTime() - began) / 1e9;
        return "{\"seen\": [" + String.join(", ", seen) + "], \"free\": [" + String.join(", ", seenFree) + "], \"free_over_s\": [" + String.join(", ", over)
            + "], \"free_before\": " + before + ", \"elapsed_s\": " + elapsed + "}";
    }

    private void sendAll(List<String> seen) {
        int count = number("count");
        CountDownLatch outstanding = new CountDownLatch(count);
        for (int sequence = 0; sequence < count; sequence++) {
            int one = sequence;
            if (one == 1) {
                heldBegins.countDown();
            }
            if (one == count - 1 && order.containsKey("timeout")) {
                producer.setSendMsgTimeout(number("timeout"));
            }
            if (!order.get("mode").equals("async")) {
                seen.add(attempt(() -> sendOne(one)));
                continue;
            }
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    seen.add("\"ok\"");
                    outstanding.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    seen.add(told(error));
                    outstanding.countDown();
                }
            };
            try {
                producer.send(message(one), callback);
            } catch (Exception error) {
                callback.onException(error);
            }
        }
        try {
            if (order.get("mode").equals("async") && !outstanding.await(Route.PATIENCE_MS, TimeUnit.MILLISECONDS)) {
                seen.add("\"no callback\"");
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private void sendOne(int sequence) throws Exception {
        switch (order.get("mode")) {
            case "oneway":
                producer.sendOneway(message(sequence));
                break;
            case "batch":
                List<Message> messages = new ArrayList<>();
                for (int part = 0; part < number("batch"); part++) {
                    messages.add(message(sequence * number("batch") + part));
                }
                producer.send(messages);
                break;
            case "ordered":
                producer.send(message(sequence), (queues, any, hash) -> queues.get(0), 0);
                break;
            default:
                producer.send(message(sequence));
        }
    }

    private Message message(int sequence) {
        return new Message(order.get("topic"), body(order.get("run"), sequence));
    }

    private static byte[] body(String run, int sequence) {
        return (run + "-" + sequence).getBytes(StandardCharsets.UTF_8);
    }

    private interface Sending {
        void send() throws Exception;
    }

    private static String attempt(Sending sending) {
        try {
            sending.send();
            return "\"ok\"";
        } catch (Exception error) {
            return told(error);
        }
    }

    private static String told(Throwable error) {
        return "{\"class\": " + Produce.quoted(error.getClass().getSimpleName()) + ", \"code\": " + Produce.code(error) + ", \"text\": "
            + Produce.quoted(String.valueOf(error.getMessage())) + "}";
    }

    // ---- consume ---------------------------------------------------------------------------------------------------

    private String consume() throws Exception {
        int expected = number("expected");
        int failFirst = number("fail_first");
        List<String> consumed = Collections.synchronizedList(new ArrayList<>());
        Set<String> distinct = Collections.synchronizedSet(new TreeSet<>());
        Set<String> failed = Collections.synchronizedSet(new TreeSet<>());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(order.get("group"));
        consumer.setNamesrvAddr(order.get("namesrv"));
        consumer.setInstanceName("probe-" + ProcessHandle.current().pid() + "-" + order.get("group") + "-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(3000);
        consumer.setPollNameServerInterval(2000);
        consumer.subscribe(order.get("topic"), "*");
        if (number("orderly") > 0) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> note(message, consumed, distinct));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) { // one at a time: consumeMessageBatchMaxSize is 1
                    synchronized (failed) {
                        if (failed.size() < failFirst && failed.add(text(message))) {
                            context.setDelayLevelWhenNextConsume(1); // one second
                            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                        }
                    }
                    note(message, consumed, distinct);
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        long began = System.nanoTime();
        Route.start(consumer);
        while (distinct.size() < expected && System.nanoTime() - began < number("within") * 1_000_000_000L) {
            Thread.sleep(20);
        }
        double elapsed = (System.nanoTime() - began) / 1e9;
        consumer.shutdown(); // commits the offsets and leaves the group
        return "{\"consumed\": " + Produce.array(new ArrayList<>(consumed)) + ", \"failed\": " + Produce.array(new ArrayList<>(failed))
            + ", \"elapsed_s\": " + elapsed + "}";
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static void note(MessageExt message, List<String> consumed, Set<String> distinct) {
        consumed.add(text(message));
        distinct.add(text(message));
    }
}
