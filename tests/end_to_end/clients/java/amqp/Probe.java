import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.BlockedListener;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.Method;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeoutException;

/** The probe on RabbitMQ's Java client: one order a line on stdin, one report a line on stdout (support/clients/probes.py says what they mean). */
public final class Probe {
    private static final int PATIENCE_MS = 120_000; // how long a busy machine takes is not what is tested

    private final Map<String, String> order;
    private final List<Object> seen = new ArrayList<>();
    private final List<Object> returns = Collections.synchronizedList(new ArrayList<>());
    private final List<Object> blocked = Collections.synchronizedList(new ArrayList<>());
    private volatile int unblocked;
    private volatile int heard;
    private volatile double longestGap;
    private volatile long lastHeard;
    private Object channelState = "open";
    private Object refused;
    private Object other = "";
    private String commit = "";

    private Probe(Map<String, String> order) {
        this.order = order;
    }

    private int number(String name) {
        return Integer.parseInt(order.getOrDefault(name, "0"));
    }

    private long milliseconds(String name) {
        return (long) (1000 * Double.parseDouble(order.getOrDefault(name, "0")));
    }

    private static Map<String, Object> told(Throwable error) {
        Map<String, Object> words = new LinkedHashMap<>();
        Throwable cause = error;
        while (!(cause instanceof ShutdownSignalException) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        String name = cause == error ? error.getClass().getSimpleName()
            : error.getClass().getSimpleName() + " of " + cause.getClass().getSimpleName();
        words.put("class", name);
        words.put("code", null);
        words.put("text", String.valueOf(error.getMessage()));
        if (cause instanceof ShutdownSignalException) {
            Method reason = ((ShutdownSignalException) cause).getReason();
            if (reason instanceof AMQP.Channel.Close) {
                words.put("code", ((AMQP.Channel.Close) reason).getReplyCode());
                words.put("text", ((AMQP.Channel.Close) reason).getReplyText());
            } else if (reason instanceof AMQP.Connection.Close) {
                words.put("code", ((AMQP.Connection.Close) reason).getReplyCode());
                words.put("text", ((AMQP.Connection.Close) reason).getReplyText());
            }
        }
        return words;
    }

    private String publish(Channel channel, int number) throws InterruptedException {
        String id = order.get("run") + "-" + number;
        AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder().messageId(id).build();
        boolean mandatory = "1".equals(order.get("mandatory"));
        try {
            channel.basicPublish("", order.get("key"), mandatory, properties, id.getBytes(StandardCharsets.UTF_8));
            if (!"confirm".equals(order.get("mode"))) {
                return "sent";
            }
            return channel.waitForConfirms(PATIENCE_MS) ? "ack" : "waitForConfirms = false";
        } catch (IOException | TimeoutException | ShutdownSignalException error) {
            close(error);
            return error.getClass().getSimpleName();
        }
    }

    private Object otherChannelLives(Connection connection, Channel channel) throws InterruptedException {
        try {
            channel.basicPublish("", order.get("free"), null, "other".getBytes(StandardCharsets.UTF_8));
            if (!channel.waitForConfirms(PATIENCE_MS)) {
                return "not confirmed";
            }
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (System.currentTimeMillis() < deadline) {
                GetResponse response = channel.basicGet(order.get("free"), true);
                if (response != null) {
                    connection.createChannel().close();
                    String body = new String(response.getBody(), StandardCharsets.UTF_8);
                    return body.equals("other") ? "ok" : "got " + body;
                }
            }
            return "nothing consumed";
        } catch (IOException | TimeoutException | ShutdownSignalException error) {
            return told(error);
        }
    }

    /** The limited channel is closed; the first exception that says so is the one that counts. */
    private void close(Throwable error) {
        if (channelState.equals("open")) {
            channelState = told(error);
        }
    }

    private synchronized boolean hasSeen() {
        return !blocked.isEmpty() && blocked.size() == unblocked || order.containsKey("expect") && heard >= number("expect");
    }

    private synchronized void hear() {
        long now = System.nanoTime();
        if (heard > 0) {
            longestGap = Math.max(longestGap, (now - lastHeard) / 1e9);
        }
        lastHeard = now;
        heard++;
    }

    private void run() throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(order.get("url"));
        factory.setAutomaticRecoveryEnabled(false);
        factory.setHandshakeTimeout(PATIENCE_MS);
        factory.setRequestedHeartbeat(number("heartbeat"));
        Connection connection;
        try {
            connection = factory.newConnection();
        } catch (IOException | TimeoutException error) {
            refused = told(error);
            return;
        }
        connection.addBlockedListener(new BlockedListener() {
            @Override
            public void handleBlocked(String reason) {
                blocked.add(reason);
            }

            @Override
            public void handleUnblocked() {
                unblocked++;
            }
        });
        if (order.containsKey("listen")) {
            boolean back = order.getOrDefault("back", "0").equals("1");
            Channel listening = connection.createChannel();
            listening.basicConsume(order.get("listen"), !back, (tag, delivery) -> {
                hear();
                if (back && delivery.getEnvelope().isRedeliver()) {
                    listening.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
                } else if (back) {
                    listening.basicNack(delivery.getEnvelope().getDeliveryTag(), false, true);
                }
            }, tag -> { });
        }
        Channel free = connection.createChannel();
        free.confirmSelect();
        Channel limited = connection.createChannel();
        limited.addReturnListener(message -> {
            Map<String, Object> words = new LinkedHashMap<>();
            words.put("code", message.getReplyCode());
            words.put("text", message.getReplyText());
            words.put("key", message.getRoutingKey());
            words.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
            returns.add(words);
        });
        String mode = order.get("mode");
        if (mode.equals("confirm")) {
            limited.confirmSelect();
        } else if (mode.equals("tx")) {
            limited.txSelect();
        }
        for (int sequence = 0; sequence < number("count"); sequence++) {
            seen.add(publish(limited, sequence));
        }
        if (mode.equals("tx")) {
            long deadline = System.currentTimeMillis() + milliseconds("pause");
            while (System.currentTimeMillis() < deadline && limited.isOpen()) {
                Thread.sleep(10);
            }
            try {
                limited.txCommit();
                commit = "committed";
            } catch (IOException | AlreadyClosedException error) {
                close(error);
                commit = error.getClass().getSimpleName();
            }
        }
        boolean otherFirst = "1".equals(order.get("other_first"));
        if (otherFirst) {
            other = otherChannelLives(connection, free);
        }
        long until = System.currentTimeMillis() + milliseconds("linger");
        while (System.currentTimeMillis() < until && limited.isOpen() && !hasSeen()) {
            Thread.sleep(50);
        }
        try {
            limited.queueDeclarePassive(order.get("free"));
        } catch (IOException | ShutdownSignalException error) {
            close(error);
        }
        if (!otherFirst) {
            other = otherChannelLives(connection, free);
        }
        if (connection.isOpen()) {
            connection.close();
        }
    }

    private String report() {
        Map<String, Object> words = new LinkedHashMap<>();
        words.put("seen", seen);
        words.put("commit", commit);
        words.put("returns", returns);
        words.put("channel", channelState);
        words.put("refused", refused);
        words.put("blocked", blocked);
        words.put("unblocked", unblocked);
        words.put("other", other);
        words.put("heard", heard);
        words.put("longest_gap_s", longestGap);
        words.put("outcomes", "");
        return json(words);
    }

    private static String json(Object value) {
        StringBuilder text = new StringBuilder();
        if (value instanceof Map) {
            text.append('{');
            ((Map<?, ?>) value).forEach((name, one) ->
                text.append(text.length() > 1 ? "," : "").append(json(name)).append(':').append(json(one)));
            return text.append('}').toString();
        }
        if (value instanceof List) {
            text.append('[');
            ((List<?>) value).forEach(one -> text.append(text.length() > 1 ? "," : "").append(json(one)));
            return text.append(']').toString();
        }
        if (!(value instanceof String)) {
            return String.valueOf(value);
        }
        text.append('"');
        for (char letter : ((String) value).toCharArray()) {
            if (letter == '"' || letter == '\\') {
                text.append('\\').append(letter);
            } else if (letter < ' ') {
                text.append(String.format("\\u%04x", (int) letter));
            } else {
                text.append(letter);
            }
        }
        return text.append('"').toString();
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, String> order = new HashMap<>(Map.of("mode", "confirm", "count", "1", "heartbeat", "60"));
            for (String word : line.trim().split("\\s+")) {
                int at = word.indexOf('=');
                order.put(word.substring(0, at), word.substring(at + 1));
            }
            if (order.getOrDefault("listen", "").isEmpty()) {
                order.remove("listen");
            }
            String answer;
            try {
                Probe probe = new Probe(order);
                probe.run();
                answer = probe.report();
            } catch (Exception error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                answer = json(Map.of("broken", trace.toString()));
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }
}
