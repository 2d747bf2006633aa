#include "probe.h"

#include <pthread.h>
#include <stdlib.h>
#include <vips/vips.h>

static void load(void) {
    vips_init("test");
    vips_concurrency_set(1);
}

static int copy_colors(VipsImage *image, struct cprobe_image *probed) {
    size_t length;
    unsigned char *all = vips_image_write_to_memory(image, &length);
    if (!all) return -1;
    probed->width = vips_image_get_width(image);
    probed->height = vips_image_get_height(image);
    probed->bands = vips_image_get_bands(image);
    probed->has_profile = vips_image_get_typeof(image, VIPS_META_ICC_NAME) != 0;
    size_t pixels = (size_t)probed->width * (size_t)probed->height;
    probed->colors = malloc(pixels * 3);
    if (probed->colors && probed->bands >= 3)
        for (size_t pixel = 0; pixel < pixels; pixel++)
            for (size_t band = 0; band < 3; band++)
                probed->colors[pixel * 3 + band] = all[pixel * (size_t)probed->bands + band];
    g_free(all);
    return probed->colors && probed->bands >= 3 ? 0 : -1;
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

int cprobe_decode(const void *bytes, size_t length, struct cprobe_image *probed) {
    pthread_once(&once, load);
    VipsImage *image = vips_image_new_from_buffer(bytes, length, "", NULL), *plain = NULL;
    if (!image) return -1;
    int result = vips_colourspace(image, &plain, VIPS_INTERPRETATION_sRGB, NULL);
    if (result == 0) {
        result = copy_colors(plain, probed);
        g_object_unref(plain);
    }
    g_object_unref(image);
    return result;
}
