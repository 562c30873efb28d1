import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * A producer that signs what it sends: COUNT messages to the first queue of TOPIC, whose bodies are their numbers, each third of them one-way.
 *
 * <pre>Signed NAMESRV KEY SECRET TOPIC COUNT</pre>
 *
 * Prints how many were answered with SEND_OK.
 */
public final class Signed {
    private static final MessageQueueSelector FIRST = (queues, message, argument) -> queues.get(0);

    public static void main(String[] arguments) {
        try {
            System.out.println(send(arguments));
            System.out.flush();
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // the producer's threads would go on
        }
    }

    private static int send(String[] arguments) throws Exception {
        SessionCredentials credentials = new SessionCredentials(arguments[1], arguments[2]);
        DefaultMQProducer producer = new DefaultMQProducer("producers", new AclClientRPCHook(credentials));
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        int stored = 0;
        for (int number = 0; number < Integer.parseInt(arguments[4]); number++) {
            Message message = new Message(arguments[3], String.valueOf(number).getBytes());
            message.putUserProperty("text", "\u4e2d\u6587");
            if (number % 3 == 0) {
                producer.sendOneway(message, FIRST, null);
            } else if (producer.send(message, FIRST, null).getSendStatus() == SendStatus.SEND_OK) {
                stored++;
            }
        }
        return stored;
    }
}
