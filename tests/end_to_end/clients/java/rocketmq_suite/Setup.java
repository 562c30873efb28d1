import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What all cases of a run share: names, credentials, an admin client, and four client instances ("lanes"), a connection or two each. */
final class Setup {
    static final int PATIENCE_MS = 60_000; // of everything that asks: how long a busy machine takes to answer is not what is tested
    private static final int LANES = 4;

    final String nameServer;
    final String run;
    final DefaultMQAdminExt admin;
    private final String expected;
    private final Map<String, DefaultMQPullConsumer> readers = new HashMap<>();
    private String broker;
    private int assigned;

    Setup(String nameServer, String run, String expected) throws Exception {
        this.nameServer = nameServer;
        this.run = run;
        this.expected = expected;
        admin = new DefaultMQAdminExt(credentials(), PATIENCE_MS);
        configure(admin, "admin");
        admin.start();
    }

    /** Signs requests where this run has credentials; null where not. */
    RPCHook credentials() {
        String key = System.getProperty("access.key");
        return key == null ? null : signature(key, System.getProperty("secret.key"));
    }

    static RPCHook signature(String key, String secret) {
        return new AclClientRPCHook(new SessionCredentials(key, secret));
    }

    void configure(ClientConfig client, String instance) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName(run + "-" + instance);
        client.setHeartbeatBrokerInterval(3000);
        client.setPollNameServerInterval(2000);
        client.setMqClientApiTimeout(PATIENCE_MS);
        client.setClientCallbackExecutorThreads(2);
    }

    /** The address under which clients of this run reach the broker. */
    String broker() {
        return broker;
    }

    /** Whether an address is one that clients were meant to be told. */
    boolean isExpected(String address) {
        int dash = expected.lastIndexOf('-');
        if (dash < 0) {
            return address.equals(expected);
        }
        int colon = expected.lastIndexOf(':');
        int port = Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
        return address.startsWith(expected.substring(0, colon + 1)) && Integer.parseInt(expected.substring(colon + 1, dash)) <= port
            && port <= Integer.parseInt(expected.substring(dash + 1));
    }

    /** A client that pulls and asks for offsets, outside of any consuming group. */
    DefaultMQPullConsumer reader(String lane) {
        return readers.get(lane);
    }

    /** The lane of the next case. */
    synchronized String lane() {
        return "lane-" + assigned++ % LANES;
    }

    void prepare(List<Case> cases) throws Exception {
        Waiting.until("the name server knows the broker", () -> {
            var known = admin.examineBrokerClusterInfo().getBrokerAddrTable().get("broker-a");
            broker = known == null ? null : known.getBrokerAddrs().get(0L);
            return broker != null;
        });
        List<String> created = new ArrayList<>();
        for (Case each : cases) {
            String topic = topic(each.name);
            create(topic, each.queues, created);
            for (String pattern : each.more) {
                create(pattern.replace("CASE", topic).replace("RUN", run), 1, created);
            }
            if (each.consumes) {
                create("%RETRY%" + topic, 1, created);
            }
        }
        registerAtOnce();
        for (String topic : created) {
            Waiting.until("a route for " + topic, () -> !admin.examineTopicRouteInfo(topic).getQueueDatas().isEmpty());
        }
        for (int number = 0; number < LANES; number++) { // an instance ends with its last client; these are never shut down
            DefaultMQProducer anchor = new DefaultMQProducer(run + "-anchor-" + number, credentials());
            configure(anchor, "lane-" + number);
            anchor.start();
            DefaultMQPullConsumer reader = new DefaultMQPullConsumer(run + "-reader-" + number, credentials());
            reader.setConsumerPullTimeoutMillis(PATIENCE_MS);
            configure(reader, "lane-" + number); // in 5.x pull consumers have another instance, and connection, of that name
            reader.start();
            readers.put("lane-" + number, reader);
        }
    }

    String topic(String caseName) {
        return run + "-" + caseName.replace('_', '-');
    }

    /** A change of the broker's permission (to what it is) makes it register all topics with the name server, without waiting. */
    private void registerAtOnce() throws Exception {
        Properties permission = new Properties();
        permission.setProperty("brokerPermission", "6");
        admin.updateBrokerConfig(broker, permission);
    }

    private void create(String name, int queues, List<String> created) throws Exception {
        TopicConfig topic = new TopicConfig(name);
        topic.setReadQueueNums(queues);
        topic.setWriteQueueNums(queues);
        admin.createAndUpdateTopicConfig(broker, topic);
        created.add(name);
    }
}
