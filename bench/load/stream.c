/*
 * stream PORT rocketmq|amqp|rabbitmq SECONDS BODY|traffic [CONNECTIONS]: messages as fast as they are taken, without waiting for answers (RocketMQ:
 * one-way sends; AMQP: a channel without confirms), each connection in a process of its own. At the end each makes sure that everything
 * has arrived: it closes its sending side and waits until the sink has told that it got every byte; RabbitMQ itself, which cannot tell, has
 * seen all messages of a channel when it answers the channel's close.
 * Prints "ready" once connected, and begins after a line on its standard input; then prints {"messages": n, "seconds": s}.
 */
#include <sys/wait.h>

#include "amqp_client.h"
#include "traffic.h"

#define BATCH (512 * 1024)

struct result {
    uint64_t messages;
    double seconds;
};

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

/* Tells `ready` that it is connected, and begins when `begin` ends. */
static struct result stream(const char *port, const char *protocol, double limit, size_t body, int ready, int begin)
{
    int rocketmq = strcmp(protocol, "rocketmq") == 0, rabbitmq = strcmp(protocol, "rabbitmq") == 0;
    const char *exchange = rabbitmq ? "amq.topic" : "bench"; /* to the sink it is all the same */
    char *batch = malloc(BATCH + body + 4096);
    uint64_t in_batch = 0, batches = 0;
    size_t size = 0, unused;
    while (size < BATCH) {
        char *end = batch + size;
        uint32_t opaque = OPAQUE_LEAST + (uint32_t)in_batch;
        if (body == 0) size += rocketmq ? traffic_send(end, opaque, 1, &unused) : traffic_publish(end, exchange);
        else size += rocketmq ? rocketmq_send(end, "bench_stream", opaque, 1, body, &unused) : amqp_publish(end, exchange, "bench.stream", body);
        in_batch++;
    }
    int fd = connect_to(port);
    if (!rocketmq) shake_hands(fd);
    char nothing;
    write_all(ready, "", 1);
    if (read(begin, &nothing, 1) != 0) fail("begin");
    double started = seconds_now();
    while (seconds_now() - started < limit) {
        write_all(fd, batch, size);
        batches++;
    }
    if (rabbitmq) {
        close_channel(fd);
    } else {
        shutdown(fd, SHUT_WR);
        uint64_t arrived = be_told(fd, !rocketmq);
        if (arrived != batches * size) {
            fprintf(stderr, "stream: sent %llu bytes, %llu arrived\n", (unsigned long long)(batches * size), (unsigned long long)arrived);
            exit(1);
        }
    }
    struct result result = {batches * in_batch, seconds_now() - started};
    if (rabbitmq) close_connection(fd);
    return result;
}

int main(int count, char **words)
{
    if (count != 5 && count != 6) {
        fprintf(stderr, "stream PORT rocketmq|amqp|rabbitmq SECONDS BODY|traffic [CONNECTIONS]\n");
        return 2;
    }
    int connections = count == 6 ? atoi(words[5]) : 1, ends[2], begin[2], status;
    size_t body = strcmp(words[4], TRAFFIC) == 0 ? 0 : (size_t)atoi(words[4]); /* 0: as it is */
    if (body > 65536) fail("a body over 64 KiB");
    if (pipe(ends) < 0 || pipe(begin) < 0) fail("pipe");
    for (int i = 0; i < connections; i++) {
        if (fork() == 0) {
            close(begin[1]);
            struct result result = stream(words[1], words[2], atof(words[3]), body, ends[1], begin[0]);
            write_all(ends[1], &result, sizeof result);
            _exit(0);
        }
    }
    char nothing;
    close(ends[1]); /* so that it ends when a child dies */
    for (int i = 0; i < connections; i++) read_all(ends[0], &nothing, 1);
    say_ready();
    close(begin[1]);
    for (int i = 0; i < connections; i++)
        if (wait(&status) < 0 || status != 0) return 1; /* it has said why */
    struct result all = {0, 0};
    for (int i = 0; i < connections; i++) {
        struct result one;
        read_all(ends[0], &one, sizeof one);
        all.messages += one.messages;
        if (one.seconds > all.seconds) all.seconds = one.seconds;
    }
    printf("{\"messages\": %llu, \"seconds\": %.4f}\n", (unsigned long long)all.messages, all.seconds);
    return 0;
}
