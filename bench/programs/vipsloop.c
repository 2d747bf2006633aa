/* A lower bound for renditions: the same libvips calls in a loop of one process.
 *
 *     vipsloop FILE SIDE COUNT
 *
 * Prints the renditions per second, and the median of their durations in milliseconds. */
#define _GNU_SOURCE
#include "renderer.h"
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double milliseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static int compare(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

int main(int count, char **words) {
    if (count != 4) errx(2, "usage: vipsloop FILE SIDE COUNT");
    static char source[64 << 20];
    FILE *file = fopen(words[1], "rb");
    if (!file) err(1, "%s", words[1]);
    size_t length = fread(source, 1, sizeof source, file);
    char why[256];
    if (crenderer_load("vipsloop", why, sizeof why) != 0) errx(1, "%s", why);
    struct crenderer_options options = {.side = (uint32_t)atoi(words[2]), .max_pixels = 50000000};
    int times = atoi(words[3]);
    double *took = calloc((size_t)times, sizeof *took);
    if (!took) err(1, "calloc");
    double start = milliseconds();
    for (int index = 0; index < times; index++) {
        double before = milliseconds();
        struct crenderer_image image;
        if (crenderer_render(source, length, &options, &image, why, sizeof why) != CRENDERER_DONE) errx(1, "%s", why);
        crenderer_free(&image);
        took[index] = milliseconds() - before;
    }
    double all = milliseconds() - start;
    qsort(took, (size_t)times, sizeof *took, compare);
    printf("%f %f\n", times / all * 1e3, took[times / 2]);
    return 0;
}
