/* Sends prepared requests; each connection has one request in flight. All replies must have one length.
 *
 *     replay SOCKET CONNECTIONS REQUEST_LENGTH REPLY_LENGTH FILE
 *
 * FILE contains only requests of REQUEST_LENGTH bytes; each free connection sends the next one. Since it does not parse
 * replies, the client works with servers of any protocol. Prints the requests per second. */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CONNECTIONS = 1024 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char **words) {
    static char input[1 << 16];
    static size_t missing[MOST_CONNECTIONS];
    static int sockets[MOST_CONNECTIONS];
    if (count != 6) errx(2, "usage: replay SOCKET CONNECTIONS REQUEST_LENGTH REPLY_LENGTH FILE");
    int connections = atoi(words[2]);
    size_t request_length = strtoul(words[3], NULL, 10), reply_length = strtoul(words[4], NULL, 10);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(words[1]) >= sizeof address.sun_path) errx(2, "%s is too long for a socket", words[1]);
    strcpy(address.sun_path, words[1]);
    int file = open(words[5], O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0) err(2, "%s", words[5]);
    size_t total = (size_t)status.st_size / request_length, sent = 0, answered = 0;
    if (connections < 1 || connections > MOST_CONNECTIONS || total < (size_t)connections)
        errx(2, "%d connections for %zu requests", connections, total);
    const char *requests = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    int poller = epoll_create1(EPOLL_CLOEXEC);
    if (requests == MAP_FAILED || poller < 0) err(1, "%s", words[5]);
    for (int index = 0; index < connections; index++) {
        sockets[index] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (unsigned)index};
        if (sockets[index] < 0 || connect(sockets[index], (struct sockaddr *)&address, sizeof address) != 0 ||
            epoll_ctl(poller, EPOLL_CTL_ADD, sockets[index], &event) != 0)
            err(1, "connect to %s", words[1]);
    }
    double begin = now();
    for (; sent < (size_t)connections; sent++) {
        missing[sent] = reply_length;
        if (send(sockets[sent], requests + sent * request_length, request_length, MSG_NOSIGNAL) < 0) err(1, "send");
    }
    while (answered < total) {
        struct epoll_event events[64];
        int ready = epoll_wait(poller, events, 64, 10000);
        if (ready == 0) errx(1, "no reply for 10 s, after %zu of %zu", answered, total);
        for (int event = 0; event < ready; event++) {
            unsigned index = events[event].data.u32;
            ssize_t length = recv(sockets[index], input, sizeof input, 0);
            if (length <= 0 || (size_t)length > missing[index])
                errx(1, "a reply is not %zu bytes long", reply_length);
            missing[index] -= (size_t)length;
            if (missing[index] > 0) continue;
            answered++;
            if (sent == total) continue;
            missing[index] = reply_length;
            if (send(sockets[index], requests + sent++ * request_length, request_length, MSG_NOSIGNAL) < 0)
                err(1, "send");
        }
    }
    printf("%.1f\n", (double)total / (now() - begin));
    return 0;
}
