/*
 * pour PORT rocketmq|amqp: a broker whose queues never end, each connection in a process of its own. AMQP: plays the broker's part of the
 * handshake; behind basic.consume come deliveries of traffic, numbered, until basic.cancel. RocketMQ: answers every pull with PULLED
 * messages of traffic. Any other request is answered, too: the gateway asks whether the broker lives.
 */
#include <poll.h>

#include "amqp_broker.h"
#include "traffic.h"

#define BATCH (256 * 1024)
#define PULLED 32
#define ANSWERS 16 /* of pulls, made once */

/* ---- AMQP ---- */

/* Hears frames up to `method` on channel 1, and answers connection.close. Returns 0 at the end of the connection. */
static int hear_method(int fd, uint32_t method)
{
    char head[7], payload[4096];
    for (;;) {
        if (recv(fd, head, 1, MSG_PEEK) <= 0) return 0;
        read_all(fd, head, 7);
        uint32_t size = get_u32(head + 3);
        if (size > sizeof payload - 1) fail("a frame too large");
        read_all(fd, payload, size + 1);
        if (head[0] == 1 && get_u32(payload) == 0x000A0032) TELL(fd, 0, "\0\012\0\063"); /* close: close-ok */
        if (head[0] == 1 && get_u32(payload) == method) return 1;
    }
}

static void pour_amqp(int fd)
{
    static char batch[BATCH + MOST_BODY + 1024];
    static size_t tag_at[BATCH / LEAST_BODY];
    size_t size = 0, count = 0;
    for (; size < BATCH; count++) {
        tag_at[count] = size + 7 + 4 + 6; /* behind the frame's head, class and method, and the consumer's tag */
        size += traffic_deliver(batch + size, 0);
    }
    play_handshake(fd);
    if (!hear_method(fd, 0x003C0014)) return; /* basic.consume */
    TELL(fd, 1, "\0\074\0\025" "\005bench");
    struct pollfd heard = {.fd = fd, .events = POLLIN};
    uint64_t tag = 0;
    while (poll(&heard, 1, 0) == 0) {
        for (size_t i = 0; i < count; i++) {
            tag++;
            put_u32(put_u32(batch + tag_at[i], (uint32_t)(tag >> 32)), (uint32_t)tag);
        }
        write_all(fd, batch, size);
    }
    if (!hear_method(fd, 0x003C001E)) return; /* basic.cancel */
    TELL(fd, 1, "\0\074\0\037" "\005bench");
    hear_method(fd, 0);
}

/* ---- RocketMQ ---- */

/* One message as a broker stores it and answers with it. Returns where it ends. */
static char *put_stored(char *out, uint64_t offset)
{
    static const char properties[] = "UNIQ_KEY\1" "7F000001000018B4AAC2000000000001" "\2WAIT\1true\2TAGS\1created";
    const char *topic = any_topic_name();
    size_t body = any_body();
    char *at = put_u32(put_u32(put_u32(put_u32(out + 4, 0xDAA320A7), 0), 4), 0); /* magic, checksum, queue, flag */
    at = put_u32(put_u32(put_u32(put_u32(at, 0), (uint32_t)offset), 0), (uint32_t)offset * 1200);
    at = put_u32(at, 0);                                                                 /* system flag */
    for (int i = 0; i < 2; i++) at = put_u32(put_u32(put_u32(put_u32(at, 417), 0xE1B2C3D4), 0x7F000001), 40000); /* born, stored */
    at = put_u32(put_u32(put_u32(put_u32(at, 0), 0), 0), (uint32_t)body);                /* reconsumed, prepared, body */
    memset(at, 'x', body);
    at = put_short_string(at + body, topic);
    at = put_u16(at, sizeof properties - 1);
    at = (char *)memcpy(at, properties, sizeof properties - 1) + sizeof properties - 1;
    put_u32(out, (uint32_t)(at - out));
    return at;
}

static void pour_rocketmq(int fd)
{
    static char requests[65536], answers[ANSWERS][PULLED * (MOST_BODY + 512)], out[PULLED * (MOST_BODY + 512) + 1024];
    size_t sizes[ANSWERS], filled = 0;
    for (int i = 0; i < ANSWERS; i++) {
        char *end = answers[i];
        for (uint64_t n = 0; n < PULLED; n++) end = put_stored(end, PULLED * (uint64_t)i + n);
        sizes[i] = (size_t)(end - answers[i]);
    }
    for (unsigned turn = 0;;) {
        ssize_t got = read(fd, requests + filled, sizeof requests - 1 - filled);
        if (got <= 0) return;
        filled += (size_t)got;
        while (filled >= 4 && filled >= 4 + (size_t)get_u32(requests)) {
            size_t frame = 4 + (size_t)get_u32(requests);
            const char *opaque = memmem(requests, frame, "\"opaque\":", 9);
            if (!opaque) fail("a request without opaque");
            int pulls = memmem(requests, frame, "\"queueOffset\"", 13) != NULL;
            int header = snprintf(out + 8, 1024,
                "{\"code\":0,\"extFields\":{\"maxOffset\":\"99999999\",\"minOffset\":\"0\",\"nextBeginOffset\":\"%u\","
                "\"suggestWhichBrokerId\":\"0\"},"
                "\"flag\":1,\"language\":\"JAVA\",\"opaque\":%lu,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
                turn * PULLED, strtoul(opaque + 9, NULL, 10));
            size_t body = pulls ? sizes[turn % ANSWERS] : 0;
            memcpy(out + 8 + header, answers[turn % ANSWERS], body);
            put_u32(put_u32(out, 4 + (uint32_t)header + (uint32_t)body), (uint32_t)header);
            write_all(fd, out, 8 + (size_t)header + body);
            turn += (unsigned)pulls;
            filled -= frame;
            memmove(requests, requests + frame, filled);
        }
    }
}

int main(int count, char **words)
{
    if (count != 3) {
        fprintf(stderr, "pour PORT rocketmq|amqp\n");
        return 2;
    }
    is_traffic("traffic");
    signal(SIGPIPE, SIG_IGN);
    int fd = accept_in_child(listen_on(words[1]));
    if (strcmp(words[2], "amqp") == 0) pour_amqp(fd);
    else pour_rocketmq(fd);
    return 0;
}
