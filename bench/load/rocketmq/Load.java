import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * RocketMQ's own Java producer as a load: on one connection, for a number of seconds after as long again to warm up.
 *
 * <pre>Load PORT sync|async WIDTH SECONDS BYTES</pre>
 *
 * The name server is the system property rocketmq.namesrv.addr, the topic "bench". sync: WIDTH threads, one send each at a time; async: one thread, WIDTH sends unanswered. The broker's route names one address only, so
 * the client's table is set to 127.0.0.1:PORT once it has asked. Prints "ready", and begins after a line on its standard input. Prints {"messages", "seconds", "p50_us", "p99_us", "p999_us",
 * "warmup": messages before}; any failure ends it with 1.
 */
public final class Load {
    private static final int MOST = 4_000_000;

    public static void main(String[] arguments) throws Exception {
        String topic = "bench";
        boolean sync = arguments[1].equals("sync");
        int width = Integer.parseInt(arguments[2]);
        long span = (long) (Double.parseDouble(arguments[3]) * 1e9);
        byte[] body = new byte[Integer.parseInt(arguments[4])];
        DefaultMQProducer producer = new DefaultMQProducer("bench");
        producer.setPollNameServerInterval(3_600_000);
        producer.setSendMsgTimeout(20_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        producer.getDefaultMQProducerImpl().getTopicPublishInfoTable().putIfAbsent(topic, new TopicPublishInfo());
        producer.getDefaultMQProducerImpl().getMqClientFactory().updateTopicRouteInfoFromNameServer(topic);
        Thread.sleep(1000); // the client asks once more by itself, just after its start
        redirect(producer.getDefaultMQProducerImpl().getMqClientFactory(), "127.0.0.1:" + arguments[0]);

        System.out.println("ready");
        if (System.in.read() < 0) {
            System.exit(1);
        }

        AtomicLong failed = new AtomicLong();
        AtomicInteger warmup = new AtomicInteger();
        AtomicInteger measured = new AtomicInteger();
        int[] micros = new int[MOST];
        long begin = System.nanoTime() + span;
        long end = begin + span;
        Semaphore window = new Semaphore(width);
        Runnable work = () -> {
            while (System.nanoTime() < end && failed.get() == 0) {
                long sent = System.nanoTime();
                try {
                    if (sync) {
                        producer.send(new Message(topic, body));
                        count(sent, begin, end, warmup, measured, micros);
                    } else {
                        window.acquire();
                        producer.send(new Message(topic, body), new SendCallback() {
                            @Override
                            public void onSuccess(SendResult result) {
                                window.release();
                                count(sent, begin, end, warmup, measured, micros);
                            }

                            @Override
                            public void onException(Throwable error) {
                                window.release();
                                fail(failed, error);
                            }
                        });
                    }
                } catch (Exception error) {
                    fail(failed, error);
                }
            }
        };
        Thread[] threads = new Thread[sync ? width : 1];
        for (int index = 0; index < threads.length; index++) {
            threads[index] = new Thread(work);
            threads[index].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        window.tryAcquire(width, failed.get() > 0 ? 1 : 30, TimeUnit.SECONDS); // the last answers
        int count = Math.min(measured.get(), MOST);
        int[] sorted = Arrays.copyOf(micros, count);
        Arrays.sort(sorted);
        if (failed.get() > 0 || count == 0) {
            System.exit(1);
        }
        System.out.printf("{\"messages\": %d, \"seconds\": %.4f, \"p50_us\": %d, \"p99_us\": %d, \"p999_us\": %d, \"warmup\": %d}%n",
            measured.get(), span / 1e9, sorted[count / 2], sorted[(int) (count * 0.99)], sorted[(int) (count * 0.999)],
            warmup.get());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void count(long sent, long begin, long end, AtomicInteger warmup, AtomicInteger measured, int[] micros) {
        long now = System.nanoTime();
        if (now < begin || now > end) {
            warmup.incrementAndGet();
            return;
        }
        int index = measured.getAndIncrement();
        if (index < MOST) {
            micros[index] = (int) ((now - sent) / 1000);
        }
    }

    private static void fail(AtomicLong failed, Throwable error) {
        if (failed.getAndIncrement() == 0) {
            error.printStackTrace();
        }
    }

    @SuppressWarnings("unchecked")
    private static void redirect(MQClientInstance client, String address) throws Exception {
        Field field = MQClientInstance.class.getDeclaredField("brokerAddrTable");
        field.setAccessible(true);
        for (Map<Long, String> addresses : ((Map<String, Map<Long, String>>) field.get(client)).values()) {
            addresses.put(0L, address);
        }
    }
}
