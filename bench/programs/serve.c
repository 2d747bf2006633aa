/* See serve.h. */
#define _GNU_SOURCE
#include "serve.h"
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

char *make_reply(struct iovec *reply, size_t image_length) {
    char head[32];
    size_t head_length = (size_t)sprintf(head, "$%zu\r\n", image_length);
    reply->iov_len = head_length + image_length + 2;
    reply->iov_base = malloc(reply->iov_len);
    if (reply->iov_base == NULL) err(1, "a reply of %zu bytes", reply->iov_len);
    char *image = (char *)reply->iov_base + head_length;
    memcpy(reply->iov_base, head, head_length);
    memcpy(image + image_length, "\r\n", 2);
    return image;
}

static void answer(int fd, size_t frames, next_reply *next) {
    while (frames > 0) {
        struct iovec parts[AT_ONCE];
        int count = 0;
        for (; count < AT_ONCE && frames > 0; count++, frames--) parts[count] = next(count);
        /* The socket is blocking, so everything is sent; a closed connection is detected by reading. */
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
        if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0) return;
    }
}

static int listen_at(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) errx(2, "%s is too long for a socket", path);
    strcpy(address.sun_path, path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 511) != 0)
        err(1, "%s", path);
    return listener;
}

void serve_input(const char *path, received *handle) {
    int listener = listen_at(path);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &wanted);

    static char input[64 << 10];
    for (;;) {
        struct epoll_event ready[AT_ONCE];
        int count = epoll_wait(epoll, ready, AT_ONCE, -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) {
                int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                if (connection < 0 || connection >= DESCRIPTORS) errx(1, "a connection could not be accepted");
                wanted.data.fd = connection;
                epoll_ctl(epoll, EPOLL_CTL_ADD, connection, &wanted);
                continue;
            }
            ssize_t length = read(fd, input, sizeof input);
            handle(fd, input, length > 0 ? (size_t)length : 0);
            if (length <= 0) close(fd);
        }
    }
}

static size_t begun[DESCRIPTORS], frame_length;
static next_reply *next_of_frames;

static void count_frames(int fd, const char *bytes, size_t length) {
    (void)bytes;
    if (length == 0) {
        begun[fd] = 0;
        return;
    }
    begun[fd] += length;
    answer(fd, begun[fd] / frame_length, next_of_frames);
    begun[fd] %= frame_length;
}

void serve(const char *path, size_t length, next_reply *next) {
    frame_length = length;
    next_of_frames = next;
    serve_input(path, count_frames);
}
