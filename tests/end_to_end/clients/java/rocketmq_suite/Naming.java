import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** Namespaces: the client writes them before every topic and group. */
final class Naming {
    static void register(Cases cases) {
        cases.add("namespace", Naming::namespace).topic("space%CASE").topic("%RETRY%space%CASE");
    }

    private static void namespace(Room room) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(room.topic, room.setup.credentials());
        room.setup.configure(producer, room.topic);
        producer.setNamespace("space");
        room.started(producer);
        for (int number = 0; number < 5; number++) {
            room.expect("sent to", room.topic, producer.send(room.message(number)).getMessageQueue().getTopic());
        }
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = room.push(room.topic, room.topic + "-consumes");
        consumer.setNamespace("space");
        consumer.subscribe(room.topic, "*");
        consumer.registerMessageListener(inbox.concurrently);
        room.started(consumer);
        inbox.await(5);
        Set<String> topics = new TreeSet<>();
        for (MessageExt message : inbox.all()) {
            topics.add(message.getTopic());
        }
        room.expect("consumed", Room.bodies(0, 5), inbox.bodies());
        room.expect("from", "[" + room.topic + "]", topics);
        room.expect("stored in the namespace", Room.bodies(0, 5), room.readBodies("space%" + room.topic, 5));
        room.expect("stored outside", 0, room.stored(room.topic));
    }
}
