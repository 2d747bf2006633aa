/* Logout by an application, without a library:  logout USER
 *
 * Ends the cache of USER for the calling uid. After success, nothing of the user can be read again.
 *
 *     cc -o logout logout.c */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Returns 0 if the cache has ended; otherwise -1 with the reason in `error`. */
static int log_out(const char *path, const char *user, char *error, size_t size)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(error, size, "the socket path is too long");
        return -1;
    }
    strcpy(address.sun_path, path);

    int connection = socket(AF_UNIX, SOCK_STREAM, 0);
    FILE *stream = connection < 0 ? NULL : fdopen(connection, "r+");
    if (!stream || connect(connection, (struct sockaddr *)&address, sizeof address) != 0) {
        snprintf(error, size, "%s: %s", path, strerror(errno));
        if (stream)
            fclose(stream);
        else if (connection >= 0)
            close(connection);
        return -1;
    }

    fprintf(stream, "*2\r\n$6\r\nLOGOUT\r\n$%zu\r\n%s\r\n", strlen(user), user);
    fflush(stream);
    /* Either a receipt, which is an array, or an error line. */
    char reply[512] = "the daemon closed the connection";
    int done = fgets(reply, sizeof reply, stream) && reply[0] == '*';
    if (!done)
        snprintf(error, size, "%.*s", (int)strcspn(reply, "\r\n"), reply);
    fclose(stream);
    return done ? 0 : -1;
}

int main(int count, char **arguments)
{
    const char *path = getenv("THUMBCACHED_SOCKET");
    char error[640];
    if (count != 2) {
        fprintf(stderr, "usage: %s USER\n", arguments[0]);
        return 2;
    }
    if (log_out(path ? path : "/run/thumbcached/thumbcached.sock", arguments[1], error, sizeof error) != 0) {
        fprintf(stderr, "not logged out: %s\n", error);
        return 1;
    }
    return 0;
}
