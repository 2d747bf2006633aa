/* CRenderer: see include/renderer.h. Rendering with libvips. */
#define _GNU_SOURCE

#include "renderer.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <vips/vips.h>
/* Not included by vips.h. */
#include <vips/vector.h>

/* Moves the messages of libvips into `reason`. */
static void move_messages(char *reason, size_t capacity) {
    snprintf(reason, capacity, "%s", vips_error_buffer());
    vips_error_clear();
    size_t length = strlen(reason);
    while (length > 0 && reason[length - 1] == '\n') reason[--length] = 0;
}

int crenderer_load(const char *program, char *reason, size_t capacity) {
    /* Fails only if another allocator, which has no such arenas, replaces malloc. */
    mallopt(M_ARENA_MAX, 1);
    if (vips_init(program) != 0) {
        move_messages(reason, capacity);
        return -1;
    }
    static const char *const loaders[] = {
        "VipsForeignLoadJpegBuffer", "VipsForeignLoadPngBuffer", "VipsForeignLoadWebpBuffer",
        "VipsForeignLoadNsgifBuffer", "VipsForeignLoadHeifBuffer",
    };
    vips_operation_block_set("VipsForeignLoad", TRUE);
    for (size_t index = 0; index < sizeof loaders / sizeof *loaders; index++)
        vips_operation_block_set(loaders[index], FALSE);
    /* Many workers run side by side, so each uses one thread. */
    vips_concurrency_set(1);
    /* The daemon caches renditions, so no operation is repeated. */
    vips_cache_set_max(0);
    /* orc generates machine code, which a confined process cannot execute. */
    vips_vector_set_enabled(FALSE);
    return 0;
}

/* The output format for the source format of a loader; CRENDERER_SOURCE if the loader is unknown. */
static enum crenderer_format format_of(const char *loader) {
    static const struct {
        const char *name;
        enum crenderer_format format;
    } formats[] = {
        {"VipsForeignLoadJpegBuffer", CRENDERER_JPEG}, {"VipsForeignLoadPngBuffer", CRENDERER_PNG},
        {"VipsForeignLoadWebpBuffer", CRENDERER_WEBP}, {"VipsForeignLoadNsgifBuffer", CRENDERER_PNG},
        {"VipsForeignLoadHeifBuffer", CRENDERER_WEBP},
    };
    for (size_t index = 0; loader && index < sizeof formats / sizeof *formats; index++)
        if (strcmp(loader, formats[index].name) == 0) return formats[index].format;
    return CRENDERER_SOURCE;
}

/* Whether an item of a HEIF file is coded as HEVC, whatever its brand says: ISO/IEC 14496-12, 8.11.6, box infe in
 * versions 2 and 3. HEVC is not a supported format. */
static int has_hevc(const unsigned char *bytes, size_t length) {
    static const char box[] = "infe", kind[] = "hvc1";
    const unsigned char *end = bytes + length, *place = bytes;
    while ((place = memmem(place, (size_t)(end - place), box, 4))) {
        place += 4;
        for (size_t offset = 8; offset <= 10; offset += 2)
            if ((size_t)(end - place) >= offset + 4 && memcmp(place + offset, kind, 4) == 0) return 1;
    }
    return 0;
}

/* An opaque image gets an alpha of 255 in each pixel. */
static int save_pixels(VipsImage *image, struct crenderer_image *rendition) {
    VipsImage *whole, *bytes;
    int result = vips_image_hasalpha(image) ? vips_copy(image, &whole, NULL) : vips_addalpha(image, &whole, NULL);
    if (result != 0) return result;
    result = vips_cast_uchar(whole, &bytes, NULL);
    g_object_unref(whole);
    if (result != 0) return result;
    if (vips_image_get_bands(bytes) == 4) rendition->bytes = vips_image_write_to_memory(bytes, &rendition->length);
    else vips_error("thumbcached-renderer", "%d bands", vips_image_get_bands(bytes));
    g_object_unref(bytes);
    return rendition->bytes ? 0 : -1;
}

static int save(VipsImage *image, enum crenderer_format format, struct crenderer_image *rendition) {
    switch (format) {
    case CRENDERER_JPEG:
        return vips_jpegsave_buffer(
            image, &rendition->bytes, &rendition->length, "Q", 85, "strip", TRUE, "optimize_coding", TRUE, NULL);
    case CRENDERER_WEBP:
        return vips_webpsave_buffer(image, &rendition->bytes, &rendition->length, "Q", 82, "strip", TRUE, NULL);
    case CRENDERER_PIXELS:
        return save_pixels(image, rendition);
    default:
        return vips_pngsave_buffer(image, &rendition->bytes, &rendition->length, "strip", TRUE, NULL);
    }
}

/* Removes place, author, embedded previews and all other metadata. Some savers keep them in spite of "strip". */
static void remove_metadata(VipsImage *image) {
    char **fields = vips_image_get_fields(image);
    for (char **field = fields; *field; field++) vips_image_remove(image, *field);
    g_strfreev(fields);
}

/* Converts to sRGB without metadata, and for JPEG to an opaque image on white. `plain` is a copy that shares no
 * metadata with `image`. */
static int make_plain(VipsImage *image, enum crenderer_format format, VipsImage **plain) {
    VipsImage *colored, *opaque;
    if (vips_colourspace(image, &colored, VIPS_INTERPRETATION_sRGB, NULL) != 0) return -1;
    opaque = colored;
    int result = 0;
    if (format == CRENDERER_JPEG && vips_image_hasalpha(colored)) {
        VipsArrayDouble *white = vips_array_double_newv(3, 255.0, 255.0, 255.0);
        result = vips_flatten(colored, &opaque, "background", white, NULL);
        vips_area_unref(VIPS_AREA(white));
        g_object_unref(colored);
        if (result != 0) return result;
    }
    result = vips_copy(opaque, plain, NULL);
    g_object_unref(opaque);
    if (result == 0) remove_metadata(*plain);
    return result;
}

/* Whether the ICC profile of an image has the color space of its bands: ICC.1, 7.2.8. libvips accepts a profile of one
 * channel for an image of three bands, and then reads the second band as alpha. */
static int has_fitting_profile(VipsImage *image) {
    const char *profile;
    size_t length;
    if (vips_image_get_typeof(image, VIPS_META_ICC_NAME) == 0) return 0;
    if (vips_image_get_blob(image, VIPS_META_ICC_NAME, (const void **)&profile, &length) != 0) return 0;
    if (length < 128 || memcmp(profile + 36, "acsp", 4) != 0) return 0;
    if (vips_image_get_interpretation(image) == VIPS_INTERPRETATION_CMYK) return memcmp(profile + 16, "CMYK", 4) == 0;
    int colors = vips_image_get_bands(image) - (vips_image_hasalpha(image) ? 1 : 0);
    return memcmp(profile + 16, colors == 1 ? "GRAY" : "RGB ", 4) == 0;
}

/* Copies an image without its ICC profile. */
static int drop_profile(VipsImage *image, VipsImage **copy) {
    if (vips_copy(image, copy, NULL) != 0) return -1;
    vips_image_remove(*copy, VIPS_META_ICC_NAME);
    return 0;
}

/* The factor by which the image has to be reduced; at least 1. A decoder does part of it, and resampling the rest. */
static double shrink_on_load(VipsImage *header, int side, int covers) {
    double across = vips_image_get_width(header) / (double)side, down = vips_image_get_height(header) / (double)side;
    return fmax(1, covers ? fmin(across, down) : fmax(across, down));
}

/* Opens an image for one pass from top to bottom. The pass fails if the data ends early, except for a JPEG: see
 * `is_truncated`. */
static VipsImage *open_source(const void *source, size_t length, const char *loader, double shrink) {
    if (strstr(loader, "Jpeg") && shrink >= 4)
        return vips_image_new_from_buffer(
            source, length, "", "access", VIPS_ACCESS_SEQUENTIAL, "shrink", shrink >= 16 ? 8 : shrink >= 8 ? 4 : 2,
            NULL);
    if (strstr(loader, "Webp") && shrink > 1)
        return vips_image_new_from_buffer(
            source, length, "", "access", VIPS_ACCESS_SEQUENTIAL, "fail_on", VIPS_FAIL_ON_TRUNCATED, "scale",
            1 / shrink, NULL);
    return vips_image_new_from_buffer(
        source, length, "", "access", VIPS_ACCESS_SEQUENTIAL, "fail_on",
        strstr(loader, "Jpeg") ? VIPS_FAIL_ON_NONE : VIPS_FAIL_ON_TRUNCATED, NULL);
}

/* Whether the data of a JPEG ended early. libjpeg then invents pixels and warns; libvips keeps the first warning. */
static int is_truncated(void) { return strstr(vips_error_buffer(), "premature end of data segment") != NULL; }

/* Makes an image fit into a square of `side` pixels, in sRGB or gray. */
static int fit(VipsImage *source, int side, int covers, VipsImage **fitting) {
    return vips_thumbnail_image(
        source, fitting, side, "height", side, "size", VIPS_SIZE_DOWN, "crop",
        covers ? VIPS_INTERESTING_CENTRE : VIPS_INTERESTING_NONE, NULL);
}

/* Fits an image as `fit` does, and applies its ICC profile. Like browsers, ignores a damaged profile and one of another
 * color space. */
static int fit_in_color(VipsImage *source, int side, int covers, VipsImage **fitting) {
    VipsImage *plain = NULL, *small = NULL;
    int is_cmyk = vips_image_get_interpretation(source) == VIPS_INTERPRETATION_CMYK;
    int has_profile = has_fitting_profile(source), result;
    if (is_cmyk && has_profile && fit(source, side, covers, fitting) == 0) return 0;
    if (is_cmyk || !has_profile) {
        vips_error_clear();
        result = drop_profile(source, &plain);
        if (result == 0) result = fit(plain, side, covers, fitting);
    } else {
        result = fit(source, side, covers, &small);
        if (result == 0 && vips_icc_transform(small, fitting, "srgb", "embedded", TRUE, NULL) != 0) {
            vips_error_clear();
            result = drop_profile(small, fitting);
        }
    }
    if (plain) g_object_unref(plain);
    if (small) g_object_unref(small);
    return result;
}

enum crenderer_outcome crenderer_render(
    const void *source, size_t length, const struct crenderer_options *options, struct crenderer_image *rendition,
    char *reason, size_t capacity) {
    memset(rendition, 0, sizeof *rendition);
    vips_error_clear();
    const char *loader = vips_foreign_find_load_buffer(source, length);
    enum crenderer_format own = format_of(loader);
    if (own == CRENDERER_SOURCE || (strstr(loader, "Heif") && has_hevc(source, length))) {
        vips_error_clear();
        snprintf(reason, capacity, "no PNG, JPEG, GIF, WebP or AVIF");
        return CRENDERER_UNKNOWN_FORMAT;
    }
    rendition->format = options->format == CRENDERER_SOURCE ? own : options->format;

    VipsImage *image = open_source(source, length, loader, 1);
    if (!image) {
        move_messages(reason, capacity);
        return CRENDERER_BROKEN;
    }
    /* By the header; no pixel has been decoded. */
    uint64_t width = (uint64_t)vips_image_get_width(image), height = (uint64_t)vips_image_get_height(image);
    if (width * height > options->max_pixels) {
        g_object_unref(image);
        snprintf(reason, capacity, "%llu x %llu pixels", (unsigned long long)width, (unsigned long long)height);
        return CRENDERER_TOO_MANY_PIXELS;
    }
    uint64_t shorter = width < height ? width : height;
    int covers = options->fit == CRENDERER_COVER;
    /* A cropped square is no larger than the shorter side of the image. */
    int side = (int)(covers && shorter < options->side ? shorter : options->side);
    double shrink = shrink_on_load(image, side, covers);
    if ((strstr(loader, "Jpeg") && shrink >= 4) || (strstr(loader, "Webp") && shrink > 1)) {
        g_object_unref(image);
        image = open_source(source, length, loader, shrink);
    }

    VipsImage *small = NULL, *plain = NULL;
    int result = image ? fit_in_color(image, side, covers, &small) : -1;
    if (result == 0) result = make_plain(small, rendition->format, &plain);
    if (result == 0) {
        rendition->width = (uint32_t)vips_image_get_width(plain);
        rendition->height = (uint32_t)vips_image_get_height(plain);
        result = save(plain, rendition->format, rendition);
    }
    if (result == 0 && is_truncated()) result = -1;
    if (plain) g_object_unref(plain);
    if (small) g_object_unref(small);
    if (image) g_object_unref(image);
    move_messages(reason, capacity);
    if (result == 0) return CRENDERER_DONE;
    crenderer_free(rendition);
    return CRENDERER_BROKEN;
}

void crenderer_free(struct crenderer_image *rendition) {
    g_free(rendition->bytes);
    rendition->bytes = NULL;
    rendition->length = 0;
}
