/*
 * Traffic as it is: topics by Zipf's law, bodies of 50 to 2,000 bytes, properties as client libraries send them. The same in every run.
 * In place of a body's size: "traffic", of 50 topics, or "traffic:N", of N.
 */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include "common.h"

#define LEAST_BODY 50
#define MOST_BODY 2000
#define MOST_TOPICS 100000

static unsigned topics = 50;
static double odds[MOST_TOPICS + 1]; /* of a topic up to number n: the sum of 1/n so far */

/* Whether `word` stands for traffic; it then says of how many topics. */
static inline int is_traffic(const char *word)
{
    if (strncmp(word, "traffic", 7) != 0) return 0;
    if (word[7] == ':') topics = (unsigned)atoi(word + 8);
    if (topics < 1 || topics > MOST_TOPICS) fail("traffic of 1 to 100000 topics");
    for (unsigned n = 1; n <= topics; n++) odds[n] = odds[n - 1] + 1.0 / n;
    return 1;
}

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
    double at = odds[topics] * any_number() / 4294967296.0;
    unsigned low = 1, high = topics;
    while (low < high) {
        unsigned half = (low + high) / 2;
        if (at < odds[half]) high = half;
        else low = half + 1;
    }
    return low;
}

static inline const char *any_key(void)
{
    static char key[40];
    snprintf(key, sizeof key, "shop.orders.%02u.created", any_topic());
    return key;
}

static inline size_t any_body(void)
{
    return LEAST_BODY + any_number() % (MOST_BODY - LEAST_BODY + 1);
}

static inline char *put_short_string(char *at, const char *text)
{
    size_t length = strlen(text);
    *at++ = (char)length;
    return (char *)memcpy(at, text, length) + length;
}

/* Header and body of such a message on channel 1: content type, delivery mode, message id and timestamp. Returns where they end. */
static inline char *traffic_content(char *end)
{
    char id[40], payload[200], *at;
    size_t body = any_body();
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
    return end;
}

/* basic.publish of one such message. Returns its size. */
static inline size_t traffic_publish(char *out, const char *exchange, const char *key)
{
    char payload[300], *at = put_u16(put_u32(payload, 0x003C0028), 0);
    at = put_short_string(put_short_string(at, exchange), key);
    *at++ = 0;
    return (size_t)(traffic_content(amqp_frame(out, 1, 1, payload, (uint32_t)(at - payload))) - out);
}

/* basic.deliver of one such message to consumer "bench". Returns its size. */
static inline size_t traffic_deliver(char *out, uint64_t tag)
{
    char payload[300], *at = put_short_string(put_u32(payload, 0x003C003C), "bench");
    at = put_u32(put_u32(at, (uint32_t)(tag >> 32)), (uint32_t)tag);
    *at++ = 0;
    at = put_short_string(put_short_string(at, "amq.topic"), any_key());
    return (size_t)(traffic_content(amqp_frame(out, 1, 1, payload, (uint32_t)(at - payload))) - out);
}

static inline const char *any_topic_name(void)
{
    static char topic[40];
    snprintf(topic, sizeof topic, "shop_orders_%02u_created", any_topic());
    return topic;
}

#endif
