/* The least that a server on a Unix socket can do: one thread that waits, reads, counts frames of a length it was told, and
 * sends ready replies, as many different ones as it was told, in turn. What it takes the kernel takes; no server takes less.
 *
 *     leastloop SOCKET FRAME-LENGTH IMAGE-LENGTH IMAGES
 */
#define _GNU_SOURCE
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECTIONS = 4096, AT_ONCE = 64 };

static char **replies;
static size_t reply_length;
static int image_count, next_reply;

static void make_replies(size_t image_length) {
    char head[32];
    size_t head_length = (size_t)sprintf(head, "$%zu\r\n", image_length);
    reply_length = head_length + image_length + 2;
    replies = malloc((size_t)image_count * sizeof *replies);
    for (int i = 0; i < image_count; i++) {
        replies[i] = malloc(reply_length);
        memcpy(replies[i], head, head_length);
        memset(replies[i] + head_length, 'x', image_length);
        memcpy(replies[i] + head_length + image_length, "\r\n", 2);
    }
}

static void answer(int fd, size_t frames) {
    while (frames > 0) {
        struct iovec parts[AT_ONCE];
        int count = 0;
        for (; count < AT_ONCE && frames > 0; count++, frames--) {
            parts[count] = (struct iovec){replies[next_reply], reply_length};
            next_reply = (next_reply + 1) % image_count;
        }
        /* The socket blocks, so all of it goes; a peer that has left is found out by reading. */
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
        if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0) return;
    }
}

int main(int argc, char **argv) {
    if (argc != 5) errx(2, "leastloop SOCKET FRAME-LENGTH IMAGE-LENGTH IMAGES");
    size_t frame_length = (size_t)atol(argv[2]);
    image_count = atoi(argv[4]);
    if (frame_length == 0 || image_count < 1) errx(2, "leastloop: frames have at least 1 byte, and there is at least 1 image");
    make_replies((size_t)atol(argv[3]));

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(argv[1]) >= sizeof address.sun_path) errx(2, "leastloop: %s is too long for a socket", argv[1]);
    strcpy(address.sun_path, argv[1]);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 511) != 0) err(1, "%s", argv[1]);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &wanted);

    static char input[64 << 10];
    static size_t begun[CONNECTIONS];
    for (;;) {
        struct epoll_event ready[AT_ONCE];
        int count = epoll_wait(epoll, ready, AT_ONCE, -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) {
                int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                if (connection < 0 || connection >= CONNECTIONS) errx(1, "a connection could not be taken");
                begun[connection] = 0;
                wanted.data.fd = connection;
                epoll_ctl(epoll, EPOLL_CTL_ADD, connection, &wanted);
                continue;
            }
            ssize_t length = read(fd, input, sizeof input);
            if (length <= 0) {
                close(fd);
                continue;
            }
            begun[fd] += (size_t)length;
            answer(fd, begun[fd] / frame_length);
            begun[fd] %= frame_length;
        }
    }
}
