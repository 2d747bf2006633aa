/* What a test sees of a picture, by libvips. */
#ifndef THUMBCACHED_PROBE_H
#define THUMBCACHED_PROBE_H

#include <stddef.h>

struct cprobe_picture {
    int width, height, bands;
    /* The first three of each pixel, row by row, 0 to 255; to be given back by free(3). */
    unsigned char *colours;
    /* Whether a colour profile is kept with it. */
    int has_profile;
};

/* Decodes a picture. 0, or -1 where it is none. Any thread. */
int cprobe_decode(const void *bytes, size_t length, struct cprobe_picture *picture);

/* Makes an interlaced PNG of `side` by `side` black pixels, with 16 bits and opacity. Returns 0, or -1. Any thread. */
int cprobe_make_large(int side, void **bytes, size_t *length);

/* Frees what `cprobe_make_large` made. */
void cprobe_free(void *bytes);

#endif
