import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.RPCHook;

/** Access control: what is signed passes, what is signed wrongly or not at all is refused by the broker, in its words. */
final class Signing {
    static void register(Cases cases) {
        cases.add("signed", room -> send(room, room.setup.credentials(), 0));
        cases.add("signed_with_a_wrong_secret", room -> refused(room, Setup.signature(System.getProperty("access.key"), "wrong-secret")));
        cases.add("signed_by_nobody_known", room -> refused(room, Setup.signature("nobody", "some-secret")));
        cases.add("not_signed", room -> refused(room, null));
    }

    private static DefaultMQProducer producer(Room room, RPCHook signature) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(room.topic, signature);
        room.setup.configure(producer, room.topic); // a connection of its own: an instance signs as its first client does
        return room.started(producer);
    }

    private static void send(Room room, RPCHook signature, int code) throws Exception {
        DefaultMQProducer producer = producer(room, signature);
        room.expect("code", code, Failure.code(() -> producer.send(room.message(0))));
    }

    private static void refused(Room room, RPCHook signature) throws Exception {
        DefaultMQProducer producer = producer(room, signature);
        room.fact("code", Failure.code(() -> producer.send(room.message(0))));
        room.expect("refused", true, Failure.code(() -> producer.send(room.message(0))) != 0);
        String words = Failure.words(() -> producer.send(room.message(0), (queues, message, which) -> queues.get(0), 0)); // not tried again
        room.fact("in words", words);
        room.expect("stored", 0, room.stored(room.topic));
    }
}
