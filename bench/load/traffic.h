/* Traffic as it is: topics by Zipf's law, bodies of 50 to 2,000 bytes, properties as client libraries send them. The same in every run. */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include "common.h"

#define TRAFFIC "traffic" /* in place of a body's size */
#define TOPICS 50
#define LEAST_BODY 50
#define MOST_BODY 2000

static inline uint32_t any_number(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

/* Topic number n is named 1/n times as often as the first. */
static inline unsigned any_topic(void)
{
    double sum = 0, at;
    for (unsigned n = 1; n <= TOPICS; n++) sum += 1.0 / n;
    at = sum * any_number() / 4294967296.0;
    for (unsigned n = 1; n < TOPICS; n++) {
        at -= 1.0 / n;
        if (at < 0) return n;
    }
    return TOPICS;
}

static inline size_t any_body(void)
{
    return LEAST_BODY + any_number() % (MOST_BODY - LEAST_BODY + 1);
}

/* basic.publish of one such message on channel 1: content type, delivery mode, message id and timestamp. Returns its size. */
static inline size_t traffic_publish(char *out, const char *exchange)
{
    char key[32], id[40], payload[200], *at = payload, *end = out;
    size_t body = any_body();
    unsigned length = (unsigned)snprintf(key, sizeof key, "shop.orders.%02u.created", any_topic());
    at = put_u16(put_u32(at, 0x003C0028), 0);
    *at++ = (char)strlen(exchange);
    at = (char *)memcpy(at, exchange, strlen(exchange)) + strlen(exchange);
    *at++ = (char)length;
    at = (char *)memcpy(at, key, length) + length;
    *at++ = 0;
    end = amqp_frame(end, 1, 1, payload, (uint32_t)(at - payload));
    at = put_u16(put_u32(put_u32(put_u32(payload, 0x003C0000), 0), (uint32_t)body), 0x90C0);
    *at++ = 16;
    at = (char *)memcpy(at, "application/json", 16) + 16;
    *at++ = 2;
    *at++ = 36;
    snprintf(id, sizeof id, "%08x-%04x-4%03x-8%03x-%08x%04x", any_number(), any_number() & 0xFFFF, any_number() & 0xFFF, any_number() & 0xFFF,
        any_number(), any_number() & 0xFFFF);
    at = (char *)memcpy(at, id, 36) + 36;
    at = put_u32(put_u32(at, 0), 1764460800u);
    end = amqp_frame(end, 2, 1, payload, (uint32_t)(at - payload));
    *end++ = 3;
    end = put_u32(put_u16(end, 1), (uint32_t)body);
    memset(end, 'x', body);
    end += body;
    *end++ = (char)0xCE;
    return (size_t)(end - out);
}

/* A one-way send of RocketMQ, or one that is answered. */
static inline size_t traffic_send(char *out, uint32_t opaque, int oneway, size_t *opaque_at)
{
    char topic[32];
    snprintf(topic, sizeof topic, "shop_orders_%02u_created", any_topic());
    return rocketmq_send(out, topic, opaque, oneway, any_body(), opaque_at);
}

#endif
