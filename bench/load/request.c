/*
 * request PORT CONNECTIONS SECONDS BODY: RocketMQ sends, one in flight on each connection, for that many seconds.
 * Prints {"messages": n, "seconds": s, "p50_us": a, "p99_us": b}. A reply with a wrong opaque or code ends it with an error.
 */
#include "latency.h"

#define MAX_CONNECTIONS 1024

struct connection {
    uint32_t opaque;
    size_t filled;
    double sent;
    char reply[1024];
};

static struct connection connections[MAX_CONNECTIONS];
static char *frame;
static size_t frame_size, opaque_at;

static void send_one(int fd, struct connection *connection)
{
    char digits[OPAQUE_DIGITS + 1];
    connection->opaque++;
    snprintf(digits, sizeof digits, "%u", OPAQUE_LEAST + connection->opaque % 8000000);
    memcpy(frame + opaque_at, digits, OPAQUE_DIGITS);
    connection->filled = 0;
    connection->sent = seconds_now();
    write_all(fd, frame, frame_size);
}

/* Returns 1 when the reply was whole. */
static int take_reply(int fd, struct connection *connection)
{
    ssize_t got = read(fd, connection->reply + connection->filled, sizeof connection->reply - connection->filled);
    if (got <= 0) fail("a connection ended");
    connection->filled += (size_t)got;
    if (connection->filled < 4 || connection->filled < 4 + (size_t)get_u32(connection->reply)) return 0;
    char expected[40];
    int length = snprintf(expected, sizeof expected, "\"opaque\":%u,", OPAQUE_LEAST + connection->opaque % 8000000);
    if (!memmem(connection->reply, connection->filled, expected, (size_t)length)
        || !memmem(connection->reply, connection->filled, "\"code\":0,", 9)) {
        fprintf(stderr, "request: not the reply expected: %.*s\n", (int)connection->filled - 8, connection->reply + 8);
        exit(1);
    }
    note_latency(seconds_now() - connection->sent);
    return 1;
}

int main(int count, char **words)
{
    if (count != 5 || atoi(words[2]) > MAX_CONNECTIONS) {
        fprintf(stderr, "request PORT CONNECTIONS SECONDS BODY\n");
        return 2;
    }
    int wanted = atoi(words[2]), poll = epoll_create1(0), fds[MAX_CONNECTIONS];
    double limit = atof(words[3]);
    size_t body = (size_t)atoi(words[4]);
    frame = malloc(body + 2048);
    frame_size = rocketmq_send(frame, "bench_requests", OPAQUE_LEAST, 0, body, &opaque_at);
    for (int i = 0; i < wanted; i++) {
        fds[i] = connect_to(words[1]);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(poll, EPOLL_CTL_ADD, fds[i], &event);
    }
    double started = seconds_now(), now = started;
    for (int i = 0; i < wanted; i++) {
        connections[i].opaque = (uint32_t)i * 7919;
        send_one(fds[i], &connections[i]);
    }
    uint64_t messages = 0;
    struct epoll_event ready[256];
    int outstanding = wanted;
    while (outstanding > 0) {
        int found = epoll_wait(poll, ready, 256, 10000);
        if (found <= 0) fail("no reply for 10 s");
        for (int i = 0; i < found; i++) {
            struct connection *connection = &connections[ready[i].data.u32];
            if (!take_reply(fds[ready[i].data.u32], connection)) continue;
            messages++;
            if (now - started < limit)
                send_one(fds[ready[i].data.u32], connection);
            else
                outstanding--;
        }
        now = seconds_now();
    }
    printf("{\"messages\": %llu, \"seconds\": %.4f, \"p50_us\": %zu, \"p99_us\": %zu}\n", (unsigned long long)messages,
        seconds_now() - started, quantile(messages, 0.5), quantile(messages, 0.99));
    return 0;
}
