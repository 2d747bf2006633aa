#!/usr/bin/env ruby
# One picture from thumbcached, in Ruby, with redis-rb (apt install ruby-redis, or gem install redis).
#
#   ruby avatar.rb USER PROFILE COPY [PICTURE]
#
# Logs USER in, writes the picture of PROFILE to the file COPY, logs USER out, and asks once more. The picture is
# the file PICTURE if there is one, otherwise the daemon downloads it. THUMBCACHED_SOCKET names the daemon's socket.
# The exit status is 0 when all went well, 4 if there is no picture, 2 for a wrong command line, else 1.
require "redis"

unless [3, 4].include?(ARGV.size)
  warn "usage: avatar.rb USER PROFILE COPY [PICTURE]"
  exit 2
end
user, profile, copy, picture = ARGV

begin
  daemon = Redis.new(path: ENV.fetch("THUMBCACHED_SOCKET", "/run/thumbcached/thumbcached.sock"))
  # From here to the log-out there is a cache of this user. call sends any command, word by word.
  daemon.call("LOGIN", user)
  begin
    daemon.call("PUT", user, profile, File.binread(picture)) if picture
    # The image itself, or nil. The client takes it for text; as a file it is the same bytes.
    image = daemon.call("GET", user, profile)
    if image
      File.binwrite(copy, image)
      puts "#{image.bytesize} bytes written to #{copy}"
    end
  ensure
    # Whatever went wrong before: this ends the cache.
    receipt = daemon.call("LOGOUT", user)
  end
  # The receipt, an array of names and values in turn, says that nothing can be read any more.
  puts "caches ended: #{Hash[*receipt]['users']}"

  begin
    daemon.call("GET", user, profile)
    abort "the cache is still there"
  rescue Redis::CommandError => error
    raise unless error.message.start_with?("NOLOGIN")
    puts "asked again: NOLOGIN"
  end
rescue Redis::BaseError, SystemCallError => error
  abort "avatar.rb: #{error.message}"
end

unless image
  warn "there is no picture"
  exit 4
end
