import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;

/**
 * Runs applications, each with clients of its own, side by side in one JVM, as a start of Java costs more than most of them.
 *
 * <pre>NUMBER TAB APPLICATION TAB WORD TAB ...</pre>
 *
 * Such a line on stdin begins one. Its reports are lines {"job": NUMBER, "report": {...}} on stdout; the last has null for a report, or
 * the trace of what has ended it. Its clients are shut down after that, which takes them seconds; their connections are closed at once.
 * At the end of stdin all ends.
 */
public final class Jobs {
    /** An application: it is done when `run` returns, and what that returns shuts its clients down. */
    private interface Application {
        Runnable run(String[] words, Consumer<String> report) throws Exception;
    }

    private static final Map<String, Application> APPLICATIONS = Map.of("Consume", Consume::run, "Produce", Produce::run, "Transact", Transact::run);
    private static final PrintStream REPORTS = System.out;
    private static final AtomicInteger INSTANCES = new AtomicInteger();

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // what the logging library says of itself is not a report
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            Thread thread = new Thread(() -> run(words[0], words[1], Arrays.copyOfRange(words, 2, words.length)));
            thread.setDaemon(true);
            thread.start();
        }
        Runtime.getRuntime().halt(0);
    }

    /** A name that no other client has, as clients of one name share a connection. */
    static String instance(String name) {
        return name + "-" + ProcessHandle.current().pid() + "-" + INSTANCES.incrementAndGet();
    }

    private static void run(String number, String application, String[] words) {
        try {
            Runnable end = APPLICATIONS.get(application).run(words, report -> say(number, report));
            say(number, "null");
            end.run();
        } catch (Exception | Error error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            say(number, Produce.quoted(trace.toString()));
        }
    }

    private static synchronized void say(String number, String report) {
        REPORTS.println("{\"job\": " + number + ", \"report\": " + report + "}");
        REPORTS.flush();
    }
}
