/* The client's side of AMQP 0-9-1, as far as a publisher needs it: handshake with one open channel, and an orderly end. */
#ifndef AMQP_CLIENT_H
#define AMQP_CLIENT_H

#include "common.h"

#define CONNECTION_CLOSE_OK 0x000A0033u
#define CHANNEL_CLOSE_OK 0x00140029u
#define CONFIRM_SELECT_OK 0x0055000Bu
#define BASIC_ACK 0x003C0050u
#define BASIC_NACK 0x003C0078u

static inline void tell(int fd, unsigned channel, const char *payload, size_t size)
{
    char out[256];
    char *end = amqp_frame(out, 1, channel, payload, (uint32_t)size);
    write_all(fd, out, (size_t)(end - out));
}

#define TELL(fd, channel, text) tell(fd, channel, text, sizeof text - 1)

/* One frame, into `payload` of at least 4096 bytes; returns its class and method. Heartbeats are passed over. */
static inline uint32_t hear(int fd, char *payload)
{
    char head[7];
    do {
        read_all(fd, head, 7);
        uint32_t size = get_u32(head + 3);
        if (size > 4095) fail("a frame too large");
        read_all(fd, payload, size + 1);
    } while (head[0] == 8);
    return get_u32(payload);
}

static inline void expect(int fd, uint32_t method)
{
    char payload[4096];
    uint32_t heard = hear(fd, payload);
    if (heard != method) {
        fprintf(stderr, "heard method %08x, expected %08x\n", heard, method);
        exit(1);
    }
}

/* Up to channel.open-ok on channel 1, as guest, without heartbeats. */
static inline void shake_hands(int fd)
{
    write_all(fd, "AMQP\0\0\011\001", 8);
    expect(fd, 0x000A000A); /* start */
    TELL(fd, 0, "\0\012\0\013" "\0\0\0\0" "\005PLAIN" "\0\0\0\014\0guest\0guest" "\005en_US");
    expect(fd, 0x000A001E); /* tune */
    TELL(fd, 0, "\0\012\0\037" "\007\377" "\0\002\0\0" "\0\0");
    TELL(fd, 0, "\0\012\0\050" "\001/" "\0" "\0");
    expect(fd, 0x000A0029); /* open-ok */
    TELL(fd, 1, "\0\024\0\012" "\0");
    expect(fd, 0x0014000B); /* channel.open-ok */
}

/* Closes the channel: the broker's answer says that it has seen everything before it. */
static inline void close_channel(int fd)
{
    TELL(fd, 1, "\0\024\0\050" "\0\310" "\0" "\0\0" "\0\0");
    expect(fd, CHANNEL_CLOSE_OK);
}

static inline void close_connection(int fd)
{
    TELL(fd, 0, "\0\012\0\062" "\0\310" "\0" "\0\0" "\0\0");
    expect(fd, CONNECTION_CLOSE_OK);
    close(fd);
}

#endif
