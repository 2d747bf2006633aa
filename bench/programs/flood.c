/* The flood of P12: sends as many requests as possible, as a uid, until SIGTERM.
 *
 *     flood SOCKET UID IDLE CONNECTIONS AHEAD REQUESTS [FRAMES]
 *
 * Opens IDLE connections that send nothing, and CONNECTIONS that each have AHEAD batches in flight. A batch is the
 * content of FRAMES, REQUESTS requests; twelve '#' in it are replaced by another number each time. Closed connections
 * are opened again. At SIGTERM it prints the number of replies, of error replies and of closed connections, and its CPU
 * time in microseconds. */
#define _GNU_SOURCE
#include "client.h"
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { INPUT = 1 << 20, MOST_MARKS = 8 };

struct connection {
    int fd;
    /* The number of requests sent, and the unsent bytes of a batch. */
    unsigned long sent;
    char *batch;
    size_t rest;
    struct replies replies;
};

static const char *path;
static uid_t uid;
static int poller;
static char *frames;
static size_t length, marks[MOST_MARKS], mark_count;
static unsigned long ahead, requests, counter, answered, error_replies, closed;
static volatile sig_atomic_t is_over;

static void end(int number) {
    (void)number;
    is_over = 1;
}

static void read_frames(const char *name) {
    FILE *file = fopen(name, "rb");
    if (file == NULL) err(2, "%s", name);
    frames = malloc(INPUT);
    if (frames == NULL) err(1, "malloc");
    length = fread(frames, 1, INPUT, file);
    fclose(file);
    for (char *mark = frames;
         (mark = memmem(mark, length - (size_t)(mark - frames), "############", COUNTER_DIGITS)) != NULL;
         mark += COUNTER_DIGITS) {
        if (mark_count == MOST_MARKS) errx(2, "%s has more than %d numbers", name, MOST_MARKS);
        marks[mark_count++] = (size_t)(mark - frames);
    }
}

static void watch(struct connection *connection, int operation) {
    struct epoll_event event = {
        .events = connection->rest > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(poller, operation, connection->fd, &event) != 0) err(1, "epoll_ctl");
}

/* Sends batches up to the limit. Returns false if the connection is closed. */
static bool send_on(struct connection *connection) {
    bool was_full = connection->rest > 0;
    while (connection->rest > 0 || connection->sent + requests <= connection->replies.done + ahead * requests) {
        if (connection->rest == 0) {
            for (size_t mark = 0; mark < mark_count; mark++) {
                char digits[COUNTER_DIGITS + 1];
                snprintf(digits, sizeof digits, "%0*lu", COUNTER_DIGITS, counter);
                memcpy(connection->batch + marks[mark], digits, COUNTER_DIGITS);
            }
            counter++;
            connection->rest = length;
            connection->sent += requests;
        }
        ssize_t count =
            send(connection->fd, connection->batch + length - connection->rest, connection->rest, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN) break;
        if (count < 0) return false;
        connection->rest -= (size_t)count;
    }
    if (was_full != (connection->rest > 0)) watch(connection, EPOLL_CTL_MOD);
    return true;
}

static void open_connection(struct connection *connection) {
    answered += connection->replies.done, error_replies += connection->replies.errors;
    memset(&connection->replies, 0, sizeof connection->replies);
    connection->sent = connection->rest = 0;
    connection->fd = connect_as(uid, path);
    if (connection->fd < 0) err(1, "connect to %s", path);
    watch(connection, EPOLL_CTL_ADD);
    send_on(connection); /* A closed connection is detected by reading. */
}

static bool receive(struct connection *connection) {
    static char input[INPUT];
    ssize_t count = recv(connection->fd, input, sizeof input, 0);
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) return false;
    count_replies(&connection->replies, input, (size_t)count);
    return true;
}

int main(int argc, char **argv) {
    if (argc < 7) errx(2, "usage: flood SOCKET UID IDLE CONNECTIONS AHEAD REQUESTS [FRAMES]");
    path = argv[1];
    uid = (uid_t)strtoul(argv[2], NULL, 10);
    long idle = atol(argv[3]), count = atol(argv[4]);
    ahead = strtoul(argv[5], NULL, 10), requests = strtoul(argv[6], NULL, 10);
    if (argc > 7) read_frames(argv[7]);
    signal(SIGTERM, end);
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct connection *connections = calloc((size_t)count + 1, sizeof *connections);
    if (poller < 0 || connections == NULL) err(1, "epoll_create1");
    for (long index = 0; index < idle; index++)
        if (connect_as(uid, path) < 0) err(1, "connect to %s", path);
    for (long index = 0; index < count; index++) {
        connections[index].batch = malloc(length);
        if (connections[index].batch == NULL) err(1, "malloc");
        memcpy(connections[index].batch, frames, length);
        open_connection(&connections[index]);
    }
    while (!is_over) {
        struct epoll_event events[64];
        int ready = epoll_wait(poller, events, 64, 100);
        for (int index = 0; index < ready && !is_over; index++) {
            struct connection *connection = events[index].data.ptr;
            if (receive(connection) && send_on(connection)) continue;
            close(connection->fd);
            closed++;
            open_connection(connection);
        }
    }
    for (long index = 0; index < count; index++)
        answered += connections[index].replies.done, error_replies += connections[index].replies.errors;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("%lu %lu %lu %ld\n", answered, error_replies, closed,
           (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000L + used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    return 0;
}
