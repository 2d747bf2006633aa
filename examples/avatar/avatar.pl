#!/usr/bin/env perl
# One image from thumbcached, in Perl, with the module Redis (apt install libredis-perl, or cpan Redis).
#
#   perl avatar.pl USER PROFILE COPY [IMAGE]
#
# Logs USER in, stores the file IMAGE, if given, writes the image of PROFILE to the file COPY, logs USER out, and
# verifies the logout. Without IMAGE, the daemon downloads the image. THUMBCACHED_SOCKET names the daemon's socket.
# Exit status: 0 success, 4 no image, 2 invalid usage, 1 any other error.
use strict;
use warnings;
use Redis;

if (@ARGV != 3 && @ARGV != 4) {
    print STDERR "usage: avatar.pl USER PROFILE COPY [IMAGE]\n";
    exit 2;
}
my ($user, $profile, $copy, $image_file) = @ARGV;

sub file {
    my ($mode, $path, @bytes) = @_;
    open my $file, "$mode:raw", $path or die "$path: $!\n";
    return do { local $/; <$file> } unless @bytes;
    print $file @bytes and close $file or die "$path: $!\n";
}

my $image;
eval {
    my $daemon = Redis->new(sock => $ENV{THUMBCACHED_SOCKET} // '/run/thumbcached/thumbcached.sock');
    # The cache of this user exists until the logout. Each command is a method.
    $daemon->login($user);
    eval {
        $daemon->put($user, $profile, file('<', $image_file)) if defined $image_file;
        # The image as bytes, or undef.
        $image = $daemon->get($user, $profile);
        if (defined $image) {
            file('>', $copy, $image);
            print length $image, " bytes written to $copy\n";
        }
        1;
    } or my $failure = $@;
    # Ends the cache even after an error. The receipt is an array of names and values.
    my %receipt = @{ $daemon->logout($user) };
    die $failure if $failure;
    print "caches ended: $receipt{users}\n";

    die "the cache still exists\n" if eval { $daemon->get($user, $profile); 1 };
    die $@ unless $@ =~ /\bNOLOGIN\b/;
    print "after logout: NOLOGIN\n";
    1;
} or do {
    print STDERR "avatar.pl: $@";
    exit 1;
};
unless (defined $image) {
    print STDERR "no image\n";
    exit 4;
}
