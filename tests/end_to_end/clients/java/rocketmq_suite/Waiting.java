import java.util.concurrent.Callable;

/** Waiting for something to become true. */
final class Waiting {
    private static final long PATIENCE_NS = 240_000_000_000L;

    /** Asks again and again; an exception counts as "not yet". Throws, with the last one, after four minutes. */
    static void until(String what, Callable<Boolean> condition) throws Exception {
        until(what, PATIENCE_NS, condition);
    }

    static void until(String what, long patienceNs, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + patienceNs;
        Exception last = null;
        while (System.nanoTime() < deadline) {
            try {
                if (condition.call()) {
                    return;
                }
                last = null;
            } catch (InterruptedException error) {
                throw error;
            } catch (Exception error) {
                last = error;
            }
            Thread.sleep(50);
        }
        throw new IllegalStateException("not within " + patienceNs / 1_000_000_000L + " s: " + what, last);
    }
}
