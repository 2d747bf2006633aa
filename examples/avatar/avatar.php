<?php
// One image from thumbcached, in PHP, with phpredis (apt install php-cli php-redis).
//
//   php avatar.php USER PROFILE COPY [IMAGE]
//
// Logs USER in, stores the file IMAGE, if given, writes the image of PROFILE to the file COPY, logs USER out, and
// verifies the logout. Without IMAGE, the daemon downloads the image. THUMBCACHED_SOCKET names the daemon's socket.
// Exit status: 0 success, 4 no image, 2 invalid usage, 1 any other error.

if ($argc !== 4 && $argc !== 5) {
    fwrite(STDERR, "usage: avatar.php USER PROFILE COPY [IMAGE]\n");
    exit(2);
}
[, $user, $profile, $copy] = $argv;
$image_file = $argv[4] ?? null;

// rawCommand sends any command. It returns false for an error and for null; the last error distinguishes them.
function ask(Redis $daemon, string ...$words)
{
    $daemon->clearLastError();
    $reply = $daemon->rawCommand(...$words);
    if ($daemon->getLastError() !== null) {
        throw new RedisException($daemon->getLastError());
    }
    return $reply;
}

// Turns warnings about files into errors.
set_error_handler(fn ($level, $message) => throw new RuntimeException($message));
try {
    $daemon = new Redis();
    $daemon->connect(getenv('THUMBCACHED_SOCKET') ?: '/run/thumbcached/thumbcached.sock');
    // The cache of this user exists until the logout.
    ask($daemon, 'LOGIN', $user);
    try {
        if ($image_file !== null) {
            ask($daemon, 'PUT', $user, $profile, file_get_contents($image_file));
        }
        $image = ask($daemon, 'GET', $user, $profile);
        if ($image !== false) {
            file_put_contents($copy, $image);
            echo strlen($image), " bytes written to $copy\n";
        }
    } finally {
        // Ends the cache even after an error.
        $receipt = ask($daemon, 'LOGOUT', $user);
    }
    // The receipt, an array of names and values, confirms that nothing can be read any more.
    echo 'caches ended: ', $receipt[array_search('users', $receipt, true) + 1], "\n";

    try {
        ask($daemon, 'GET', $user, $profile);
        throw new RuntimeException('the cache still exists');
    } catch (RedisException $error) {
        if (!str_starts_with($error->getMessage(), 'NOLOGIN')) {
            throw $error;
        }
        echo "after logout: NOLOGIN\n";
    }
} catch (RedisException | RuntimeException $error) {
    fwrite(STDERR, "avatar.php: {$error->getMessage()}\n");
    exit(1);
}
if ($image === false) {
    fwrite(STDERR, "no image\n");
    exit(4);
}
