/*
 * respond PORT: a RocketMQ broker that stores nothing: answers every request frame with SEND_OK and the request's opaque.
 * Any number of connections, one thread, until killed.
 */
#include "common.h"

#define MAX_FD 4096
#define BUFFER 65536

struct client {
    size_t filled;
    char buffer[BUFFER];
};

static struct client *clients[MAX_FD];

static size_t answer(char *out, const char *frame, size_t size)
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

/* Returns 0 when the connection is over. */
static int serve(int fd)
{
    static char out[BUFFER * 4];
    struct client *client = clients[fd];
    ssize_t got = read(fd, client->buffer + client->filled, BUFFER - client->filled);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    client->filled += (size_t)got;
    size_t done = 0, size = 0;
    while (client->filled - done >= 4) {
        size_t frame = 4 + (size_t)get_u32(client->buffer + done);
        if (frame > BUFFER) fail("a frame larger than the buffer");
        if (client->filled - done < frame) break;
        size += answer(out + size, client->buffer + done, frame);
        done += frame;
    }
    memmove(client->buffer, client->buffer + done, client->filled - done);
    client->filled -= done;
    if (size) write_all(fd, out, size);
    return 1;
}

int main(int count, char **words)
{
    if (count != 2) {
        fprintf(stderr, "respond PORT\n");
        return 2;
    }
    int server = listen_on(words[1]), poll = epoll_create1(0);
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
                clients[client]->filled = 0;
                event.data.fd = client;
                epoll_ctl(poll, EPOLL_CTL_ADD, client, &event);
            } else if (!serve(fd)) {
                close(fd);
            }
        }
    }
}
