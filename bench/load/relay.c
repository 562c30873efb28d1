/*
 * relay PORT UPSTREAM ...: passes all that comes to each PORT on to UPSTREAM (ports of loopback), and back. One thread, one epoll set, one read
 * and one write for what has come: what the kernel takes of any proxy's cost that asks it in this way. It knows no time-outs, no limits, and
 * keeps what a receiver does not take at once, at most one read, before it reads more.
 */
#include <signal.h>

#include "common.h"

#define MOST 16384  /* descriptors */
#define BUFFER 262144
#define EVENTS 512

struct side {
    struct side *peer;
    char *held; /* what its socket has not taken: from `begin` to `end` */
    size_t begin, end;
    int fd, over; /* over: its own end has come */
};

static struct side sides[MOST];
static const char *upstreams[MOST]; /* by listening descriptor */
static char buffer[BUFFER];
static int set;

static void watch(int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl");
}

static void drop(struct side *side)
{
    struct side *peer = side->peer;
    for (int both = 0; both < 2; both++, side = peer) {
        close(side->fd);
        free(side->held);
        memset(side, 0, sizeof *side);
    }
}

/* False where the pair is gone. */
static int give(struct side *side, const char *data, size_t size)
{
    ssize_t taken = send(side->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0) {
        if (errno != EAGAIN) return drop(side), 0;
        taken = 0;
    }
    if ((size_t)taken == size) {
        side->begin = side->end = 0;
        return 1;
    }
    if (!side->held && !(side->held = malloc(BUFFER))) fail("malloc");
    memmove(side->held, data + taken, size - (size_t)taken);
    side->begin = 0;
    side->end = size - (size_t)taken;
    return 1;
}

/* Reads until nothing more is there, or the other side takes no more. False where the pair is gone. */
static int pump(struct side *side, int hung_up)
{
    struct side *peer = side->peer;
    while (peer->begin == peer->end && !side->over) {
        ssize_t size = recv(side->fd, buffer, BUFFER, MSG_DONTWAIT);
        if (size < 0) {
            if (errno == EAGAIN) return 1;
            return drop(side), 0;
        }
        if (size == 0) {
            side->over = 1;
            if (peer->over) return drop(side), 0;
            shutdown(peer->fd, SHUT_WR);
            return 1;
        }
        if (!give(peer, buffer, (size_t)size)) return 0;
        if (size < BUFFER && !hung_up) return 1;
    }
    return 1;
}

static void take_in(int listening)
{
    int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0) return;
    int onward = connect_to(upstreams[listening]);
    if (fd >= MOST || onward >= MOST) fail("too many connections");
    without_delay(fd);
    sides[fd] = (struct side){.fd = fd, .peer = &sides[onward]};
    sides[onward] = (struct side){.fd = onward, .peer = &sides[fd]};
    watch(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    watch(onward, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

int main(int count, char **words)
{
    struct epoll_event events[EVENTS];
    if (count < 3 || count % 2 == 0) {
        fprintf(stderr, "usage: relay PORT UPSTREAM ...\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    set = epoll_create1(0);
    for (int at = 1; at < count; at += 2) {
        int listening = listen_on(words[at]);
        upstreams[listening] = words[at + 1];
        watch(listening, EPOLLIN);
    }
    for (;;) {
        int found = epoll_wait(set, events, EVENTS, -1);
        for (int at = 0; at < found; at++) {
            int fd = events[at].data.fd;
            uint32_t said = events[at].events;
            struct side *side = &sides[fd];
            if (upstreams[fd]) {
                take_in(fd);
                continue;
            }
            if (!side->peer) continue; /* gone by an event before this one */
            if (said & EPOLLOUT && side->begin != side->end) {
                if (!give(side, side->held + side->begin, side->end - side->begin)) continue;
                if (side->begin == side->end && !pump(side->peer, 1)) continue;
            }
            if (said & ~(uint32_t)EPOLLOUT) pump(side, said & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
        }
    }
}
