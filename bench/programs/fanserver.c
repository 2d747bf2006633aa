/* A minimal server on a Unix socket that sends an event to each subscriber with one system call.
 *
 *     fanserver SOCKET FILE
 *
 * SUBSCRIBE makes its connection a subscriber. Each other request overwrites the file durably, as a logout must do with
 * its key, sends an event to all subscribers in turn, and then gets its reply. A request must arrive in one piece, as
 * fanout sends it. */
#define _GNU_SOURCE
#include "serve.h"
#include <err.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char subscribed[] = "*3\r\n$9\r\nsubscribe\r\n$3\r\neve\r\n:1\r\n";
static const char event[] = "*3\r\n$7\r\nmessage\r\n$3\r\neve\r\n$6\r\nlogout\r\n";
static const char done[] = "+OK\r\n";

static int subscribers[DESCRIPTORS], subscriber_count, key;

static void overwrite_key(void) {
    static const char zeros[120];
    if (pwrite(key, zeros, sizeof zeros, 0) != (ssize_t)sizeof zeros || fdatasync(key) != 0) err(1, "overwrite");
}

static void send_all(int fd, const char *bytes, size_t length) {
    if (send(fd, bytes, length, MSG_NOSIGNAL) != (ssize_t)length) err(1, "send");
}

static void forget(int fd) {
    for (int i = 0; i < subscriber_count; i++)
        if (subscribers[i] == fd) subscribers[i] = subscribers[--subscriber_count];
}

static void answer(int fd, const char *request, size_t length) {
    if (length == 0) {
        forget(fd);
        return;
    }
    if (memmem(request, length, "SUBSCRIBE", 9) != NULL) {
        subscribers[subscriber_count++] = fd;
        send_all(fd, subscribed, sizeof subscribed - 1);
        return;
    }
    overwrite_key();
    for (int i = 0; i < subscriber_count; i++) send_all(subscribers[i], event, sizeof event - 1);
    send_all(fd, done, sizeof done - 1);
}

int main(int argc, char **argv) {
    if (argc != 3) errx(2, "fanserver SOCKET FILE");
    key = open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (key < 0) err(1, "%s", argv[2]);
    serve_input(argv[1], answer);
}
