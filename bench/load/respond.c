/*
 * respond PORT [amqp]: a broker that stores nothing. RocketMQ: answers every request frame with SEND_OK and the request's opaque. AMQP: shakes
 * hands, and confirms with one basic.ack all publishes that one read has completed (`multiple` where they are several).
 * Any number of connections, one thread, until killed.
 */
#include <stddef.h>

#include "amqp_client.h"

#define MAX_FD 4096
#define BUFFER 65536

struct client {
    size_t filled;
    int greeted;              /* AMQP: the protocol header has come */
    uint64_t published, body; /* AMQP: publishes that are whole, and the bytes which the one under way still lacks */
    char buffer[BUFFER];
};

static struct client *clients[MAX_FD];

/* ---- RocketMQ ---- */

static size_t rocketmq_answer(char *out, const char *frame, size_t size)
{
    const char *opaque = memmem(frame, size, "\"opaque\":", 9);
    if (!opaque) fail("a request without opaque");
    char header[512];
    int length = snprintf(header, sizeof header, "{\"code\":0,\"extFields\":{\"queueId\":\"1\",\"TRACE_ON\":\"true\",\"MSG_REGION\":\"DefaultRegion\","
        "\"msgId\":\"7F00000100002A9F00000000000A1B2C\",\"queueOffset\":\"123456\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":%lu,"
        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}", strtoul(opaque + 9, NULL, 10));
    put_u32(put_u32(out, (uint32_t)length + 4), (uint32_t)length);
    memcpy(out + 8, header, (size_t)length);
    return 8 + (size_t)length;
}

/* Answers the frames that are whole; returns how many bytes they were. */
static size_t rocketmq(int fd, struct client *client)
{
    static char out[BUFFER * 4];
    size_t done = 0, size = 0;
    while (client->filled - done >= 4) {
        size_t frame = 4 + (size_t)get_u32(client->buffer + done);
        if (frame > BUFFER) fail("a frame larger than the buffer");
        if (client->filled - done < frame) break;
        size += rocketmq_answer(out + size, client->buffer + done, frame);
        done += frame;
    }
    if (size) write_all(fd, out, size);
    return done;
}

/* ---- AMQP ---- */

static void take_method(int fd, struct client *client, const char *payload)
{
    switch (get_u32(payload)) {
    case 0x000A000B: TELL(fd, 0, "\0\012\0\036" "\007\377" "\0\002\0\0" "\0\0"); break; /* start-ok: tune, frame_max 131072, no heartbeat */
    case 0x000A001F: break;                                                           /* tune-ok */
    case 0x000A0028: TELL(fd, 0, "\0\012\0\051" "\0"); break;                           /* open: open-ok */
    case 0x000A0032: TELL(fd, 0, "\0\012\0\063"); break;                               /* close: close-ok */
    case 0x0014000A: TELL(fd, 1, "\0\024\0\013" "\0\0\0\0"); break;                     /* channel.open: open-ok */
    case 0x0055000A: client->published = 0; TELL(fd, 1, "\0\125\0\013"); break;         /* confirm.select: select-ok */
    case 0x003C0028: break;                                                           /* basic.publish */
    default:
        fprintf(stderr, "respond: no answer to method %08x\n", get_u32(payload));
        exit(1);
    }
}

static void take_frame(int fd, struct client *client, const char *frame, size_t size)
{
    uint64_t body;
    switch (frame[0]) {
    case 1: take_method(fd, client, frame + 7); break;
    case 2:
        body = (uint64_t)get_u32(frame + 11) << 32 | get_u32(frame + 15);
        client->body = body;
        client->published += body == 0;
        break;
    case 3:
        client->body -= size - 8;
        client->published += client->body == 0;
        break;
    default: break; /* heartbeat */
    }
}

static size_t amqp(int fd, struct client *client)
{
    size_t done = 0;
    uint64_t before = client->published;
    if (!client->greeted) {
        if (client->filled < 8) return 0;
        client->greeted = 1;
        done = 8;
        TELL(fd, 0, "\0\012\0\012" "\0\011" "\0\0\0\0" "\0\0\0\005PLAIN" "\0\0\0\005en_US");
    }
    while (client->filled - done >= 8) {
        size_t frame = 8 + (size_t)get_u32(client->buffer + done + 3);
        if (frame > BUFFER) fail("a frame larger than the buffer");
        if (client->filled - done < frame) break;
        take_frame(fd, client, client->buffer + done, frame);
        done += frame;
    }
    if (client->published > before) {
        char payload[13], *at = put_u32(put_u32(put_u32(payload, BASIC_ACK), (uint32_t)(client->published >> 32)), (uint32_t)client->published);
        *at = client->published > before + 1; /* multiple */
        tell(fd, 1, payload, sizeof payload);
    }
    return done;
}

/* ---- both ---- */

/* Returns 0 when the connection is over. */
static int serve(int fd, size_t (*answer)(int, struct client *))
{
    struct client *client = clients[fd];
    ssize_t got = read(fd, client->buffer + client->filled, BUFFER - client->filled);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    client->filled += (size_t)got;
    size_t done = answer(fd, client);
    memmove(client->buffer, client->buffer + done, client->filled - done);
    client->filled -= done;
    return 1;
}

int main(int count, char **words)
{
    if (count != 2 && (count != 3 || strcmp(words[2], "amqp") != 0)) {
        fprintf(stderr, "respond PORT [amqp]\n");
        return 2;
    }
    int server = listen_on(words[1]), poll = epoll_create1(0);
    size_t (*answer)(int, struct client *) = count == 3 ? amqp : rocketmq;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = server}, ready[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, server, &event);
    for (;;) {
        int found = epoll_wait(poll, ready, 256, -1);
        for (int i = 0; i < found; i++) {
            int fd = ready[i].data.fd;
            if (fd == server) {
                int client = accept(server, NULL, NULL);
                if (client < 0 || client >= MAX_FD) fail("accept");
                without_delay(client);
                if (!clients[client]) clients[client] = malloc(sizeof *clients[client]);
                memset(clients[client], 0, offsetof(struct client, buffer));
                event.data.fd = client;
                epoll_ctl(poll, EPOLL_CTL_ADD, client, &event);
            } else if (!serve(fd, answer)) {
                close(fd);
            }
        }
    }
}
