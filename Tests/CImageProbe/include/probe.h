/* Decodes images for tests, with libvips. */
#ifndef THUMBCACHED_PROBE_H
#define THUMBCACHED_PROBE_H

#include <stddef.h>

struct cprobe_image {
    int width, height, bands;
    /* Red, green and blue of each pixel, in rows from the top; freed with free(3). */
    unsigned char *colors;
    /* Whether the image has an ICC profile. */
    int has_profile;
};

/* Decodes an image. Returns 0, or -1 if it cannot be decoded. Thread-safe. */
int cprobe_decode(const void *bytes, size_t length, struct cprobe_image *probed);

/* Makes an interlaced PNG of `side` by `side` black pixels, with 16 bits and alpha. Returns 0, or -1. Thread-safe. */
int cprobe_make_large(int side, void **bytes, size_t *length);

/* Frees the result of `cprobe_make_large`. */
void cprobe_free(void *bytes);

#endif
