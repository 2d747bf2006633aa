/* How long an event takes to reach everybody: many connections follow a user, who logs out.
 *
 *     fanout SOCKET USER SUBSCRIBERS ROUNDS
 *
 * Prints the 50th and the 99th percentile, and the longest, of the milliseconds between the write of a LOGOUT and the
 * moment at which a subscriber has read its event, over all rounds. */
#define _GNU_SOURCE
#include "client.h"
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static struct replies *states;
static int *sockets;
static long count;
static int readable;

/* Waits until every subscriber has had so many values in all; notes when each had. */
static void wait_for_all(unsigned long values, double *when) {
    static char bytes[1 << 16];
    struct epoll_event events[256];
    for (long left = count; left > 0;) {
        int ready = epoll_wait(readable, events, 256, 10000);
        if (ready <= 0) errx(1, "%ld subscribers have had nothing for 10 s", left);
        for (int index = 0; index < ready; index++) {
            long who = events[index].data.u32;
            ssize_t length = read(sockets[who], bytes, sizeof bytes);
            if (length <= 0) errx(1, "subscriber %ld was closed", who);
            unsigned long before = states[who].done;
            count_replies(&states[who], bytes, (size_t)length);
            if (states[who].errors > 0) errx(1, "%s", states[who].line);
            if (before < values && states[who].done >= values) {
                left--;
                if (when) when[who] = now();
            }
        }
    }
}

static void ask(int fd, const char *const *words, size_t length) {
    char frame[512], bytes[4096];
    size_t size = write_request(frame, words, length);
    if (write(fd, frame, size) != (ssize_t)size) err(1, "write");
    struct replies state = {0};
    while (state.done == 0) {
        ssize_t got = read(fd, bytes, sizeof bytes);
        if (got > 0) count_replies(&state, bytes, (size_t)got);
        else if (got == 0) errx(1, "the daemon closed the connection");
    }
    if (state.errors > 0) errx(1, "%s %s: %s", words[0], words[1], state.head);
}

static int ascending(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

int main(int argc, char **argv) {
    if (argc != 5 || (count = atol(argv[3])) <= 0 || atol(argv[4]) <= 0)
        errx(2, "fanout SOCKET USER SUBSCRIBERS ROUNDS");
    long rounds = atol(argv[4]);
    states = calloc((size_t)count, sizeof *states);
    sockets = calloc((size_t)count, sizeof *sockets);
    double *delays = calloc((size_t)(count * rounds), sizeof *delays);
    readable = epoll_create1(EPOLL_CLOEXEC);
    if (!states || !sockets || !delays || readable < 0) err(1, "memory");
    char frame[512];
    const char *const follow[] = {"SUBSCRIBE", argv[2]};
    size_t size = write_request(frame, follow, 2);
    for (long who = 0; who < count; who++) {
        sockets[who] = connect_as(geteuid(), argv[1]);
        if (sockets[who] < 0) err(1, "connection %ld", who);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (unsigned)who};
        if (epoll_ctl(readable, EPOLL_CTL_ADD, sockets[who], &event) != 0) err(1, "epoll_ctl");
        if (write(sockets[who], frame, size) != (ssize_t)size) err(1, "write");
    }
    unsigned long values = 1;
    wait_for_all(values, NULL);
    int control = connect_as(geteuid(), argv[1]);
    if (control < 0) err(1, "connect");
    const char *const login[] = {"LOGIN", argv[2]}, *const logout[] = {"LOGOUT", argv[2]};
    size_t end = write_request(frame, logout, 2);
    for (long round = 0; round < rounds; round++) {
        ask(control, login, 2);
        wait_for_all(++values, NULL);
        double *when = delays + round * count, begin = now();
        if (write(control, frame, end) != (ssize_t)end) err(1, "write");
        wait_for_all(++values, when);
        for (long who = 0; who < count; who++) when[who] -= begin;
        /* The receipt. */
        struct replies state = {0};
        char bytes[4096];
        while (state.done == 0) {
            ssize_t got = read(control, bytes, sizeof bytes);
            if (got > 0) count_replies(&state, bytes, (size_t)got);
        }
    }
    size_t all = (size_t)(count * rounds);
    qsort(delays, all, sizeof *delays, ascending);
    printf("%f %f %f\n", delays[all / 2] * 1e3, delays[all * 99 / 100] * 1e3, delays[all - 1] * 1e3);
    return 0;
}
