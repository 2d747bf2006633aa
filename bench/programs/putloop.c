/* A lower bound for PUT: opens, writes and renames files of the same size in a loop, in 256 directories.
 *
 *     putloop DIRECTORY IMAGE COUNT NAMES
 *
 * Prints the number per second. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

int main(int count, char **words)
{
    static char bytes[1 << 20];
    if (count != 5) {
        fprintf(stderr, "putloop DIRECTORY IMAGE COUNT NAMES\n");
        return 2;
    }
    int image = open(words[2], O_RDONLY);
    ssize_t length = read(image, bytes, sizeof bytes);
    if (image < 0 || length <= 0) fail(words[2]);
    if (chdir(words[1])) fail(words[1]);
    char name[64];
    int buckets[256];
    for (int bucket = 0; bucket < 256; bucket++) {
        snprintf(name, sizeof name, "%02x", bucket);
        mkdir(name, 0700);
        buckets[bucket] = open(name, O_RDONLY | O_DIRECTORY);
        if (buckets[bucket] < 0) fail(name);
    }
    long rounds = atol(words[3]), names = atol(words[4]);
    struct timespec begin, end;
    /* Random, like the names of redis-benchmark; otherwise a second run would replace the files of the first. */
    clock_gettime(CLOCK_REALTIME, &begin);
    srandom((unsigned)(getpid() ^ begin.tv_sec ^ begin.tv_nsec));
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long round = 0; round < rounds; round++) {
        long number = random() % names;
        int file = open("temporary", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file < 0 || write(file, bytes, length) != length || close(file)) fail("temporary");
        snprintf(name, sizeof name, "%012ld", number);
        if (renameat(AT_FDCWD, "temporary", buckets[number % 256], name)) fail(name);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.1f\n", rounds / (end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9));
    return 0;
}
