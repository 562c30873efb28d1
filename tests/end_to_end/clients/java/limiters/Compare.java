import com.google.common.util.concurrent.Clocked;
import com.google.common.util.concurrent.RateLimiter;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.StringTokenizer;

/**
 * Puts schedules to other people's limiters. Reads cases from standard input, each a line {@code KIND RATE SETTING REQUESTS} and then a line
 * {@code MICROS PERMITS} for each request (or {@code MICROS rate RATE} for a change), and writes for each case one line of 0 and 1 (passed),
 * and for {@code original} a second one with the wait that clients would have been told.
 *
 * <p>KIND is {@code bursty} (SETTING: seconds of burst), {@code warming_up} (microseconds), or {@code original} (microseconds of breaker).
 */
final class Compare {
    private Compare() {
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            StringTokenizer words = new StringTokenizer(line);
            String kind = words.nextToken();
            double rate = Double.parseDouble(words.nextToken());
            double setting = Double.parseDouble(words.nextToken());
            int requests = Integer.parseInt(words.nextToken());
            if (kind.equals("original")) {
                original(in, out, rate, (long) setting, requests);
            } else {
                guava(in, out, kind, rate, setting, requests);
            }
        }
        System.out.print(out);
    }

    private static void guava(BufferedReader in, StringBuilder out, String kind, double rate, double setting, int requests) throws IOException {
        Clocked.Clock clock = new Clocked.Clock();
        RateLimiter limiter = kind.equals("bursty") ? Clocked.bursty(clock, rate, setting) : Clocked.warmingUp(clock, rate, (long) setting);
        for (int number = 0; number < requests; number++) {
            StringTokenizer words = new StringTokenizer(in.readLine());
            clock.now = Long.parseLong(words.nextToken());
            out.append(limiter.tryAcquire(Integer.parseInt(words.nextToken())) ? '1' : '0');
        }
        out.append('\n');
    }

    private static void original(BufferedReader in, StringBuilder out, double rate, long breaker, int requests) throws IOException {
        Original limiter = new Original(rate, breaker, 0);
        StringBuilder waits = new StringBuilder();
        for (int number = 0; number < requests; number++) {
            StringTokenizer words = new StringTokenizer(in.readLine());
            long now = Long.parseLong(words.nextToken());
            String permits = words.nextToken();
            if (permits.equals("rate")) {
                limiter.setRate(Double.parseDouble(words.nextToken()), now);
                continue;
            }
            out.append(limiter.acquire(Integer.parseInt(permits), now) ? '1' : '0');
            waits.append(limiter.lastNeedWait).append(' ');
        }
        out.append('\n').append(waits).append('\n');
    }
}
