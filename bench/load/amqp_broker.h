/* The broker's side of AMQP 0-9-1, as far as stand-ins need it: the handshake, up to channel.open-ok on channel 1. */
#ifndef AMQP_BROKER_H
#define AMQP_BROKER_H

#include "amqp_client.h"

/* connection.start, tune (heartbeat 0, frame_max 131072), open-ok and channel.open-ok, each when its turn has come. */
static inline void play_handshake(int fd)
{
    char head[8], payload[4096];
    read_all(fd, head, 8); /* the protocol header */
    TELL(fd, 0, "\0\012\0\012" "\0\011" "\0\0\0\0" "\0\0\0\005PLAIN" "\0\0\0\005en_US");
    for (;;) {
        read_all(fd, head, 7);
        uint32_t size = get_u32(head + 3);
        if (size > sizeof payload - 1) fail("a handshake frame too large");
        read_all(fd, payload, size + 1);
        switch (get_u32(payload)) {
        case 0x000A000B: TELL(fd, 0, "\0\012\0\036" "\007\377" "\0\002\0\0" "\0\0"); break;
        case 0x000A0028: TELL(fd, 0, "\0\012\0\051" "\0"); break;
        case 0x0014000A: TELL(fd, 1, "\0\024\0\013" "\0\0\0\0"); return;
        default: break; /* tune-ok needs no answer */
        }
    }
}

#endif
