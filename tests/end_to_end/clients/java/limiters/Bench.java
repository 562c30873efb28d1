import com.google.common.util.concurrent.Clocked;
import com.google.common.util.concurrent.RateLimiter;
import java.util.Arrays;
import java.util.function.LongPredicate;

/**
 * What one decision of other people's limiters costs: nanoseconds, single thread. As JMH does it: rounds to warm up, then rounds that count, all
 * results into a black hole. Arguments: decisions per round, rounds to warm up, rounds that count. Writes one line of JSON for each limiter.
 *
 * <p>"clock given": time moves a millisecond every thousand decisions, as our judge is told the time once per batch. Otherwise each decision
 * reads the clock, as these limiters do in use.
 */
final class Bench {
    private static final double ENOUGH = 2_000_003; // per second, where a million are asked for
    private static final double LITTLE = 1;
    private static volatile long blackHole;

    private Bench() {
    }

    public static void main(String[] arguments) {
        int decisions = Integer.parseInt(arguments[0]);
        int warmUp = Integer.parseInt(arguments[1]);
        int rounds = Integer.parseInt(arguments[2]);

        Clocked.Clock clock = new Clocked.Clock();
        RateLimiter bursty = Clocked.bursty(clock, ENOUGH, 1.0);
        measure("Guava RateLimiter, clock given, admits", decisions, warmUp, rounds, micros -> {
            clock.now = micros;
            return bursty.tryAcquire();
        });
        Clocked.Clock other = new Clocked.Clock();
        RateLimiter dry = Clocked.bursty(other, LITTLE, 1.0);
        measure("Guava RateLimiter, clock given, refuses", decisions, warmUp, rounds, micros -> {
            other.now = micros;
            return dry.tryAcquire();
        });
        RateLimiter real = RateLimiter.create(1e12);
        measure("Guava RateLimiter, its own clock, admits", decisions, warmUp, rounds, micros -> real.tryAcquire());

        Original original = new Original(ENOUGH, 1_000_000, 0);
        measure("the original design's class, clock given, admits", decisions, warmUp, rounds, micros -> original.acquire(1, micros));
        Original open = new Original(LITTLE, 1_000_000, 0);
        measure("the original design's class, clock given, refuses", decisions, warmUp, rounds, micros -> open.acquire(1, micros));
        long begin = System.nanoTime();
        Original ticking = new Original(1e12, 1_000_000, 0);
        measure("the original design's class, its own clock, admits", decisions, warmUp, rounds,
            micros -> ticking.acquire(1, (System.nanoTime() - begin) / 1000));
    }

    private static void measure(String name, int decisions, int warmUp, int rounds, LongPredicate decide) {
        double[] found = new double[rounds];
        long batch = 1;
        long admitted = 0;
        for (int round = -warmUp; round < rounds; round++) {
            long hole = 0;
            long before = System.nanoTime();
            for (int number = 0; number < decisions; number += 1000) {
                batch++;
                for (int one = 0; one < 1000; one++) {
                    hole += decide.test(batch * 1000) ? 1 : 0;
                }
            }
            long after = System.nanoTime();
            blackHole = hole;
            if (round >= 0) {
                found[round] = (double) (after - before) / decisions;
                admitted += hole;
            }
        }
        System.out.println("{\"name\": \"" + name + "\", \"ns\": " + Arrays.toString(found)
            + ", \"admitted\": " + (double) admitted / decisions / rounds + "}");
    }
}
