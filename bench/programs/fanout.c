/* Measures how long an event takes to reach all subscribers of a user who logs out.
 *
 *     fanout SOCKET USER SUBSCRIBERS ROUNDS
 *
 * Prints the median, the 99th percentile and the maximum of the milliseconds from the write of LOGOUT until a
 * subscriber has read the event, over all rounds. */
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

/* Waits until every subscriber has received `values` values in total, and records the time for each. */
static void wait_for_all(unsigned long values, double *when) {
    static char bytes[1 << 16];
    struct epoll_event events[256];
    for (long left = count; left > 0;) {
        int ready = epoll_wait(readable, events, 256, 10000);
        if (ready <= 0) errx(1, "%ld subscribers received nothing for 10 s", left);
        for (int event = 0; event < ready; event++) {
            long index = events[event].data.u32;
            ssize_t length = read(sockets[index], bytes, sizeof bytes);
            if (length <= 0) errx(1, "the connection of subscriber %ld was closed", index);
            unsigned long before = states[index].done;
            count_replies(&states[index], bytes, (size_t)length);
            if (states[index].errors > 0) errx(1, "%s", states[index].line);
            if (before < values && states[index].done >= values) {
                left--;
                if (when) when[index] = now();
            }
        }
    }
}

static void execute(int fd, const char *const *words, size_t length) {
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
    for (long index = 0; index < count; index++) {
        sockets[index] = connect_as(geteuid(), argv[1]);
        if (sockets[index] < 0) err(1, "connection %ld", index);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (unsigned)index};
        if (epoll_ctl(readable, EPOLL_CTL_ADD, sockets[index], &event) != 0) err(1, "epoll_ctl");
        if (write(sockets[index], frame, size) != (ssize_t)size) err(1, "write");
    }
    unsigned long values = 1;
    wait_for_all(values, NULL);
    int control = connect_as(geteuid(), argv[1]);
    if (control < 0) err(1, "connect");
    const char *const login[] = {"LOGIN", argv[2]}, *const logout[] = {"LOGOUT", argv[2]};
    size_t end = write_request(frame, logout, 2);
    for (long round = 0; round < rounds; round++) {
        execute(control, login, 2);
        wait_for_all(++values, NULL);
        double *when = delays + round * count, begin = now();
        if (write(control, frame, end) != (ssize_t)end) err(1, "write");
        wait_for_all(++values, when);
        for (long index = 0; index < count; index++) when[index] -= begin;
        /* Reads the receipt. */
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
