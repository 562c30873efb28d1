/**
 * The limiter of the design that this gateway comes from, written anew from its description: a bucket of one second of the rate with a
 * breaker, in whole microseconds. It begins full, charges also what it refuses, and its breaker stays open for a fixed time after the next
 * free ticket.
 */
final class Original {
    private double stored;
    private double most;
    private double intervalMicros;
    private long nextFree;
    private boolean open;
    private final long breakerMicros;
    long lastNeedWait = -1; // the hint that clients are given

    Original(double rate, long breakerMicros, long now) {
        this.breakerMicros = breakerMicros;
        this.nextFree = now;
        this.most = rate;
        this.stored = rate;
        this.intervalMicros = 1e6 / rate;
    }

    synchronized void setRate(double rate, long now) {
        resync(now);
        double before = most;
        intervalMicros = 1e6 / rate;
        most = rate;
        stored = before == 0 ? rate : stored * rate / before;
    }

    synchronized boolean acquire(int permits, long now) {
        if (open && now - nextFree >= breakerMicros) {
            open = false;
        }
        if (!open) {
            resync(now);
            long moment = nextFree;
            double use = Math.min(permits, stored);
            double fresh = permits - use;
            nextFree += (long) (fresh * intervalMicros);
            stored -= use;
            lastNeedWait = Math.max(moment - now, 0);
            if (lastNeedWait > 0) {
                open = true;
            }
        }
        return !open;
    }

    private void resync(long now) {
        if (now > nextFree) {
            stored = Math.min(most, stored + (now - nextFree) / intervalMicros);
            nextFree = now;
        }
    }
}
