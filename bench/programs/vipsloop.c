/* A lower bound for renditions: the same libvips calls in a loop.
 *
 *     vipsloop FILE SIDE COUNT [DIRECTORY]
 *
 * With DIRECTORY, it also does what a cache cannot omit: a child process receives each image over a socket, renders
 * it and returns the rendition, which is written to a file of its own and renamed. Prints the renditions per
 * second, and the median of their durations in milliseconds. */
#define _GNU_SOURCE
#include "renderer.h"
#include <err.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char source[64 << 20], rendition[64 << 20], why[256];
static struct crenderer_options options = {.max_pixels = 50000000};

static double milliseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static int compare(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static void render(size_t length, struct crenderer_image *image) {
    if (crenderer_render(source, length, &options, image, why, sizeof why) != CRENDERER_DONE) errx(1, "%s", why);
}

static void send_all(int fd, const char *bytes, size_t length) {
    for (ssize_t count; length > 0; bytes += count, length -= (size_t)count)
        if ((count = write(fd, bytes, length)) <= 0) err(1, "write");
}

/* Returns false at the end of the input. */
static bool receive_all(int fd, char *bytes, size_t length) {
    for (ssize_t count; length > 0; bytes += count, length -= (size_t)count)
        if ((count = read(fd, bytes, length)) <= 0) return false;
    return true;
}

/* Starts a process that renders each image it receives, and returns the socket. A message is a length and bytes. */
static int start_child(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) err(1, "socketpair");
    pid_t child = fork();
    if (child < 0) err(1, "fork");
    if (child > 0) {
        close(ends[1]);
        return ends[0];
    }
    close(ends[0]);
    size_t length;
    while (receive_all(ends[1], (char *)&length, sizeof length) && receive_all(ends[1], source, length)) {
        struct crenderer_image image;
        render(length, &image);
        send_all(ends[1], (char *)&image.length, sizeof image.length);
        send_all(ends[1], image.bytes, image.length);
        crenderer_free(&image);
    }
    _exit(0);
}

static void render_to_file(int child, size_t length, int directory, int number) {
    send_all(child, (char *)&length, sizeof length);
    send_all(child, source, length);
    if (!receive_all(child, (char *)&length, sizeof length) || !receive_all(child, rendition, length))
        errx(1, "the child process ended");
    char name[32];
    snprintf(name, sizeof name, "%d", number);
    int file = openat(directory, "new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) err(1, "new");
    send_all(file, rendition, length);
    close(file);
    if (renameat(directory, "new", directory, name) != 0) err(1, "%s", name);
}

int main(int count, char **words) {
    if (count != 4 && count != 5) errx(2, "usage: vipsloop FILE SIDE COUNT [DIRECTORY]");
    FILE *file = fopen(words[1], "rb");
    if (!file) err(1, "%s", words[1]);
    size_t length = fread(source, 1, sizeof source, file);
    options.side = (uint32_t)atoi(words[2]);
    int times = atoi(words[3]), directory = -1, child = -1;
    if (crenderer_load("vipsloop", why, sizeof why) != 0) errx(1, "%s", why);
    if (count == 5) {
        directory = open(words[4], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (directory < 0) err(1, "%s", words[4]);
        child = start_child();
    }
    double *took = calloc((size_t)times, sizeof *took);
    if (!took) err(1, "calloc");
    double start = milliseconds();
    for (int index = 0; index < times; index++) {
        double before = milliseconds();
        if (child >= 0) {
            render_to_file(child, length, directory, index);
        } else {
            struct crenderer_image image;
            render(length, &image);
            crenderer_free(&image);
        }
        took[index] = milliseconds() - before;
    }
    double all = milliseconds() - start;
    qsort(took, (size_t)times, sizeof *took, compare);
    printf("%f %f\n", times / all * 1e3, took[times / 2]);
    return 0;
}
