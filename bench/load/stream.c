/*
 * stream PORT rocketmq|amqp|rabbitmq SECONDS BODY|traffic[:TOPICS] [CONNECTIONS]: messages as fast as they are taken, without waiting for
 * answers (RocketMQ: one-way sends; AMQP: a channel without confirms), each connection in a process of its own. At the end each makes sure
 * that everything has arrived: it closes its sending side and waits until the sink has told that it got every byte; RabbitMQ itself, which
 * cannot tell, has seen all messages of a channel when it answers the channel's close.
 * Prints "ready" once connected, and begins after a line on its standard input; then prints {"messages": n, "seconds": s}.
 */
#include "amqp_client.h"
#include "children.h"
#include "traffic.h"

#define BATCH (512 * 1024)
#define MANY (16 * BATCH) /* bytes written again and again where there are many topics */

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

static size_t body_size; /* 0: traffic */

static struct result stream(char **words)
{
    const char *port = words[1], *protocol = words[2];
    size_t body = body_size;
    double limit = atof(words[3]);
    int rocketmq = strcmp(protocol, "rocketmq") == 0, rabbitmq = strcmp(protocol, "rabbitmq") == 0;
    const char *exchange = rabbitmq ? "amq.topic" : "bench"; /* to the sink it is all the same */
    size_t least = body == 0 && topics > 50 ? MANY : BATCH, size = 0, unused;
    char *batch = malloc(least + body + 4096);
    uint64_t in_batch = 0, batches = 0;
    while (size < least) {
        char *end = batch + size;
        uint32_t opaque = OPAQUE_LEAST + (uint32_t)in_batch;
        if (rocketmq && body == 0) size += rocketmq_send(end, any_topic_name(), opaque, 1, any_body(), &unused);
        else if (rocketmq) size += rocketmq_send(end, "bench_stream", opaque, 1, body, &unused);
        else if (body == 0) size += traffic_publish(end, exchange, any_key());
        else size += amqp_publish(end, exchange, "bench.stream", body);
        in_batch++;
    }
    int fd = connect_to(port);
    if (!rocketmq) shake_hands(fd);
    await_begin();
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
        fprintf(stderr, "stream PORT rocketmq|amqp|rabbitmq SECONDS BODY|traffic[:TOPICS] [CONNECTIONS]\n");
        return 2;
    }
    body_size = is_traffic(words[4]) ? 0 : (size_t)atoi(words[4]);
    if (body_size > 65536) fail("a body over 64 KiB");
    return work_in_children(count == 6 ? atoi(words[5]) : 1, stream, words);
}
