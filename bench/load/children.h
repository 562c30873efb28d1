/* Each connection of a load in a process of its own; together they begin, and their results are one. */
#ifndef CHILDREN_H
#define CHILDREN_H

#include <sys/wait.h>

#include "common.h"

struct result {
    uint64_t messages;
    double seconds;
};

static int child_ready = -1, child_begin = -1;

/* In a child, once connected: says so, and waits for the others. */
static inline void await_begin(void)
{
    char nothing;
    write_all(child_ready, "", 1);
    if (read(child_begin, &nothing, 1) != 0) fail("begin");
}

/* `work` in so many processes, each of which calls `await_begin` once. Prints "ready" once all are connected, and begins after a line on
 * its standard input; then prints {"messages": n, "seconds": s}. Returns the exit code. */
static inline int work_in_children(int connections, struct result (*work)(char **words), char **words)
{
    int ends[2], begin[2], status;
    if (pipe(ends) < 0 || pipe(begin) < 0) fail("pipe");
    for (int i = 0; i < connections; i++) {
        if (fork() == 0) {
            close(begin[1]);
            child_ready = ends[1];
            child_begin = begin[0];
            struct result result = work(words);
            write_all(ends[1], &result, sizeof result);
            _exit(0);
        }
    }
    char nothing;
    close(ends[1]); /* so that it ends when a child dies */
    for (int i = 0; i < connections; i++) read_all(ends[0], &nothing, 1);
    say_ready();
    close(begin[1]);
    for (int i = 0; i < connections; i++)
        if (wait(&status) < 0 || status != 0) return 1; /* it has said why */
    struct result all = {0, 0};
    for (int i = 0; i < connections; i++) {
        struct result one;
        read_all(ends[0], &one, sizeof one);
        all.messages += one.messages;
        if (one.seconds > all.seconds) all.seconds = one.seconds;
    }
    printf("{\"messages\": %llu, \"seconds\": %.4f}\n", (unsigned long long)all.messages, all.seconds);
    return 0;
}

#endif
