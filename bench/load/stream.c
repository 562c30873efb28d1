/*
 * stream PORT rocketmq|amqp SECONDS BODY: messages as fast as they are taken, on one connection, without waiting for answers
 * (RocketMQ: one-way sends; AMQP: a channel without confirms). At the end it closes its sending side, and waits until the sink has
 * told that it got every byte. Prints {"messages": n, "seconds": s}.
 */
#include "common.h"

#define BATCH (512 * 1024)

#define TELL(fd, channel, text) \
    do { \
        char out[256]; \
        char *end = amqp_frame(out, 1, channel, text, sizeof text - 1); \
        write_all(fd, out, (size_t)(end - out)); \
    } while (0)

static void hear(int fd)
{
    char head[7], payload[4096];
    read_all(fd, head, 7);
    uint32_t size = get_u32(head + 3);
    if (size > sizeof payload - 1) fail("a handshake frame too large");
    read_all(fd, payload, size + 1);
}

static void shake_hands(int fd)
{
    write_all(fd, "AMQP\0\0\011\001", 8);
    hear(fd); /* start */
    TELL(fd, 0, "\0\012\0\013" "\0\0\0\0" "\005PLAIN" "\0\0\0\014\0guest\0guest" "\005en_US");
    hear(fd); /* tune */
    TELL(fd, 0, "\0\012\0\037" "\007\377" "\0\002\0\0" "\0\0");
    TELL(fd, 0, "\0\012\0\050" "\001/" "\0" "\0");
    hear(fd); /* open-ok */
    TELL(fd, 1, "\0\024\0\012" "\0");
    hear(fd); /* channel.open-ok */
}

/* What the sink says at the end: the bytes it received. */
static uint64_t be_told(int fd, int amqp)
{
    char head[8], payload[4096] = {0};
    if (amqp) {
        read_all(fd, head, 7);
        read_all(fd, payload, 14);
        return (uint64_t)get_u32(payload + 4) << 32 | get_u32(payload + 8);
    }
    read_all(fd, head, 4);
    if (get_u32(head) > sizeof payload - 1) fail("a last frame too large");
    read_all(fd, payload, get_u32(head));
    const char *remark = strstr(payload + 4, "\"remark\":\"");
    return remark ? strtoull(remark + 10, NULL, 16) : 0;
}

int main(int count, char **words)
{
    if (count != 5) {
        fprintf(stderr, "stream PORT rocketmq|amqp SECONDS BODY\n");
        return 2;
    }
    int amqp = strcmp(words[2], "amqp") == 0;
    double limit = atof(words[3]);
    size_t body = (size_t)atoi(words[4]), size = 0, unused;
    if (body > 65536) fail("a body over 64 KiB");
    char *batch = malloc(BATCH + body + 4096);
    uint64_t in_batch = 0;
    while (size < BATCH) {
        size += amqp ? amqp_publish(batch + size, "bench", "bench.stream", body)
                     : rocketmq_send(batch + size, "bench_stream", OPAQUE_LEAST + (uint32_t)in_batch, 1, body, &unused);
        in_batch++;
    }
    int fd = connect_to(words[1]);
    if (amqp) shake_hands(fd);
    double started = seconds_now();
    uint64_t batches = 0;
    while (seconds_now() - started < limit) {
        write_all(fd, batch, size);
        batches++;
    }
    shutdown(fd, SHUT_WR);
    uint64_t arrived = be_told(fd, amqp);
    double elapsed = seconds_now() - started;
    if (arrived != batches * size) {
        fprintf(stderr, "stream: sent %llu bytes, %llu arrived\n", (unsigned long long)(batches * size), (unsigned long long)arrived);
        return 1;
    }
    printf("{\"messages\": %llu, \"seconds\": %.4f}\n", (unsigned long long)(batches * in_batch), elapsed);
    return 0;
}
