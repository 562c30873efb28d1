/*
 * drain PORT rocketmq|amqp SECONDS CONNECTIONS: what `pour` pours, as fast as it comes, each connection in a process of its own. AMQP: one
 * consumer without acknowledgements; tags must rise by one up to the answer to its cancel. RocketMQ: pulls, one in flight on each
 * connection; each must bring PULLED messages that are whole.
 * Prints "ready" once connected, and begins after a line on its standard input; then prints {"messages": n, "seconds": s}.
 */
#include "amqp_client.h"
#include "children.h"

#define BUFFER (1 << 20)
#define PULLED 32

static char buffer[BUFFER];

static void wrong(const char *what, uint64_t number)
{
    fprintf(stderr, "drain: %s (%llu)\n", what, (unsigned long long)number);
    exit(1);
}

/* Deliveries until the consumer is cancelled; it is after `limit` seconds. */
static uint64_t take_deliveries(int fd, double limit)
{
    size_t filled = 0;
    uint64_t tag = 0;
    int cancelled = 0;
    double started = seconds_now();
    TELL(fd, 1, "\0\074\0\024" "\0\0" "\004jobs" "\005bench" "\002" "\0\0\0\0"); /* basic.consume, no_ack */
    for (;;) {
        ssize_t got = read(fd, buffer + filled, BUFFER - filled);
        if (got <= 0) fail("the connection ended");
        filled += (size_t)got;
        size_t done = 0;
        while (filled - done >= 7) {
            const char *frame = buffer + done;
            size_t size = 8 + (size_t)get_u32(frame + 3);
            if (filled - done < size) break;
            done += size;
            if (frame[0] != 1) continue;
            uint32_t method = get_u32(frame + 7);
            if (method == 0x003C001F) return tag; /* cancel-ok */
            if (method == 0x003C0015) continue;   /* consume-ok */
            if (method != 0x003C003C) wrong("not a delivery", method);
            const char *at = frame + 12 + (unsigned char)frame[11]; /* behind the consumer's tag */
            if (((uint64_t)get_u32(at) << 32 | get_u32(at + 4)) != ++tag) wrong("a delivery is missing", tag);
        }
        memmove(buffer, buffer + done, filled - done);
        filled -= done;
        if (!cancelled && seconds_now() - started >= limit) {
            TELL(fd, 1, "\0\074\0\036" "\005bench" "\0");
            cancelled = 1;
        }
    }
}

/* One pull, and its answer. */
static uint64_t pull(int fd, uint32_t opaque)
{
    char request[1024];
    int header = snprintf(request + 8, sizeof request - 8,
        "{\"code\":11,\"extFields\":{\"commitOffset\":\"0\",\"consumerGroup\":\"readers\",\"expressionType\":\"TAG\",\"maxMsgNums\":\"32\","
        "\"queueId\":\"0\",\"queueOffset\":\"0\",\"subVersion\":\"1795247411000\",\"subscription\":\"*\","
        "\"suspendTimeoutMillis\":\"15000\","
        "\"sysFlag\":\"6\",\"topic\":\"shop_orders_01_created\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,"
        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}", opaque);
    put_u32(put_u32(request, 4 + (uint32_t)header), (uint32_t)header);
    write_all(fd, request, 8 + (size_t)header);
    char wanted[32];
    snprintf(wanted, sizeof wanted, "\"opaque\":%u,", opaque);
    read_all(fd, buffer, 4);
    size_t size = get_u32(buffer);
    if (size > BUFFER) wrong("an answer too large", size);
    read_all(fd, buffer, size);
    const char *end = buffer + size, *at = buffer + 4 + (get_u32(buffer) & 0xFFFFFF);
    if (!memmem(buffer, (size_t)(at - buffer), wanted, strlen(wanted))) wrong("not the answer expected", opaque);
    uint64_t messages = 0;
    for (; at < end; messages++) at += get_u32(at);
    if (at != end || messages != PULLED) wrong("an answer with another number of messages", messages);
    return messages;
}

static struct result drain(char **words)
{
    int amqp = strcmp(words[2], "amqp") == 0, fd = connect_to(words[1]);
    double limit = atof(words[3]);
    struct result result = {0, 0};
    uint32_t opaque = OPAQUE_LEAST;
    if (amqp) shake_hands(fd);
    else pull(fd, opaque); /* only then a proxy has connected in its turn */
    await_begin();
    double started = seconds_now();
    if (amqp) result.messages = take_deliveries(fd, limit);
    else
        while (seconds_now() - started < limit) result.messages += pull(fd, ++opaque);
    result.seconds = seconds_now() - started;
    return result;
}

int main(int count, char **words)
{
    if (count != 5) {
        fprintf(stderr, "drain PORT rocketmq|amqp SECONDS CONNECTIONS\n");
        return 2;
    }
    return work_in_children(atoi(words[4]), drain, words);
}
