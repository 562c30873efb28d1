import java.util.Collections;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactional messages: committed, rolled back, and settled only when the broker asks. */
final class Transacting {
    static void register(Cases cases) {
        cases.add("transaction_commit", room -> settled(room, LocalTransactionState.COMMIT_MESSAGE, 3));
        cases.add("transaction_rollback", room -> settled(room, LocalTransactionState.ROLLBACK_MESSAGE, 0));
        cases.add("transaction_check_back", Transacting::checkBack);
    }

    private static void settled(Room room, LocalTransactionState state, int visible) throws Exception {
        Listener listener = new Listener(state, state);
        send(room, listener, 3);
        room.expect("stored", Room.bodies(0, visible), room.readBodies(room.topic, visible));
        Thread.sleep(14_000); // the broker asks about what has been open for 10 s, every 2 s: it must not ask about these
        room.expect("asked", "[]", listener.asked);
        room.expect("stored in the end", visible, room.stored(room.topic));
    }

    private static void checkBack(Room room) throws Exception {
        Listener listener = new Listener(LocalTransactionState.UNKNOW, LocalTransactionState.COMMIT_MESSAGE);
        listener.decided = false; // however long the sends take: what is asked meanwhile is asked again
        send(room, listener, 4);
        room.expect("stored at first", 0, room.stored(room.topic));
        listener.decided = true;
        Waiting.until("the broker has asked about all", () -> listener.asked.size() == 4);
        room.expect("asked", Room.bodies(0, 4), listener.asked);
        Set<String> stored = new TreeSet<>(); // a broker that asks again before it has read the answer stores a message twice
        Waiting.until("two are stored", () -> stored.addAll(room.readBodies(room.topic, 2)) && stored.size() == 2);
        room.expect("stored", "[body-0, body-2]", stored); // the odd ones are rolled back
    }

    private static void send(Room room, Listener listener, int count) throws Exception {
        TransactionMQProducer producer = room.transactionProducer();
        producer.setTransactionListener(listener);
        room.started(producer);
        room.connected(producer);
        for (int number = 0; number < count; number++) {
            var result = producer.sendMessageInTransaction(room.message(number), number);
            room.expect("sent " + number, "SEND_OK " + listener.first, result.getSendStatus() + " " + result.getLocalTransactionState());
        }
    }

    private static final class Listener implements TransactionListener {
        final LocalTransactionState first;
        final LocalTransactionState later;
        volatile boolean decided = true;
        final Set<String> asked = Collections.synchronizedSet(new TreeSet<>());

        Listener(LocalTransactionState first, LocalTransactionState later) {
            this.first = first;
            this.later = later;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object number) {
            return first;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            if (!decided) {
                return LocalTransactionState.UNKNOW;
            }
            String body = Room.body(message);
            asked.add(body);
            boolean odd = (body.charAt(body.length() - 1) - '0') % 2 == 1;
            return odd ? LocalTransactionState.ROLLBACK_MESSAGE : later;
        }
    }
}
