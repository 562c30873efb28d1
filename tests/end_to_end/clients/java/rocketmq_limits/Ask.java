import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.SerializeType;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Asks for limits as MQCloud's console does (DefaultSohuMQAdmin), and sends under an access key: what an operator of the patched broker has.
 *
 * <pre>Ask NAMESRV JOB...</pre>
 *
 * A job is a JSON object; each is done before the next, and each prints one line of JSON.
 * {"to": "host:port", "code": 9002, "fields": {...}, "key": "an access key", "binary": false} gives {"code", "remark", "limits", "version"}:
 * the body read with RocketMQ's own decoder into classes like MQCloud's.
 * {"admin": "create" | "delete" | "time", "to": "host:port", "topic": "T", "count": 3, "threads": 1} gives {"ok", "codes", "ms"}: topics T0, T1 …
 * created or deleted, or searched by time, as mqadmin does.
 * {"topic": "T", "send": 3, "key": "an access key", "group": "G"} gives {"ok", "codes": {"215": refused}}, sent one by one.
 */
public final class Ask {
    private static final Map<String, NettyRemotingClient> CLIENTS = new HashMap<>();
    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        for (int number = 1; number < arguments.length; number++) {
            JSONObject job = JSON.parseObject(arguments[number]);
            Object done = job.containsKey("send") ? send(arguments[0], job) : job.containsKey("admin") ? administer(arguments[0], job) : ask(job);
            System.out.println(JSON.toJSONString(done));
        }
        System.out.flush();
        PRODUCERS.values().forEach(DefaultMQProducer::shutdown);
        CLIENTS.values().forEach(NettyRemotingClient::shutdown);
        System.exit(0);
    }

    private static Map<String, Object> ask(JSONObject job) throws Exception {
        JSONObject fields = job.getJSONObject("fields");
        UpdateHeader header = null;
        if (fields != null && fields.containsKey("topicLimitQps") && fields.get("topicLimitQps") instanceof Number) {
            header = new UpdateHeader();
            header.setTopic(fields.getString("topic"));
            header.setTopicLimitQps(fields.getDoubleValue("topicLimitQps"));
        }
        RemotingCommand request = RemotingCommand.createRequestCommand(job.getIntValue("code"), header);
        if (header == null && fields != null) {
            fields.forEach((name, value) -> request.addExtField(name, String.valueOf(value)));
        }
        if (job.getBooleanValue("binary")) {
            request.setSerializeTypeCurrentRPC(SerializeType.ROCKETMQ);
        }
        RemotingCommand response = client(job.getString("key")).invokeSync(job.getString("to"), request, 5000);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("code", response.getCode());
        line.put("remark", response.getRemark());
        line.put("opaque", response.getOpaque() == request.getOpaque());
        if (response.getBody() != null) {
            LimitData data = RemotingSerializable.decode(response.getBody(), LimitData.class);
            Map<String, Object> limits = new LinkedHashMap<>();
            for (TopicLimit limit : data.getTopicRateLimitList()) {
                limits.put(limit.getTopic(), List.of(limit.getLimitQps(), limit.getLastNeedWaitMicrosecs(), limit.getLastRateLimitTimestamp()));
            }
            line.put("limits", limits);
            line.put("version", List.of(data.getDataVersion().getTimestamp(), data.getDataVersion().getCounter().get()));
        }
        return line;
    }

    private static Map<String, Object> send(String nameServer, JSONObject job) throws Exception {
        DefaultMQProducer producer = producer(nameServer, job.getString("key"), job.getString("group"));
        Map<String, Integer> codes = new LinkedHashMap<>();
        int ok = 0;
        for (int number = 0; number < job.getIntValue("send"); number++) {
            try {
                producer.send(new Message(job.getString("topic"), new byte[100]));
                ok++;
            } catch (MQBrokerException error) {
                codes.merge(String.valueOf(error.getResponseCode()), 1, Integer::sum);
            } catch (MQClientException error) {
                codes.merge(String.valueOf(error.getResponseCode()), 1, Integer::sum);
            }
        }
        return Map.of("ok", ok, "codes", codes);
    }

    private static Map<String, Object> administer(String nameServer, JSONObject job) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(); // waits 5 s for an answer, as mqadmin does
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("admin" + System.nanoTime());
        admin.start();
        Map<String, Integer> codes = new ConcurrentHashMap<>();
        AtomicInteger ok = new AtomicInteger();
        ExecutorService threads = Executors.newFixedThreadPool(job.getIntValue("threads"));
        long begun = System.nanoTime();
        for (int number = 0; number < job.getIntValue("count"); number++) {
            String topic = job.getString("topic") + number;
            threads.execute(() -> {
                try {
                    switch (job.getString("admin")) {
                        case "create" -> admin.createAndUpdateTopicConfig(job.getString("to"), new TopicConfig(topic, 1, 1, 6));
                        case "delete" -> admin.deleteTopicInBroker(Set.of(job.getString("to")), topic);
                        default -> admin.searchOffset(job.getString("to"), job.getString("topic"), 0, 1, 5000);
                    }
                    ok.incrementAndGet();
                } catch (MQBrokerException error) {
                    codes.merge(String.valueOf(error.getResponseCode()), 1, Integer::sum);
                } catch (MQClientException error) {
                    codes.merge(String.valueOf(error.getResponseCode()), 1, Integer::sum);
                } catch (Exception error) {
                    codes.merge(error.getClass().getSimpleName(), 1, Integer::sum);
                }
            });
        }
        threads.shutdown();
        threads.awaitTermination(60, TimeUnit.SECONDS);
        long took = (System.nanoTime() - begun) / 1_000_000;
        admin.shutdown();
        return Map.of("ok", ok.get(), "codes", codes, "ms", took);
    }

    private static NettyRemotingClient client(String key) {
        return CLIENTS.computeIfAbsent(String.valueOf(key), name -> {
            NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
            if (key != null) {
                client.registerRPCHook(signing(key));
            }
            client.start();
            return client;
        });
    }

    private static DefaultMQProducer producer(String nameServer, String key, String group) throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(key + group);
        if (producer == null) {
            producer = key == null ? new DefaultMQProducer(group) : new DefaultMQProducer(group, signing(key));
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName(group + key);
            producer.start();
            PRODUCERS.put(key + group, producer);
        }
        return producer;
    }

    private static AclClientRPCHook signing(String key) {
        return new AclClientRPCHook(new SessionCredentials(key, "the secret of " + key));
    }

    /** The fields of the request as MQCloud's class has them. */
    public static final class UpdateHeader implements CommandCustomHeader {
        private String topic;
        private double topicLimitQps = -1;

        @Override
        public void checkFields() {
        }

        public String getTopic() {
            return topic;
        }

        public void setTopic(String topic) {
            this.topic = topic;
        }

        public double getTopicLimitQps() {
            return topicLimitQps;
        }

        public void setTopicLimitQps(double topicLimitQps) {
            this.topicLimitQps = topicLimitQps;
        }
    }

    /** The body of the answer as MQCloud's class has it. */
    public static final class LimitData extends RemotingSerializable {
        private DataVersion dataVersion;
        private List<TopicLimit> topicRateLimitList;

        public DataVersion getDataVersion() {
            return dataVersion;
        }

        public void setDataVersion(DataVersion dataVersion) {
            this.dataVersion = dataVersion;
        }

        public List<TopicLimit> getTopicRateLimitList() {
            return topicRateLimitList;
        }

        public void setTopicRateLimitList(List<TopicLimit> topicRateLimitList) {
            this.topicRateLimitList = topicRateLimitList;
        }
    }

    /** One topic in it. */
    public static final class TopicLimit {
        private String topic;
        private double limitQps;
        private long lastNeedWaitMicrosecs;
        private long lastRateLimitTimestamp;

        public String getTopic() {
            return topic;
        }

        public void setTopic(String topic) {
            this.topic = topic;
        }

        public double getLimitQps() {
            return limitQps;
        }

        public void setLimitQps(double limitQps) {
            this.limitQps = limitQps;
        }

        public long getLastNeedWaitMicrosecs() {
            return lastNeedWaitMicrosecs;
        }

        public void setLastNeedWaitMicrosecs(long lastNeedWaitMicrosecs) {
            this.lastNeedWaitMicrosecs = lastNeedWaitMicrosecs;
        }

        public long getLastRateLimitTimestamp() {
            return lastRateLimitTimestamp;
        }

        public void setLastRateLimitTimestamp(long lastRateLimitTimestamp) {
            this.lastRateLimitTimestamp = lastRateLimitTimestamp;
        }
    }
}
