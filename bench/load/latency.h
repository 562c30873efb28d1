/* How long answers took: a histogram in tenths of a microsecond, exact up to 1 s. */
#ifndef LATENCY_H
#define LATENCY_H

#include "common.h"

#define SLOTS 10000000 /* tenths of microseconds; what took longer counts as the last slot */

static uint32_t slots[SLOTS];
static uint64_t noted;

static inline void note_latency(double seconds)
{
    size_t took = (size_t)(seconds * 1e7);
    slots[took < SLOTS ? took : SLOTS - 1]++;
    noted++;
}

/* In microseconds. */
static inline double quantile(double part)
{
    uint64_t seen = 0;
    size_t slot = 0;
    for (; slot < SLOTS - 1; slot++) {
        seen += slots[slot];
        if ((double)seen >= part * (double)noted) break;
    }
    return (double)slot / 10;
}

static inline void print_quantiles(void)
{
    printf(", \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f", quantile(0.5), quantile(0.99), quantile(0.999));
}

#endif
