package com.google.common.util.concurrent;

import java.util.concurrent.TimeUnit;

/** Guava's limiters under a clock of ours; in Guava's own package, because only there a clock can be given. */
public final class Clocked {
    private Clocked() {
    }

    /** Microseconds, as somebody says. Nobody sleeps. */
    public static final class Clock extends RateLimiter.SleepingStopwatch {
        public long now;

        @Override
        protected long readMicros() {
            return now;
        }

        @Override
        protected void sleepMicrosUninterruptibly(long micros) {
            if (micros > 0) {
                throw new IllegalStateException("tryAcquire without a timeout never sleeps");
            }
        }
    }

    public static RateLimiter bursty(Clock clock, double rate, double maxBurstSeconds) {
        RateLimiter limiter = new SmoothRateLimiter.SmoothBursty(clock, maxBurstSeconds);
        limiter.setRate(rate);
        return limiter;
    }

    public static RateLimiter warmingUp(Clock clock, double rate, long overMicros) {
        RateLimiter limiter = new SmoothRateLimiter.SmoothWarmingUp(clock, overMicros, TimeUnit.MICROSECONDS, 3.0);
        limiter.setRate(rate);
        return limiter;
    }
}
