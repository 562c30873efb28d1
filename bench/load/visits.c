/*
 * visits PORT rocketmq|amqp SECONDS CONNECTIONS MESSAGES: clients that come, have MESSAGES messages of traffic answered, and go, one after
 * the other; so many at a time, each in a process of its own. The backend is `respond`.
 * Prints "ready" when all have been there once, and begins after a line on its standard input; then prints {"messages": n, "seconds": s}.
 */
#include "amqp_client.h"
#include "children.h"
#include "traffic.h"

#define MOST_MESSAGES 100

/* AMQP publishes with confirms. */
static void visit_amqp(const char *port, uint64_t count)
{
    static char out[MOST_MESSAGES * (MOST_BODY + 1024)];
    char payload[4096];
    size_t size = 0;
    int fd = connect_to(port);
    shake_hands(fd);
    TELL(fd, 1, "\0\125\0\012" "\0");
    expect(fd, CONFIRM_SELECT_OK);
    for (uint64_t i = 0; i < count; i++) size += traffic_publish(out + size, "amq.topic", any_key());
    write_all(fd, out, size);
    for (uint64_t confirmed = 0; confirmed < count;) {
        if (hear(fd, payload) != BASIC_ACK) fail("not a confirm");
        confirmed = (uint64_t)get_u32(payload + 4) << 32 | get_u32(payload + 8); /* `respond` confirms in order */
    }
    close_connection(fd);
}

/* RocketMQ sends, each answered before the next. */
static void visit_rocketmq(const char *port, uint64_t count)
{
    static char frame[MOST_BODY + 2048];
    char reply[1024];
    size_t opaque_at;
    int fd = connect_to(port);
    for (uint64_t i = 0; i < count; i++) {
        size_t size = rocketmq_send(frame, any_topic_name(), OPAQUE_LEAST + (uint32_t)i, 0, any_body(), &opaque_at);
        write_all(fd, frame, size);
        read_all(fd, reply, 4);
        size_t answer = get_u32(reply);
        if (answer >= sizeof reply) fail("a reply too large");
        read_all(fd, reply, answer);
        reply[answer] = 0;
        if (!memmem(reply, answer, "\"code\":0,", 9)) fail("not the reply expected");
    }
    close(fd);
}

static struct result visit(char **words)
{
    void (*one)(const char *, uint64_t) = strcmp(words[2], "amqp") == 0 ? visit_amqp : visit_rocketmq;
    double limit = atof(words[3]);
    uint64_t count = (uint64_t)atoi(words[5]);
    struct result result = {0, 0};
    one(words[1], count);
    await_begin();
    double started = seconds_now();
    for (; seconds_now() - started < limit; result.messages += count) one(words[1], count);
    result.seconds = seconds_now() - started;
    return result;
}

int main(int count, char **words)
{
    if (count != 6 || atoi(words[5]) > MOST_MESSAGES) {
        fprintf(stderr, "visits PORT rocketmq|amqp SECONDS CONNECTIONS MESSAGES\n");
        return 2;
    }
    is_traffic("traffic");
    return work_in_children(atoi(words[4]), visit, words);
}
