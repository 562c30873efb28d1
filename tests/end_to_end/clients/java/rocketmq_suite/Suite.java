import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Every feature of the RocketMQ client, as named cases; run directly and through a gateway, all ways side by side in one JVM, and all must
 * print the same.
 *
 * <pre>Suite CLASSES (NAMESRV RUN BROKER CASES)...</pre>
 *
 * CLASSES are the classes with cases, by comma, then four words for each way. RUN begins all names (topics, groups, instances), so that runs
 * can share a broker and a JVM. BROKER is the address (host:port or host:low-high) that clients are to be told. CASES are those that run, by
 * comma. The system properties access.key and secret.key sign every request. Prints a line of JSON per case:
 * {"run", "case", "outcome": "ok" or "failed", "facts": {...}, "trouble": ["what was not as expected"]}, in the order in which they end.
 */
public final class Suite {
    private static final int AT_ONCE = 24; // of each way; cases wait for most of their time
    private static final int WORDS = 4; // of each way

    public static void main(String[] arguments) {
        try {
            List<Callable<Void>> runs = new ArrayList<>();
            for (int first = 1; first < arguments.length; first += WORDS) {
                List<String> way = Arrays.asList(arguments).subList(first, first + WORDS);
                runs.add(() -> run(arguments[0], way.get(0), way.get(1), way.get(2), way.get(3)));
            }
            together(runs, runs.size());
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1); // the clients' threads would keep the program alive
        }
        Runtime.getRuntime().halt(0); // an orderly shutdown of all clients takes seconds and is not what is tested
    }

    private static Void run(String classes, String nameServer, String run, String broker, String only) throws Exception {
        Cases cases = new Cases();
        for (String name : classes.split(",")) {
            Class.forName(name).getDeclaredMethod("register", Cases.class).invoke(null, cases);
        }
        List<Case> wanted = cases.chosen(Arrays.asList(only.split(",")));
        Setup setup = new Setup(nameServer, run, broker);
        setup.prepare(wanted);
        List<Callable<Void>> jobs = new ArrayList<>();
        for (Case each : wanted) {
            jobs.add(() -> {
                String line = new Room(setup, each).use();
                synchronized (System.out) {
                    System.out.println(line);
                    System.out.flush();
                }
                return null;
            });
        }
        together(jobs, AT_ONCE);
        return null;
    }

    /** Runs all jobs, so many at a time; throws what one of them has thrown. */
    private static void together(List<Callable<Void>> jobs, int atOnce) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(atOnce);
        for (var ended : pool.invokeAll(jobs)) {
            ended.get();
        }
    }
}
