import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Every feature of the RocketMQ client in one JVM, as named cases; run directly and through a gateway, both must print the same.
 *
 * <pre>Suite NAMESRV RUN BROKER CLASSES [CASE...]</pre>
 *
 * RUN begins all names (topics, groups, instances), so that runs can share a broker. BROKER is the address (host:port or host:low-high)
 * that clients are to be told. CLASSES are the classes with cases, by comma; with CASEs only these run. The system properties
 * access.key and secret.key sign every request. Prints a line of JSON per case:
 * {"case", "outcome": "ok" or "failed", "facts": {...}, "trouble": ["what was not as expected"]}, in the order in which they end.
 */
public final class Suite {
    private static final int AT_ONCE = 24; // cases wait for most of their time

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1); // the clients' threads would keep the program alive
        }
        Runtime.getRuntime().halt(0); // an orderly shutdown of all clients takes seconds and is not what is tested
    }

    private static void run(String[] arguments) throws Exception {
        Cases cases = new Cases();
        for (String name : arguments[3].split(",")) {
            Class.forName(name).getDeclaredMethod("register", Cases.class).invoke(null, cases);
        }
        List<String> only = Arrays.asList(arguments).subList(4, arguments.length);
        List<Case> wanted = cases.chosen(only);
        Setup setup = new Setup(arguments[0], arguments[1], arguments[2]);
        setup.prepare(wanted);
        ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE);
        List<Callable<Void>> jobs = new ArrayList<>();
        for (Case each : wanted) {
            jobs.add(() -> {
                Room room = new Room(setup, each);
                String line = room.use();
                synchronized (System.out) {
                    System.out.println(line);
                    System.out.flush();
                }
                return null;
            });
        }
        for (var ended : pool.invokeAll(jobs)) {
            ended.get();
        }
    }
}
