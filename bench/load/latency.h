/* How long answers took: a histogram in microseconds. */
#ifndef LATENCY_H
#define LATENCY_H

#include "common.h"

#define SLOTS 1000000 /* microseconds; what took longer counts as the last slot */

static uint32_t slots[SLOTS];

static inline void note_latency(double seconds)
{
    size_t took = (size_t)(seconds * 1e6);
    slots[took < SLOTS ? took : SLOTS - 1]++;
}

static inline size_t quantile(uint64_t messages, double part)
{
    uint64_t seen = 0;
    for (size_t slot = 0; slot < SLOTS; slot++) {
        seen += slots[slot];
        if ((double)seen >= part * (double)messages) return slot;
    }
    return SLOTS;
}

#endif
