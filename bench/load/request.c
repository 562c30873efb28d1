/*
 * request PORT CONNECTIONS SECONDS BODY|traffic[:TOPICS] [TOPIC CODE [TOPIC CODE]]: RocketMQ sends, one in flight on each connection, for
 * that many seconds. Each is to be answered with its topic's response code (default: bench.requests 0); of two topics each connection takes
 * one in turn. Traffic has topics of its own where the code is 0.
 * Prints "ready" once each connection has had a first answer, and begins after a line on its standard input; then prints {"messages": n,
 * "seconds": s, "p50_us": a, "p99_us": b, "p999_us": c}, and leaves when that input ends. A reply with a wrong opaque or code ends it with
 * an error.
 */
#include "latency.h"
#include "traffic.h"

#define MAX_CONNECTIONS 1024
#define MAX_KINDS 512 /* messages of traffic that are sent again and again */

struct connection {
    uint32_t opaque;
    size_t filled;
    double sent;
    char reply[1024];
};

struct kind {
    char *frame;
    size_t size, opaque_at;
    long code; /* of the reply */
};

static struct connection connections[MAX_CONNECTIONS];
static struct kind kinds[MAX_KINDS];
static uint32_t kinds_used = 1;

static uint32_t opaque_of(const struct connection *connection)
{
    return OPAQUE_LEAST + connection->opaque % 8000000;
}

static struct kind *kind_of(const struct connection *connection)
{
    return &kinds[connection->opaque % kinds_used];
}

static void send_one(int fd, struct connection *connection)
{
    char digits[OPAQUE_DIGITS + 1];
    connection->opaque++;
    struct kind *kind = kind_of(connection);
    snprintf(digits, sizeof digits, "%u", opaque_of(connection));
    memcpy(kind->frame + kind->opaque_at, digits, OPAQUE_DIGITS);
    connection->filled = 0;
    connection->sent = seconds_now();
    write_all(fd, kind->frame, kind->size);
}

/* The number that follows a name in a reply's JSON header; -1 where there is none. */
static long number_after(const struct connection *connection, const char *name)
{
    const char *at = memmem(connection->reply, connection->filled, name, strlen(name));
    return at ? strtol(at + strlen(name), NULL, 10) : -1;
}

/* Returns 1 when the reply was whole. */
static int take_reply(int fd, struct connection *connection)
{
    ssize_t got = read(fd, connection->reply + connection->filled, sizeof connection->reply - 1 - connection->filled);
    if (got <= 0) fail("a connection ended");
    connection->filled += (size_t)got;
    if (connection->filled < 4 || connection->filled < 4 + (size_t)get_u32(connection->reply)) return 0;
    connection->reply[connection->filled] = 0;
    if (number_after(connection, "\"opaque\":") != (long)opaque_of(connection)
        || number_after(connection, "\"code\":") != kind_of(connection)->code) {
        fprintf(stderr, "request: not the reply expected: %.*s\n", (int)connection->filled - 8, connection->reply + 8);
        exit(1);
    }
    return 1;
}

int main(int count, char **words)
{
    if ((count != 5 && count != 7 && count != 9) || atoi(words[2]) > MAX_CONNECTIONS) {
        fprintf(stderr, "request PORT CONNECTIONS SECONDS BODY|traffic[:TOPICS] [TOPIC CODE [TOPIC CODE]]\n");
        return 2;
    }
    int wanted = atoi(words[2]), poll = epoll_create1(0), fds[MAX_CONNECTIONS];
    double limit = atof(words[3]);
    int traffic = is_traffic(words[4]), given = count == 9 ? 2 : 1;
    size_t body = (size_t)atoi(words[4]);
    kinds_used = traffic ? MAX_KINDS : (uint32_t)given;
    for (uint32_t i = 0; i < kinds_used; i++) {
        char **pair = words + 5 + 2 * (i % (uint32_t)given);
        const char *topic = count > 5 ? pair[0] : "bench.requests";
        kinds[i].code = count > 5 ? atol(pair[1]) : 0;
        if (traffic && kinds[i].code == 0) topic = any_topic_name();
        if (traffic) body = any_body();
        kinds[i].frame = malloc(body + 2048);
        kinds[i].size = rocketmq_send(kinds[i].frame, topic, OPAQUE_LEAST, 0, body, &kinds[i].opaque_at);
    }
    for (int i = 0; i < wanted; i++) {
        fds[i] = connect_to(words[1]);
        connections[i].opaque = (uint32_t)i * 7919;
        send_one(fds[i], &connections[i]);
        while (!take_reply(fds[i], &connections[i])) continue; /* only then a proxy has accepted, and connected in its turn */
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(poll, EPOLL_CTL_ADD, fds[i], &event);
    }
    say_ready();
    double started = seconds_now(), now = started;
    for (int i = 0; i < wanted; i++) send_one(fds[i], &connections[i]);
    struct epoll_event ready[256];
    int outstanding = wanted;
    while (outstanding > 0) {
        int found = epoll_wait(poll, ready, 256, 10000);
        if (found <= 0) fail("no reply for 10 s");
        for (int i = 0; i < found; i++) {
            struct connection *connection = &connections[ready[i].data.u32];
            if (!take_reply(fds[ready[i].data.u32], connection)) continue;
            note_latency(seconds_now() - connection->sent);
            if (now - started < limit)
                send_one(fds[ready[i].data.u32], connection);
            else
                outstanding--;
        }
        now = seconds_now();
    }
    printf("{\"messages\": %llu, \"seconds\": %.4f", (unsigned long long)noted, seconds_now() - started);
    print_quantiles();
    printf("}\n");
    await_leave();
    return 0;
}
