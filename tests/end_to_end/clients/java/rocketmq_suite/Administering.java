import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** What operators do with clients and brokers: most of it the broker passes on to a client, and passes its answer back. */
final class Administering {
    private static final int CONSUME_MSG_TIMEOUT = 207; // of ResponseCode, which is in another package in each version

    static void register(Cases cases) {
        cases.add("admin_reset_offset", Administering::resetOffset).consumes(); // the client waits 10 s in it
        cases.add("admin_running_info", Administering::runningInfo).consumes();
        cases.add("admin_consume_directly", Administering::consumeDirectly).consumes();
        cases.add("admin_consumer_status", Administering::consumerStatus).consumes();
        cases.add("admin_consumer_connection", Administering::consumerConnection).consumes();
        cases.add("admin_producer_connection", Administering::producerConnection);
        cases.add("admin_topic_route", Administering::topicRoute).queues(3);
        cases.add("admin_cluster", Administering::cluster);
        cases.add("admin_topic_stats", Administering::topicStats);
        cases.add("admin_broker", Administering::broker);
    }

    /** A consumer that has consumed 8 messages, and is known to the broker. */
    private static DefaultMQPushConsumer busy(Room room, Inbox inbox) throws Exception {
        DefaultMQPushConsumer consumer = room.push(room.topic, room.topic);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.subscribe(room.topic, "tag");
        consumer.registerMessageListener(inbox.concurrently);
        room.started(consumer);
        Pushing.fill(room, 8);
        inbox.await(8);
        Waiting.until("the consumer is known", () -> !clientId(room).isEmpty());
        return consumer;
    }

    private static String clientId(Room room) throws Exception {
        for (var connection : room.admin().examineConsumerConnectionInfo(room.topic).getConnectionSet()) {
            return connection.getClientId();
        }
        return "";
    }

    /** A client's answer. The broker gives it 10 s, fixed in its code, and then says that it timed out: a busy machine's is asked again. */
    private static <T> T answered(Callable<T> ask) throws Exception {
        for (int left = 20;; left--) {
            try {
                return ask.call();
            } catch (MQClientException error) {
                if (error.getResponseCode() != CONSUME_MSG_TIMEOUT || left == 0) {
                    throw error;
                }
            }
        }
    }

    private static void runningInfo(Room room) throws Exception {
        busy(room, new Inbox());
        var info = answered(() -> room.admin().getConsumerRunningInfo(room.topic, clientId(room), true));
        Map<String, Object> properties = new TreeMap<>();
        for (String name : List.of("PROP_CONSUME_TYPE", "PROP_CONSUMEORDERLY", "PROP_CLIENT_VERSION", "messageModel", "consumerGroup")) {
            properties.put(name, info.getProperties().get(name));
        }
        room.fact("properties", properties);
        room.expect("subscriptions", 2, info.getSubscriptionSet().size());
        room.expect("queues", 5, info.getMqTable().size());
        room.expect("has a stack trace", true, info.getJstack().contains("ConsumeMessageThread"));
        room.fact("of a client that is not there", Failure.code(() -> room.admin().getConsumerRunningInfo(room.topic, "nobody", false)));
    }

    private static void consumeDirectly(Room room) throws Exception {
        Inbox inbox = new Inbox();
        busy(room, inbox);
        SendResult sent = room.producer().send(new Message(room.topic, "other", new byte[] {'x'}));
        String id = sent.getOffsetMsgId();
        var result = answered(() -> room.admin().consumeMessageDirectly(room.topic, clientId(room), room.topic, id));
        room.expect("result", "CR_SUCCESS", result.getConsumeResult());
        room.expect("consumed", true, inbox.bodies().contains("x")); // which the consumer has not subscribed to
    }

    private static void consumerStatus(Room room) throws Exception {
        busy(room, new Inbox());
        Waiting.until("the consumer tells its offsets", () -> {
            var status = room.admin().getConsumeStatus(room.topic, room.topic, clientId(room));
            Map<Integer, Long> offsets = new TreeMap<>();
            status.values().forEach(table -> table.forEach((queue, offset) -> offsets.put(queue.getQueueId(), offset)));
            room.fact("offsets", offsets);
            return offsets.toString().equals("{0=2, 1=2, 2=2, 3=2}");
        });
    }

    private static void resetOffset(Room room) throws Exception {
        Inbox inbox = new Inbox();
        busy(room, inbox);
        Waiting.until("offsets are committed", () -> room.admin().examineConsumeStats(room.topic, room.topic).computeTotalDiff() == 0);
        Map<Integer, Long> offsets = new TreeMap<>();
        room.admin().resetOffsetByTimestamp(room.topic, room.topic, 0, true)
            .forEach((queue, offset) -> offsets.put(queue.getQueueId(), offset));
        room.expect("reset to", "{0=0, 1=0, 2=0, 3=0}", offsets);
        inbox.awaitExactly(16);
        List<String> twice = new ArrayList<>(Room.bodies(0, 8));
        twice.addAll(Room.bodies(0, 8));
        twice.sort(null);
        room.expect("consumed", twice, inbox.bodies());
    }

    private static void consumerConnection(Room room) throws Exception {
        busy(room, new Inbox());
        var connections = room.admin().examineConsumerConnectionInfo(room.topic);
        Set<String> clients = new TreeSet<>();
        for (var each : connections.getConnectionSet()) {
            clients.add(each.getClientId().replaceAll("^[^@]*@", "") + " " + each.getLanguage() + " " + each.getVersion());
        }
        room.expect("clients", 1, clients.size());
        room.fact("who", clients);
        room.fact("type", connections.getConsumeType() + " " + connections.getMessageModel() + " " + connections.getConsumeFromWhere());
        Set<String> subscriptions = new TreeSet<>();
        connections.getSubscriptionTable().values().forEach(each -> subscriptions.add(each.getTopic() + " " + each.getSubString()));
        room.fact("subscriptions", subscriptions);
        room.fact("of a group that is not there", Failure.code(() -> room.admin().examineConsumerConnectionInfo("nobody")));
    }

    private static void producerConnection(Room room) throws Exception {
        room.producer().send(room.message(0));
        Set<String> producers = new TreeSet<>();
        Waiting.until("the producer is known", () -> {
            room.admin().examineProducerConnectionInfo(room.topic, room.topic).getConnectionSet().forEach(
                each -> producers.add(each.getLanguage() + " " + each.getVersion()));
            return !producers.isEmpty();
        });
        room.expect("producers", 1, producers.size());
        room.fact("who", producers);
    }

    private static void topicRoute(Room room) throws Exception {
        var route = room.admin().examineTopicRouteInfo(room.topic);
        route.getQueueDatas().forEach(queue -> room.expect("queues", "broker-a 3 3 6",
            queue.getBrokerName() + " " + queue.getReadQueueNums() + " " + queue.getWriteQueueNums() + " " + queue.getPerm()));
        room.expect("brokers", 1, route.getBrokerDatas().size());
        addresses(room, route.getBrokerDatas().get(0).getBrokerAddrs());
        room.fact("of a topic that is not there", Failure.code(() -> room.admin().examineTopicRouteInfo(room.topic + "-none")));
    }

    private static void cluster(Room room) throws Exception {
        var cluster = room.admin().examineBrokerClusterInfo();
        room.expect("clusters", "{DefaultCluster=[broker-a]}", cluster.getClusterAddrTable());
        addresses(room, cluster.getBrokerAddrTable().get("broker-a").getBrokerAddrs());
    }

    /** Clients are told the address they are meant to use, and no other. */
    private static void addresses(Room room, Map<Long, String> addresses) {
        addresses.forEach((id, address) -> room.expect("broker " + id, true, room.setup.isExpected(address)));
        room.expect("addresses", 1, addresses.size());
    }

    private static void topicStats(Room room) throws Exception {
        Pushing.fill(room, 10);
        Map<Integer, String> offsets = new TreeMap<>();
        Waiting.until("ten are stored", () -> {
            room.admin().examineTopicStats(room.topic).getOffsetTable()
                .forEach((queue, offset) -> offsets.put(queue.getQueueId(), offset.getMinOffset() + "-" + offset.getMaxOffset()));
            return offsets.toString().equals("{0=0-3, 1=0-3, 2=0-2, 3=0-2}");
        });
        room.fact("offsets", offsets);
    }

    private static void broker(Room room) throws Exception {
        String address = room.setup.broker();
        var properties = room.admin().getBrokerConfig(address);
        room.expect("name", "broker-a", properties.getProperty("brokerName"));
        room.expect("settings", true, properties.size() > 200);
        var runtime = room.admin().fetchBrokerRuntimeStats(address).getTable();
        room.fact("version", runtime.get("brokerVersionDesc"));
        room.expect("topics", true, room.admin().getAllTopicConfig(address, Setup.PATIENCE_MS).getTopicConfigTable().containsKey(room.topic));
        room.expect("groups", true, room.admin().getAllSubscriptionGroup(address, Setup.PATIENCE_MS).getSubscriptionGroupTable().size() > 0);
    }
}
