/* One picture from thumbcached, in C, with hiredis (apt install gcc libhiredis-dev).
 *
 *   cc -o avatar avatar.c -lhiredis && ./avatar USER PROFILE COPY [PICTURE]
 *
 * Logs USER in, writes the picture of PROFILE to the file COPY, logs USER out, and asks once more. The picture is
 * the file PICTURE if there is one, otherwise the daemon downloads it. THUMBCACHED_SOCKET names the daemon's socket.
 * The exit status is 0 when all went well, 4 if there is no picture, 2 for a wrong command line, else 1. */
#include <err.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static redisContext *daemon;

/* The reply, or the end of the program: without a reply the connection broke. */
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
    /* %b is a pointer and a length: an image holds zeros. */
    freeReplyObject(checked(redisCommand(daemon, "PUT %s %s %b", user, profile, bytes, size)));
    free(bytes);
}

int main(int count, char **words) {
    if (count != 4 && count != 5) errx(2, "usage: avatar USER PROFILE COPY [PICTURE]");
    const char *user = words[1], *profile = words[2], *copy = words[3], *path = getenv("THUMBCACHED_SOCKET");
    daemon = redisConnectUnix(path ? path : "/run/thumbcached/thumbcached.sock");
    if (!daemon || daemon->err) errx(1, "no daemon: %s", daemon ? daemon->errstr : "no memory");

    /* From here to the log-out there is a cache of this user. With HOLD it also ends with this connection, should the
     * program end on the way. */
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

    /* The receipt, an array of names and values in turn, says that nothing can be read any more. */
    redisReply *receipt = checked(redisCommand(daemon, "LOGOUT %s", user));
    for (size_t i = 0; i + 1 < receipt->elements; i += 2)
        if (strcmp(receipt->element[i]->str, "users") == 0)
            printf("caches ended: %lld\n", receipt->element[i + 1]->integer);
    freeReplyObject(receipt);

    redisReply *again = redisCommand(daemon, "GET %s %s", user, profile);
    if (!again || again->type != REDIS_REPLY_ERROR || strncmp(again->str, "NOLOGIN", 7) != 0)
        errx(1, "the cache is still there");
    puts("asked again: NOLOGIN");
    freeReplyObject(again);
    redisFree(daemon);
    if (!found) errx(4, "there is no picture");
    return 0;
}
