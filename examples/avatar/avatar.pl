#!/usr/bin/env perl
# One picture from thumbcached, in Perl, with the module Redis (apt install libredis-perl, or cpan Redis).
#
#   perl avatar.pl USER PROFILE COPY [PICTURE]
#
# Logs USER in, writes the picture of PROFILE to the file COPY, logs USER out, and asks once more. The picture is
# the file PICTURE if there is one, otherwise the daemon downloads it. THUMBCACHED_SOCKET names the daemon's socket.
# The exit status is 0 when all went well, 4 if there is no picture, 2 for a wrong command line, else 1.
use strict;
use warnings;
use Redis;

if (@ARGV != 3 && @ARGV != 4) {
    print STDERR "usage: avatar.pl USER PROFILE COPY [PICTURE]\n";
    exit 2;
}
my ($user, $profile, $copy, $picture) = @ARGV;

sub file {
    my ($mode, $path, @bytes) = @_;
    open my $file, "$mode:raw", $path or die "$path: $!\n";
    return do { local $/; <$file> } unless @bytes;
    print $file @bytes and close $file or die "$path: $!\n";
}

my $image;
eval {
    my $daemon = Redis->new(sock => $ENV{THUMBCACHED_SOCKET} // '/run/thumbcached/thumbcached.sock');
    # From here to the log-out there is a cache of this user. Any command is a method.
    $daemon->login($user);
    eval {
        $daemon->put($user, $profile, file('<', $picture)) if defined $picture;
        # The image itself, as bytes, or undef.
        $image = $daemon->get($user, $profile);
        if (defined $image) {
            file('>', $copy, $image);
            print length $image, " bytes written to $copy\n";
        }
        1;
    } or my $failure = $@;
    # Whatever went wrong before: this ends the cache. The receipt, an array of names and values in turn, says that
    # nothing can be read any more.
    my %receipt = @{ $daemon->logout($user) };
    die $failure if $failure;
    print "caches ended: $receipt{users}\n";

    die "the cache is still there\n" if eval { $daemon->get($user, $profile); 1 };
    die $@ unless $@ =~ /\bNOLOGIN\b/;
    print "asked again: NOLOGIN\n";
    1;
} or do {
    print STDERR "avatar.pl: $@";
    exit 1;
};
unless (defined $image) {
    print STDERR "there is no picture\n";
    exit 4;
}
