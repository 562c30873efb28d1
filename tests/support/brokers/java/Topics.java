import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Speaks to a broker directly, never through the gateway, so that what it says is the truth to compare with.
 *
 * <pre>
 * Topics create NAMESRV BROKER TOPIC[:QUEUES]...   creates topics, and returns when the name server knows their routes
 * Topics count  NAMESRV BROKER TOPIC...            prints {"TOPIC": messages stored, ...}
 * </pre>
 */
public final class Topics {
    private static final long HANG_MS = 200_000; // how busy the machine is is not what is tested

    public static void main(String[] arguments) throws Exception {
        String broker = arguments[2];
        DefaultMQAdminExt admin = new DefaultMQAdminExt(HANG_MS);
        admin.setNamesrvAddr(arguments[1]);
        admin.setInstanceName("topics-" + ProcessHandle.current().pid());
        admin.start();
        try {
            List<String> topics = new ArrayList<>(List.of(arguments).subList(3, arguments.length));
            if (arguments[0].equals("create")) {
                create(admin, broker, topics);
            } else {
                count(admin, broker, topics);
            }
        } finally {
            admin.shutdown();
        }
        System.exit(0);
    }

    private static void create(DefaultMQAdminExt admin, String broker, List<String> topics) throws Exception {
        for (String word : topics) {
            int colon = word.lastIndexOf(':');
            TopicConfig topic = new TopicConfig(colon < 0 ? word : word.substring(0, colon));
            int queues = colon < 0 ? 4 : Integer.parseInt(word.substring(colon + 1));
            topic.setReadQueueNums(queues);
            topic.setWriteQueueNums(queues);
            admin.createAndUpdateTopicConfig(broker, topic);
        }
        // A broker registers for the first time 10 s after its start, and a name server refuses single topics of a broker it does not know.
        // A change of the permission (to what it is) makes the broker register everything at once.
        Properties permission = new Properties();
        permission.setProperty("brokerPermission", "6");
        admin.updateBrokerConfig(broker, permission);
        long deadline = System.currentTimeMillis() + HANG_MS;
        for (String word : topics) {
            int colon = word.lastIndexOf(':');
            while (!routed(admin, colon < 0 ? word : word.substring(0, colon))) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("the name server has no route for " + word);
                }
                Thread.sleep(50);
            }
        }
        System.out.println("{\"created\": " + topics.size() + "}");
    }

    private static boolean routed(DefaultMQAdminExt admin, String topic) {
        try {
            return !admin.examineTopicRouteInfo(topic).getQueueDatas().isEmpty();
        } catch (Exception error) {
            return false; // code 17 until the broker has registered the topic
        }
    }

    private static void count(DefaultMQAdminExt admin, String broker, List<String> topics) throws Exception {
        StringBuilder line = new StringBuilder("{");
        for (String topic : topics) {
            long stored = 0;
            for (TopicOffset offset : admin.examineTopicStats(broker, topic).getOffsetTable().values()) {
                stored += offset.getMaxOffset() - offset.getMinOffset();
            }
            line.append(line.length() > 1 ? ", " : "").append('"').append(topic).append("\": ").append(stored);
        }
        System.out.println(line.append('}'));
    }
}
