/* A minimal server on a Unix socket with encrypted images on disk. For each request it reads an open file from the page
 * cache into the reply, and decrypts and authenticates it in place with AES-256-GCM. It serves its images in turn, and
 * sets up key, context and cipher only once.
 *
 *     diskserver SOCKET FRAME-LENGTH IMAGE-LENGTH IMAGES DIRECTORY
 *
 * DIRECTORY receives a file for each image: nonce, encrypted image, tag. */
#define _GNU_SOURCE
#include "serve.h"
#include <err.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NONCE_LENGTH = 12, TAG_LENGTH = 16, LARGEST_IMAGE = 1 << 20, MOST_IMAGES = 1024, PARTS = 3 };

static EVP_CIPHER_CTX *opening;
static int image_length, image_count, next_image, files[MOST_IMAGES];
static ssize_t entry_length;
static unsigned char nonce[NONCE_LENGTH], tag[TAG_LENGTH];
/* The replies that are sent in one call, and the locations of their images. */
static struct iovec replies[AT_ONCE];
static unsigned char *rooms[AT_ONCE];

static void expect(int is_so, const char *what) {
    if (!is_so) errx(1, "OpenSSL failed: %s", what);
}

static struct iovec *entry_around(unsigned char *image) {
    static struct iovec parts[PARTS] = {{nonce, NONCE_LENGTH}, {NULL, 0}, {tag, TAG_LENGTH}};
    parts[1] = (struct iovec){image, (size_t)image_length};
    return parts;
}

static void store_images(const char *directory, EVP_CIPHER_CTX *sealing) {
    unsigned char *image = rooms[0];
    for (int i = 0; i < image_count; i++) {
        int length;
        memset(image, 'x', (size_t)image_length);
        expect(RAND_bytes(nonce, NONCE_LENGTH) == 1 && EVP_EncryptInit_ex2(sealing, NULL, NULL, nonce, NULL) == 1
            && EVP_EncryptUpdate(sealing, image, &length, image, image_length) == 1
            && EVP_EncryptFinal_ex(sealing, image, &length) == 1
            && EVP_CIPHER_CTX_ctrl(sealing, EVP_CTRL_AEAD_GET_TAG, TAG_LENGTH, tag) == 1, "sealing");
        char path[4096];
        snprintf(path, sizeof path, "%s/%d", directory, i);
        /* O_NOATIME, so that reads do not update the access time. */
        files[i] = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOATIME, 0600);
        if (files[i] < 0 || writev(files[i], entry_around(image), PARTS) != entry_length) err(1, "%s", path);
    }
}

/* Reads from the page cache; from the disk if that fails. */
static int read_entry(int file, const struct iovec *parts) {
    return preadv2(file, parts, PARTS, 0, RWF_NOWAIT) == entry_length ||
           preadv2(file, parts, PARTS, 0, 0) == entry_length;
}

static struct iovec next_opened(int place) {
    unsigned char *image = rooms[place];
    int length;
    if (!read_entry(files[next_image], entry_around(image))) errx(1, "image %d could not be read", next_image);
    expect(EVP_DecryptInit_ex2(opening, NULL, NULL, nonce, NULL) == 1
        && EVP_DecryptUpdate(opening, image, &length, image, image_length) == 1
        && EVP_CIPHER_CTX_ctrl(opening, EVP_CTRL_AEAD_SET_TAG, TAG_LENGTH, tag) == 1
        && EVP_DecryptFinal_ex(opening, image, &length) == 1, "decrypting, or the tag does not match");
    next_image = (next_image + 1) % image_count;
    return replies[place];
}

int main(int argc, char **argv) {
    if (argc != 6) errx(2, "diskserver SOCKET FRAME-LENGTH IMAGE-LENGTH IMAGES DIRECTORY");
    size_t frame_length = (size_t)atol(argv[2]);
    image_length = atoi(argv[3]);
    image_count = atoi(argv[4]);
    if (frame_length == 0 || image_length < 1 || image_length > LARGEST_IMAGE || image_count < 1 ||
        image_count > MOST_IMAGES)
        errx(2, "frames have at least 1 byte, images 1 to %d, and there are 1 to %d images", LARGEST_IMAGE,
             MOST_IMAGES);
    entry_length = NONCE_LENGTH + image_length + TAG_LENGTH;
    for (int i = 0; i < AT_ONCE; i++) rooms[i] = (unsigned char *)make_reply(&replies[i], (size_t)image_length);

    unsigned char key[32];
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    EVP_CIPHER_CTX *sealing = EVP_CIPHER_CTX_new();
    opening = EVP_CIPHER_CTX_new();
    expect(cipher != NULL && sealing != NULL && opening != NULL && RAND_bytes(key, sizeof key) == 1
        && EVP_EncryptInit_ex2(sealing, cipher, key, NULL, NULL) == 1
        && EVP_DecryptInit_ex2(opening, cipher, key, NULL, NULL) == 1, "setting up");
    store_images(argv[5], sealing);
    serve(argv[1], frame_length, next_opened);
}
