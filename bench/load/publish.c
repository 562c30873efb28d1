/*
 * publish PORT CONNECTIONS SECONDS BODY|traffic[:TOPICS] WINDOW KEY acked|nacked [KEY acked|nacked]: AMQP publishes with confirms to
 * amq.topic, at most WINDOW of them unconfirmed on each connection, for that many seconds. Every publish must be confirmed exactly once,
 * and as the word after its routing key says; of two keys each connection takes one in turn. Traffic has its own keys where they are acked.
 * Prints "ready" once connected, and begins after a line on its standard input, until whose end the connections stay open.
 * Then prints {"messages": n, "seconds": s}, with WINDOW 1 also "p50_us", "p99_us" and "p999_us" from publish to confirm.
 */
#include "amqp_client.h"
#include "latency.h"
#include "traffic.h"

#define MAX_CONNECTIONS 1024
#define MAX_WINDOW 1024
#define RING 4096 /* tags between the lowest unconfirmed one and the last published one */
#define BUFFER 65536

struct connection {
    int fd;
    uint64_t published, low; /* tags: the last published; all up to `low` are confirmed */
    unsigned outstanding;
    double sent;
    size_t filled;
    char confirmed[RING];
    char buffer[BUFFER];
};

static struct connection *connections[MAX_CONNECTIONS];
static char *batch; /* publishes with the keys in turn, from each key on a whole window */
static size_t starts[2 * MAX_WINDOW + 1]; /* of each of them, and where the last one ends */
static size_t window;
static uint64_t keys = 1;
static uint32_t wanted[2]; /* the confirm of tags that are even, and of those that are odd */
static uint64_t messages;

static void publish(struct connection *connection)
{
    size_t count = window - connection->outstanding, room = RING - (size_t)(connection->published - connection->low);
    if (count > room) count = room;
    if (count == 0) return;
    size_t first = (connection->published + 1) % keys;
    for (size_t i = 0; i < count; i++) connection->confirmed[++connection->published % RING] = 0;
    connection->outstanding += (unsigned)count;
    connection->sent = seconds_now();
    write_all(connection->fd, batch + starts[first], starts[first + count] - starts[first]);
}

static void wrong(const char *what, uint64_t tag)
{
    fprintf(stderr, "publish: %s (tag %llu)\n", what, (unsigned long long)tag);
    exit(1);
}

static void confirm(struct connection *connection, uint32_t method, uint64_t tag, int multiple)
{
    if (tag > connection->published || tag <= connection->low) wrong("a confirm for a tag that is not outstanding", tag);
    for (uint64_t one = multiple ? connection->low + 1 : tag; one <= tag; one++) {
        char *confirmed = &connection->confirmed[one % RING];
        if (*confirmed && !multiple) wrong("confirmed twice", one);
        if (*confirmed) continue;
        if (method != wanted[one % keys]) wrong("confirmed otherwise than expected", one);
        *confirmed = 1;
        connection->outstanding--;
        messages++;
    }
    while (connection->low < connection->published && connection->confirmed[(connection->low + 1) % RING]) connection->low++;
    if (window == 1) note_latency(seconds_now() - connection->sent);
}

static void take(struct connection *connection)
{
    ssize_t got = read(connection->fd, connection->buffer + connection->filled, BUFFER - connection->filled);
    if (got <= 0) fail("a connection ended");
    connection->filled += (size_t)got;
    size_t done = 0;
    while (connection->filled - done >= 8) {
        const char *frame = connection->buffer + done;
        size_t size = 8 + (size_t)get_u32(frame + 3);
        if (size > BUFFER) fail("a frame larger than the buffer");
        if (connection->filled - done < size) break;
        done += size;
        if (frame[0] == 8) continue; /* heartbeat */
        uint32_t method = get_u32(frame + 7);
        if (method != BASIC_ACK && method != BASIC_NACK) wrong("not a confirm, but a frame of method or type", method);
        confirm(connection, method, (uint64_t)get_u32(frame + 11) << 32 | get_u32(frame + 15), frame[19] & 1);
    }
    memmove(connection->buffer, connection->buffer + done, connection->filled - done);
    connection->filled -= done;
}

int main(int count, char **words)
{
    if ((count != 8 && count != 10) || atoi(words[2]) > MAX_CONNECTIONS || atoi(words[5]) > MAX_WINDOW) {
        fprintf(stderr, "publish PORT CONNECTIONS SECONDS BODY|traffic[:TOPICS] WINDOW KEY acked|nacked [KEY acked|nacked]\n");
        return 2;
    }
    int total = atoi(words[2]), poll = epoll_create1(0);
    double limit = atof(words[3]);
    int traffic = is_traffic(words[4]);
    size_t body = traffic ? MOST_BODY : (size_t)atoi(words[4]);
    window = (size_t)atoi(words[5]);
    keys = count == 10 ? 2 : 1;
    for (uint64_t i = 0; i < keys; i++) wanted[i] = strcmp(words[7 + 2 * i], "acked") == 0 ? BASIC_ACK : BASIC_NACK;
    batch = malloc(2 * window * (body + 1024));
    for (size_t i = 0; i < 2 * window; i++) {
        const char *key = words[6 + 2 * (i % keys)];
        if (!traffic) starts[i + 1] = starts[i] + amqp_publish(batch + starts[i], "amq.topic", key, body);
        else starts[i + 1] = starts[i] + traffic_publish(batch + starts[i], "amq.topic", wanted[i % keys] == BASIC_ACK ? any_key() : key);
    }
    for (int i = 0; i < total; i++) {
        connections[i] = calloc(1, sizeof *connections[i]);
        int fd = connections[i]->fd = connect_to(words[1]);
        shake_hands(fd);
        TELL(fd, 1, "\0\125\0\012" "\0");
        expect(fd, CONFIRM_SELECT_OK);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
    }
    say_ready();
    double started = seconds_now(), now = started;
    for (int i = 0; i < total; i++) publish(connections[i]);
    struct epoll_event ready[256];
    int working = total;
    while (working > 0) {
        int found = epoll_wait(poll, ready, 256, 10000);
        if (found <= 0) fail("no confirm for 10 s");
        for (int i = 0; i < found; i++) {
            struct connection *connection = connections[ready[i].data.u32];
            take(connection);
            if (now - started < limit)
                publish(connection);
            else if (connection->outstanding == 0)
                working--;
        }
        now = seconds_now();
    }
    double elapsed = now - started;
    printf("{\"messages\": %llu, \"seconds\": %.4f", (unsigned long long)messages, elapsed);
    if (window == 1) print_quantiles();
    printf("}\n");
    await_leave();
    for (int i = 0; i < total; i++) close_connection(connections[i]->fd);
    return 0;
}
