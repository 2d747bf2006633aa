<?php
// One picture from thumbcached, in PHP, with phpredis (apt install php-cli php-redis).
//
//   php avatar.php USER PROFILE COPY [PICTURE]
//
// Logs USER in, writes the picture of PROFILE to the file COPY, logs USER out, and asks once more. The picture is
// the file PICTURE if there is one, otherwise the daemon downloads it. THUMBCACHED_SOCKET names the daemon's socket.
// The exit status is 0 when all went well, 4 if there is no picture, 2 for a wrong command line, else 1.

if ($argc !== 4 && $argc !== 5) {
    fwrite(STDERR, "usage: avatar.php USER PROFILE COPY [PICTURE]\n");
    exit(2);
}
[, $user, $profile, $copy] = $argv;
$picture = $argv[4] ?? null;

// rawCommand sends any command, word by word. It gives false for an error and for null; the last error tells which.
function ask(Redis $daemon, string ...$words)
{
    $daemon->clearLastError();
    $reply = $daemon->rawCommand(...$words);
    if ($daemon->getLastError() !== null) {
        throw new RedisException($daemon->getLastError());
    }
    return $reply;
}

// A file that cannot be read or written is an error like any other, not a warning to pass over.
set_error_handler(fn ($level, $message) => throw new RuntimeException($message));
try {
    $daemon = new Redis();
    $daemon->connect(getenv('THUMBCACHED_SOCKET') ?: '/run/thumbcached/thumbcached.sock');
    // From here to the log-out there is a cache of this user.
    ask($daemon, 'LOGIN', $user);
    try {
        if ($picture !== null) {
            ask($daemon, 'PUT', $user, $profile, file_get_contents($picture));
        }
        $image = ask($daemon, 'GET', $user, $profile);
        if ($image !== false) {
            file_put_contents($copy, $image);
            echo strlen($image), " bytes written to $copy\n";
        }
    } finally {
        // Whatever went wrong before: this ends the cache.
        $receipt = ask($daemon, 'LOGOUT', $user);
    }
    // The receipt, an array of names and values in turn, says that nothing can be read any more.
    echo 'caches ended: ', $receipt[array_search('users', $receipt, true) + 1], "\n";

    try {
        ask($daemon, 'GET', $user, $profile);
        throw new RuntimeException('the cache is still there');
    } catch (RedisException $error) {
        if (!str_starts_with($error->getMessage(), 'NOLOGIN')) {
            throw $error;
        }
        echo "asked again: NOLOGIN\n";
    }
} catch (RedisException | RuntimeException $error) {
    fwrite(STDERR, "avatar.php: {$error->getMessage()}\n");
    exit(1);
}
if ($image === false) {
    fwrite(STDERR, "there is no picture\n");
    exit(4);
}
