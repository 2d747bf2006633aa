/* One image from thumbcached, in C, with hiredis (apt install gcc libhiredis-dev).
 *
 *   cc -o avatar avatar.c -lhiredis && ./avatar USER PROFILE COPY [IMAGE]
 *
 * Logs USER in, stores the file IMAGE, if given, writes the image of PROFILE to the file COPY, logs USER out, and
 * verifies the logout. Without IMAGE, the daemon downloads the image. THUMBCACHED_SOCKET names the daemon's socket.
 * Exit status: 0 success, 4 no image, 2 invalid usage, 1 any other error. */
#include <err.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static redisContext *daemon;

/* Returns the reply, or exits on an error. */
static redisReply *checked(redisReply *reply) {
    if (!reply) errx(1, "%s", daemon->errstr);
    if (reply->type == REDIS_REPLY_ERROR) errx(1, "%s", reply->str);
    return reply;
}

static void put(const char *user, const char *profile, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) err(1, "%s", path);
    size_t size = ftell(file);
    char *bytes = malloc(size);
    rewind(file);
    if (!bytes || fread(bytes, 1, size, file) != size) err(1, "%s", path);
    fclose(file);
    /* %b takes a pointer and a length, since an image contains zeros. */
    freeReplyObject(checked(redisCommand(daemon, "PUT %s %s %b", user, profile, bytes, size)));
    free(bytes);
}

int main(int count, char **words) {
    if (count != 4 && count != 5) errx(2, "usage: avatar USER PROFILE COPY [IMAGE]");
    const char *user = words[1], *profile = words[2], *copy = words[3], *path = getenv("THUMBCACHED_SOCKET");
    daemon = redisConnectUnix(path ? path : "/run/thumbcached/thumbcached.sock");
    if (!daemon || daemon->err) errx(1, "no daemon: %s", daemon ? daemon->errstr : "no memory");

    /* With HOLD, the cache ends at the logout or with this connection. */
    freeReplyObject(checked(redisCommand(daemon, "LOGIN %s HOLD", user)));
    if (count == 5) put(user, profile, words[4]);

    redisReply *image = checked(redisCommand(daemon, "GET %s %s", user, profile));
    int found = image->type == REDIS_REPLY_STRING; /* else null */
    if (found) {
        FILE *file = fopen(copy, "wb");
        if (!file || fwrite(image->str, 1, image->len, file) != (size_t)image->len || fclose(file)) err(1, "%s", copy);
        printf("%zu bytes written to %s\n", (size_t)image->len, copy);
    }
    freeReplyObject(image);

    /* The receipt, an array of names and values, confirms that nothing can be read any more. */
    redisReply *receipt = checked(redisCommand(daemon, "LOGOUT %s", user));
    for (size_t i = 0; i + 1 < receipt->elements; i += 2)
        if (strcmp(receipt->element[i]->str, "users") == 0)
            printf("caches ended: %lld\n", receipt->element[i + 1]->integer);
    freeReplyObject(receipt);

    redisReply *again = redisCommand(daemon, "GET %s %s", user, profile);
    if (!again || again->type != REDIS_REPLY_ERROR || strncmp(again->str, "NOLOGIN", 7) != 0)
        errx(1, "the cache still exists");
    puts("after logout: NOLOGIN");
    freeReplyObject(again);
    redisFree(daemon);
    if (!found) errx(4, "no image");
    return 0;
}
