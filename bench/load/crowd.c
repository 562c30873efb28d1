/*
 * crowd PORT request|oneway CONNECTIONS SECONDS RATE BODY TOPICS STRIDE COUNT: RocketMQ sends over many topics and connections.
 *
 *   request  one in flight on each connection, every answer awaited; RATE messages per second over all of them in turn (0: as fast as
 *            they are answered)
 *   oneway   nothing is answered, the connections are kept full, one after the other; RATE is not looked at. The backend is `sink rocketmq`
 *
 * Message n is for topic n * STRIDE modulo TOPICS. It ends after SECONDS, or after COUNT messages (0: no such end). First it opens all
 * connections (request: and has one message answered on each of them, all for topic 0), prints "ready", and waits for a line on its
 * standard input; then it works and prints {"messages": n, "seconds": s, ...}; the connections stay open until its input ends (oneway:
 * the sending sides are closed before, because that is how the sink is asked whether everything has arrived).
 * `worst` lists the longest answers as [second of the monotonic clock at which it was sent, microseconds].
 */
#include "latency.h"

#define MAX_CONNECTIONS 12000
#define WORST 20
#define BATCH (512 * 1024)
#define TOPIC "bench-0000000"
#define TOPIC_DIGITS 7

struct connection {
    int fd, busy;
    uint32_t opaque;
    size_t filled;
    double sent;
    char reply[1024];
};

static struct {
    double at, took;
} worst[WORST];

static struct connection *connections;
static int wanted;
static uint64_t next_message, topics, stride;
static char *frame;
static size_t frame_size, opaque_at, topic_at;

static void put_digits(char *at, int count, uint64_t value)
{
    for (int i = count - 1; i >= 0; i--, value /= 10) at[i] = (char)('0' + value % 10);
}

static uint64_t topic_of(uint64_t message)
{
    return message * stride % topics;
}

static void make_frame(int oneway, size_t body)
{
    frame = malloc(body + 2048);
    frame_size = rocketmq_send(frame, TOPIC, OPAQUE_LEAST, oneway, body, &opaque_at);
    char *topic = memmem(frame, frame_size, TOPIC, strlen(TOPIC));
    topic_at = (size_t)(topic - frame) + strlen(TOPIC) - TOPIC_DIGITS;
}

static void send_one(struct connection *connection, uint64_t topic)
{
    connection->opaque = (connection->opaque + 1) % 8000000;
    put_digits(frame + opaque_at, OPAQUE_DIGITS, OPAQUE_LEAST + connection->opaque);
    put_digits(frame + topic_at, TOPIC_DIGITS, topic);
    connection->filled = 0;
    connection->busy = 1;
    connection->sent = seconds_now();
    write_all(connection->fd, frame, frame_size);
}

static void note_worst(double at, double took)
{
    if (took <= worst[WORST - 1].took) return;
    int place = WORST - 1;
    for (; place > 0 && worst[place - 1].took < took; place--) worst[place] = worst[place - 1];
    worst[place].at = at;
    worst[place].took = took;
}

/* Returns 1 when the answer was whole. */
static int take_reply(struct connection *connection)
{
    ssize_t got = read(connection->fd, connection->reply + connection->filled, sizeof connection->reply - connection->filled);
    if (got <= 0) fail("a connection ended");
    connection->filled += (size_t)got;
    if (connection->filled < 4 || connection->filled < 4 + (size_t)get_u32(connection->reply)) return 0;
    char expected[40];
    int length = snprintf(expected, sizeof expected, "\"opaque\":%u,", OPAQUE_LEAST + connection->opaque);
    if (!memmem(connection->reply, connection->filled, expected, (size_t)length)
        || !memmem(connection->reply, connection->filled, "\"code\":0,", 9)) {
        fprintf(stderr, "crowd: not the answer expected: %.*s\n", (int)connection->filled - 8, connection->reply + 8);
        exit(1);
    }
    connection->busy = 0;
    return 1;
}

static void take_answer(int poll)
{
    struct epoll_event ready[256];
    int found = epoll_wait(poll, ready, 256, 10000);
    if (found <= 0) fail("no answer for 10 s");
    for (int i = 0; i < found; i++) take_reply(&connections[ready[i].data.u32]);
}

/* All connections open, the gateway's own to the broker too: it dials when it has heard something. */
static void open_all(const char *port, int poll)
{
    for (int i = 0; i < wanted; i++) {
        connections[i].fd = connect_to(port);
        connections[i].opaque = (uint32_t)i * 7919 % 8000000;
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(poll, EPOLL_CTL_ADD, connections[i].fd, &event);
        send_one(&connections[i], 0);
        while (connections[i].busy) take_answer(poll);
    }
}

static void requests(const char *port, double limit, double rate, uint64_t most)
{
    int poll = epoll_create1(0), turn = 0, outstanding = 0;
    open_all(port, poll);
    say_ready();
    double started = seconds_now(), now = started;
    struct epoll_event ready[256];
    if (!rate) {
        for (int i = 0; i < wanted && (!most || next_message < most); i++, outstanding++) send_one(&connections[i], topic_of(next_message++));
    }
    for (;;) {
        int over = now - started >= limit || (most && next_message >= most);
        if (over && !outstanding) break;
        double wait = 10;
        if (rate && !over) {
            while (outstanding < wanted && now - started >= (double)next_message / rate && (!most || next_message < most)) {
                while (connections[turn].busy) turn = (turn + 1) % wanted;
                send_one(&connections[turn], topic_of(next_message++));
                turn = (turn + 1) % wanted;
                outstanding++;
            }
            double due = (double)next_message / rate - (seconds_now() - started);
            if (outstanding < wanted) wait = due > 0 ? due : 0;
            if (wait > limit) wait = limit;
        }
        struct timespec patience = {(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)};
        int found = epoll_pwait2(poll, ready, 256, &patience, NULL);
        if (found < 0) fail("epoll_pwait2");
        if (!found && outstanding && wait >= 10) fail("no answer for 10 s");
        for (int i = 0; i < found; i++) {
            struct connection *connection = &connections[ready[i].data.u32];
            if (!take_reply(connection)) continue;
            double took = seconds_now() - connection->sent;
            note_latency(took);
            note_worst(connection->sent, took);
            outstanding--;
            if (!rate && seconds_now() - started < limit && (!most || next_message < most)) {
                send_one(connection, topic_of(next_message++));
                outstanding++;
            }
        }
        now = seconds_now();
    }
    printf("{\"messages\": %llu, \"seconds\": %.4f", (unsigned long long)noted, seconds_now() - started);
    print_quantiles();
    printf(", \"worst\": [");
    for (int i = 0; i < WORST && worst[i].took > 0; i++) printf("%s[%.6f, %.0f]", i ? ", " : "", worst[i].at, worst[i].took * 1e6);
    printf("]}\n");
}

/* What the sink says at the end: the bytes it received. */
static uint64_t be_told(int fd)
{
    char head[4], payload[4096] = {0};
    read_all(fd, head, 4);
    if (get_u32(head) > sizeof payload - 1) fail("a last frame too large");
    read_all(fd, payload, get_u32(head));
    const char *remark = strstr(payload + 4, "\"remark\":\"");
    return remark ? strtoull(remark + 10, NULL, 16) : 0;
}

static void oneway(const char *port, double limit, uint64_t most)
{
    size_t frames = BATCH / frame_size + 1;
    char *batch = malloc(frames * frame_size);
    uint64_t *sent = calloc((size_t)wanted, sizeof *sent);
    for (size_t i = 0; i < frames; i++) memcpy(batch + i * frame_size, frame, frame_size);
    for (int i = 0; i < wanted; i++) connections[i].fd = connect_to(port);
    say_ready();
    double started = seconds_now();
    for (int turn = 0; seconds_now() - started < limit && (!most || next_message < most); turn = (turn + 1) % wanted) {
        size_t count = most && most - next_message < frames ? (size_t)(most - next_message) : frames;
        for (size_t i = 0; i < count; i++) put_digits(batch + i * frame_size + topic_at, TOPIC_DIGITS, topic_of(next_message++));
        write_all(connections[turn].fd, batch, count * frame_size);
        sent[turn] += count;
    }
    for (int i = 0; i < wanted; i++) {
        if (!sent[i]) continue;
        shutdown(connections[i].fd, SHUT_WR);
        uint64_t arrived = be_told(connections[i].fd);
        if (arrived != sent[i] * frame_size) {
            fprintf(stderr, "crowd: sent %llu bytes, %llu arrived\n", (unsigned long long)(sent[i] * frame_size), (unsigned long long)arrived);
            exit(1);
        }
    }
    printf("{\"messages\": %llu, \"seconds\": %.4f}\n", (unsigned long long)next_message, seconds_now() - started);
}

int main(int count, char **words)
{
    if (count != 10) {
        fprintf(stderr, "crowd PORT request|oneway CONNECTIONS SECONDS RATE BODY TOPICS STRIDE COUNT\n");
        return 2;
    }
    wanted = atoi(words[3]);
    topics = strtoull(words[7], NULL, 10);
    stride = strtoull(words[8], NULL, 10);
    if (wanted < 1 || wanted > MAX_CONNECTIONS || topics < 1 || topics > 9999999) {
        fprintf(stderr, "crowd: 1 to %d connections, 1 to 9999999 topics\n", MAX_CONNECTIONS);
        return 2;
    }
    connections = calloc((size_t)wanted, sizeof *connections);
    int one_way = strcmp(words[2], "oneway") == 0;
    make_frame(one_way, (size_t)atoi(words[6]));
    if (one_way)
        oneway(words[1], atof(words[4]), strtoull(words[9], NULL, 10));
    else
        requests(words[1], atof(words[4]), atof(words[5]), strtoull(words[9], NULL, 10));
    await_leave();
    return 0;
}
