/*
 * sink PORT rocketmq|amqp: takes everything and keeps nothing, each connection in a process of its own. For AMQP it first plays the broker's
 * part of the handshake. At the end of a connection it says how many bytes came after the handshake, so that the sender knows that
 * everything has arrived: in a well-formed frame, because a proxy may decode (AMQP: basic.ack with that tag; RocketMQ: a
 * reply with that remark). The gateway ends an AMQP connection by connection.close, which is answered.
 */
#include "amqp_broker.h"

#define BUFFER (1 << 20)
#define QUESTION "sluice-looks-for-a-broker" /* whether the broker lives (gateway/protocols/rocketmq/question.py): any reply will do */

static char buffer[BUFFER];

static void tell_received(int fd, int amqp, uint64_t received)
{
    char payload[256], *at;
    if (amqp) {
        at = put_u32(put_u32(put_u32(payload, 0x003C0050), (uint32_t)(received >> 32)), (uint32_t)received);
        *at++ = 0;
        tell(fd, 1, payload, (size_t)(at - payload));
        return;
    }
    int size = snprintf(payload + 8, sizeof payload - 8, "{\"code\":0,\"flag\":1,\"language\":\"JAVA\",\"opaque\":1,\"remark\":\"%016llx\"}",
        (unsigned long long)received);
    put_u32(put_u32(payload, (uint32_t)size + 4), (uint32_t)size);
    write_all(fd, payload, (size_t)size + 8);
}

/* Where connection.close begins in `data`; `size` where it is not there. Written by itself behind all else, it comes in one piece. */
static size_t begin_of_close(const char *data, size_t size)
{
    static const char method[] = "\0\012\0\062\0\310"; /* and the reply code, 200 */
    size_t from = size > 512 ? size - 512 : 0;
    const char *found = memmem(data + from, size - from, method, sizeof method - 1);
    return found != NULL && found - data >= 7 ? (size_t)(found - data) - 7 : size;
}

int main(int count, char **words)
{
    if (count != 3) {
        fprintf(stderr, "sink PORT rocketmq|amqp\n");
        return 2;
    }
    int amqp = strcmp(words[2], "amqp") == 0, fd = accept_in_child(listen_on(words[1]));
    if (amqp) play_handshake(fd);
    uint64_t received = 0;
    ssize_t got;
    while ((got = read(fd, buffer, BUFFER)) > 0) {
        size_t close = amqp ? begin_of_close(buffer, (size_t)got) : (size_t)got;
        if (close < (size_t)got) { /* the gateway ends the connection in words */
            tell_received(fd, 1, received + close);
            TELL(fd, 0, "\0\012\0\063");
            while (read(fd, buffer, BUFFER) > 0) {}
            return 0;
        }
        if (received == 0 && !amqp && memmem(buffer, (size_t)got, QUESTION, sizeof QUESTION - 1)) tell_received(fd, 0, 0);
        received += (uint64_t)got;
    }
    if (got == 0) tell_received(fd, amqp, received);
    return 0;
}
