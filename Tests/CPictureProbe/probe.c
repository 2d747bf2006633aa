#include "probe.h"

#include <pthread.h>
#include <stdlib.h>
#include <vips/vips.h>

static void load(void) {
    vips_init("test");
    vips_concurrency_set(1);
}

static int copy_colours(VipsImage *image, struct cprobe_picture *picture) {
    size_t length;
    unsigned char *all = vips_image_write_to_memory(image, &length);
    if (!all) return -1;
    picture->width = vips_image_get_width(image);
    picture->height = vips_image_get_height(image);
    picture->bands = vips_image_get_bands(image);
    picture->has_profile = vips_image_get_typeof(image, VIPS_META_ICC_NAME) != 0;
    size_t pixels = (size_t)picture->width * (size_t)picture->height;
    picture->colours = malloc(pixels * 3);
    if (picture->colours && picture->bands >= 3)
        for (size_t pixel = 0; pixel < pixels; pixel++)
            for (size_t band = 0; band < 3; band++)
                picture->colours[pixel * 3 + band] = all[pixel * (size_t)picture->bands + band];
    g_free(all);
    return picture->colours && picture->bands >= 3 ? 0 : -1;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

int cprobe_make_large(int side, void **bytes, size_t *length) {
    pthread_once(&once, load);
    VipsImage *black = NULL, *deep = NULL, *image = NULL;
    int result = vips_black(&black, side, side, "bands", 4, NULL);
    if (result == 0) result = vips_cast_ushort(black, &deep, NULL);
    if (result == 0) result = vips_copy(deep, &image, "interpretation", VIPS_INTERPRETATION_RGB16, NULL);
    if (result == 0)
        result = vips_pngsave_buffer(image, bytes, length, "interlace", TRUE, "bitdepth", 16, "compression", 1, NULL);
    if (image) g_object_unref(image);
    if (deep) g_object_unref(deep);
    if (black) g_object_unref(black);
    return result;
}

void cprobe_free(void *bytes) { g_free(bytes); }

int cprobe_decode(const void *bytes, size_t length, struct cprobe_picture *picture) {
    pthread_once(&once, load);
    VipsImage *image = vips_image_new_from_buffer(bytes, length, "", NULL), *plain = NULL;
    if (!image) return -1;
    int result = vips_colourspace(image, &plain, VIPS_INTERPRETATION_sRGB, NULL);
    if (result == 0) {
        result = copy_colours(plain, picture);
        g_object_unref(plain);
    }
    g_object_unref(image);
    return result;
}
