import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Request and reply: the broker carries the request to a consumer, and the answer (324, 325) back to the one that asked (326).
 *
 * With a queue and a callback, the only form that works in the 5.3.3 client (the others return when the request is stored).
 */
final class Asking {
    private static final int QUESTIONS = 6;
    private static final long PATIENCE_MS = 15_000; // of who gets no answer; before it asks, a client on a busy machine may wait for its route

    static void register(Cases cases) {
        // Not on the lanes: a broker forgets where to send answers as soon as another producer of the same connection leaves.
        cases.add("request_reply", room -> dialogue(room, room.topic + "-one", room.topic + "-one")).consumes();
        cases.add("request_reply_other_connection", room -> dialogue(room, room.topic + "-one", room.topic + "-two")).consumes();
        cases.add("request_without_answer", Asking::unanswered);
    }

    private static void dialogue(Room room, String asking, String answering) throws Exception {
        DefaultMQProducer replier = new DefaultMQProducer(room.topic + "-replies", room.setup.credentials());
        room.setup.configure(replier, answering);
        room.started(replier);
        DefaultMQPushConsumer consumer = room.push(room.topic, answering);
        consumer.subscribe(room.topic, "*");
        Set<String> sent = Collections.synchronizedSet(new TreeSet<>());
        AtomicInteger replies = new AtomicInteger();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    Message reply = MessageUtil.createReplyMessage(message, ("to " + Room.body(message)).getBytes(StandardCharsets.UTF_8));
                    sent.add(replier.send(reply, Setup.PATIENCE_MS).getSendStatus().toString());
                    replies.incrementAndGet();
                } catch (Exception error) {
                    room.trouble(error.toString());
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        room.started(consumer);
        DefaultMQProducer producer = new DefaultMQProducer(room.topic + "-asks", room.setup.credentials());
        room.setup.configure(producer, asking);
        room.started(producer);
        room.connected(producer);
        Waiting.until("the broker knows where to send answers",
            () -> !room.admin().examineProducerConnectionInfo(producer.getProducerGroup(), room.topic).getConnectionSet().isEmpty());
        Set<String> answers = Collections.synchronizedSet(new TreeSet<>());
        CountDownLatch open = new CountDownLatch(QUESTIONS);
        for (int number = 0; number < QUESTIONS; number++) {
            ask(producer, room.message(number), new MessageQueue(room.topic, "broker-a", number % 4), Setup.PATIENCE_MS, answers, open);
        }
        room.expect("all called back", true, open.await(2 * Setup.PATIENCE_MS, TimeUnit.MILLISECONDS));
        room.expect("answers", "[to body-0, to body-1, to body-2, to body-3, to body-4, to body-5]", answers);
        Waiting.until("all replies are settled", () -> replies.get() == QUESTIONS); // an answer may overtake that
        room.expect("replies were sent with", "[SEND_OK]", sent);
    }

    private static void unanswered(Room room) throws Exception {
        Set<String> answers = Collections.synchronizedSet(new TreeSet<>());
        CountDownLatch open = new CountDownLatch(1);
        ask(room.producer(), room.message(0), new MessageQueue(room.topic, "broker-a", 0), PATIENCE_MS, answers, open);
        open.await(2 * PATIENCE_MS, TimeUnit.MILLISECONDS);
        room.expect("answers", "[RequestTimeoutException]", answers);
    }

    private static void ask(DefaultMQProducer producer, Message question, MessageQueue queue, long timeoutMs, Set<String> answers,
        CountDownLatch open) throws Exception {
        producer.request(question, queue, new RequestCallback() {
            @Override
            public void onSuccess(Message answer) {
                answers.add(answer == null ? "nothing" : Room.body(answer));
                open.countDown();
            }

            @Override
            public void onException(Throwable error) {
                answers.add(error.getClass().getSimpleName());
                open.countDown();
            }
        }, timeoutMs);
    }
}
