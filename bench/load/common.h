/* What the load programs share: sockets on loopback, the clock, frames of both protocols. Errors end the program with a message. */
#ifndef COMMON_H
#define COMMON_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline void fail(const char *what)
{
    perror(what);
    exit(1);
}

static inline double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Connections are open: says so, and waits for the line that begins the work. What opening them cost a proxy can so be left out. */
static inline void say_ready(void)
{
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF) exit(1);
}

/* The result has been printed: keeps the connections open until the reader of it has closed our standard input. */
static inline void await_leave(void)
{
    fflush(stdout);
    while (getchar() != EOF) continue;
}

static inline void without_delay(int fd)
{
    int one = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0) fail("TCP_NODELAY");
}

static inline struct sockaddr_in loopback(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static inline int connect_to(const char *port)
{
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
    without_delay(fd);
    return fd;
}

static inline int listen_on(const char *port)
{
    struct sockaddr_in address = loopback(port);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) fail("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 1024) < 0) fail("listen");
    return fd;
}

/* Accepts clients without end; returns in a process of its own for each, with its connection. */
static inline int accept_in_child(int server)
{
    signal(SIGCHLD, SIG_IGN); /* nobody waits for the children */
    for (;;) {
        int fd = accept(server, NULL, NULL);
        if (fd < 0) fail("accept");
        without_delay(fd);
        if (fork() == 0) {
            close(server);
            return fd;
        }
        close(fd);
    }
}

static inline void write_all(int fd, const void *data, size_t size)
{
    const char *rest = data;
    while (size > 0) {
        ssize_t sent = write(fd, rest, size);
        if (sent < 0) fail("write");
        rest += sent;
        size -= (size_t)sent;
    }
}

static inline void read_all(int fd, void *data, size_t size)
{
    char *rest = data;
    while (size > 0) {
        ssize_t got = read(fd, rest, size);
        if (got <= 0) fail("read");
        rest += got;
        size -= (size_t)got;
    }
}

static inline char *put_u16(char *at, unsigned value)
{
    at[0] = (char)(value >> 8);
    at[1] = (char)value;
    return at + 2;
}

static inline char *put_u32(char *at, uint32_t value)
{
    at = put_u16(at, value >> 16);
    return put_u16(at, value & 0xFFFF);
}

static inline uint32_t get_u32(const char *at)
{
    const unsigned char *byte = (const unsigned char *)at;
    return (uint32_t)byte[0] << 24 | (uint32_t)byte[1] << 16 | (uint32_t)byte[2] << 8 | byte[3];
}

/* Where the seven digits of `opaque` stand in the frames rocketmq_send makes. */
#define OPAQUE_DIGITS 7
#define OPAQUE_LEAST 1000000u

/*
 * One SEND_MESSAGE_V2 request with a JSON header, as the Java client 5.3.3 writes it (keys in fastjson's order). `oneway` sets flag 2.
 * Returns its size; `opaque_at` gets the offset of the opaque's digits. 565 bytes for a body of 200.
 */
static inline size_t rocketmq_send(char *out, const char *topic, uint32_t opaque, int oneway, size_t body, size_t *opaque_at)
{
    char header[1024];
    int start = snprintf(header, sizeof header, "{\"code\":310,\"extFields\":{\"a\":\"bench_producers\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"4\","
        "\"e\":\"%u\",\"f\":\"0\",\"g\":\"17%08u123\",\"h\":\"0\",\"i\":\"UNIQ_KEY\\u00017F000001%08X\\u0002WAIT\\u0001true\","
        "\"j\":\"0\",\"k\":\"false\",\"m\":\"false\",\"n\":\"broker-a\"},\"flag\":%d,\"language\":\"JAVA\",\"opaque\":",
        topic, opaque % 4, opaque, opaque, oneway ? 2 : 0);
    int size = start + snprintf(header + start, sizeof header - (size_t)start, "%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}", opaque);
    char *at = put_u32(out, (uint32_t)(4 + size) + (uint32_t)body);
    at = put_u32(at, (uint32_t)size);
    memcpy(at, header, (size_t)size);
    memset(at + size, 'x', body);
    *opaque_at = 8 + (size_t)start;
    return 8 + (size_t)size + body;
}

/* One AMQP frame around `size` bytes of payload. */
static inline char *amqp_frame(char *out, int type, unsigned channel, const char *payload, uint32_t size)
{
    *out++ = (char)type;
    out = put_u32(put_u16(out, channel), size);
    memcpy(out, payload, size);
    out += size;
    *out++ = (char)0xCE;
    return out;
}

/* basic.publish, header and one body frame on channel 1. Returns the size. */
static inline size_t amqp_publish(char *out, const char *exchange, const char *key, size_t body)
{
    char payload[600], *at = put_u32(payload, 0x003C0028), *end = out;
    at = put_u16(at, 0);
    *at++ = (char)strlen(exchange);
    at = (char *)memcpy(at, exchange, strlen(exchange)) + strlen(exchange);
    *at++ = (char)strlen(key);
    at = (char *)memcpy(at, key, strlen(key)) + strlen(key);
    *at++ = 0;
    end = amqp_frame(end, 1, 1, payload, (uint32_t)(at - payload));
    at = put_u32(put_u32(put_u32(payload, 0x003C0000), 0), (uint32_t)body);
    at = put_u16(at, 0x1000); /* delivery_mode only */
    *at++ = 1;
    end = amqp_frame(end, 2, 1, payload, (uint32_t)(at - payload));
    *end++ = 3;
    end = put_u32(put_u16(end, 1), (uint32_t)body);
    memset(end, 'x', body);
    end += body;
    *end++ = (char)0xCE;
    return (size_t)(end - out);
}

#endif
