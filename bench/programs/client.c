/* See client.h. */
#define _GNU_SOURCE
#include "client.h"
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void value_ended(struct replies *replies) {
    if (--replies->owed == 0) replies->done++;
}

static void line_ended(struct replies *replies) {
    replies->line[replies->length] = 0;
    long number = strtol(replies->line + 1, NULL, 10);
    if (replies->owed == 0) {
        replies->owed = 1;
        memcpy(replies->head, replies->line, replies->length + 1);
    }
    replies->length = 0;
    switch (replies->line[0]) {
    case '$':
        if (number >= 0) {
            replies->skip = (size_t)number + 2;
            return;
        }
        break;
    case '*':
        if (number > 0) replies->owed += number;
        break;
    case '-':
        replies->errors++;
        break;
    }
    value_ended(replies);
}

void count_replies(struct replies *replies, const char *bytes, size_t count) {
    while (count > 0) {
        if (replies->skip > 0) {
            size_t part = count < replies->skip ? count : replies->skip;
            replies->skip -= part, bytes += part, count -= part;
            if (replies->skip == 0) value_ended(replies);
            continue;
        }
        char byte = *bytes++;
        count--;
        if (byte == '\n') line_ended(replies);
        else if (byte != '\r' && replies->length < sizeof replies->line - 1) replies->line[replies->length++] = byte;
    }
}

int connect_as(uid_t uid, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) errx(2, "%s is too long for a socket", path);
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) err(1, "socket");
    /* The kernel records the effective uid at connect(2): unix(7), SO_PEERCRED. */
    if (seteuid(uid) != 0) err(1, "seteuid %u", uid);
    int result = connect(fd, (struct sockaddr *)&address, sizeof address), reason = errno;
    if (seteuid(0) != 0) err(1, "seteuid 0");
    if (result == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0) return fd;
    close(fd);
    errno = reason;
    return -1;
}

size_t write_request(char *out, const char *const *words, size_t count) {
    size_t length = (size_t)sprintf(out, "*%zu\r\n", count);
    for (size_t index = 0; index < count; index++)
        length += (size_t)sprintf(out + length, "$%zu\r\n%s\r\n", strlen(words[index]), words[index]);
    return length;
}

double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}
