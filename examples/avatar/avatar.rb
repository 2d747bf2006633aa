#!/usr/bin/env ruby
# One image from thumbcached, in Ruby, with redis-rb (apt install ruby-redis, or gem install redis).
#
#   ruby avatar.rb USER PROFILE COPY [IMAGE]
#
# Logs USER in, stores the file IMAGE, if given, writes the image of PROFILE to the file COPY, logs USER out, and
# verifies the logout. Without IMAGE, the daemon downloads the image. THUMBCACHED_SOCKET names the daemon's socket.
# Exit status: 0 success, 4 no image, 2 invalid usage, 1 any other error.
require "redis"

unless [3, 4].include?(ARGV.size)
  warn "usage: avatar.rb USER PROFILE COPY [IMAGE]"
  exit 2
end
user, profile, copy, image_file = ARGV

begin
  daemon = Redis.new(path: ENV.fetch("THUMBCACHED_SOCKET", "/run/thumbcached/thumbcached.sock"))
  # The cache of this user exists until the logout. call sends any command.
  daemon.call("LOGIN", user)
  begin
    daemon.call("PUT", user, profile, File.binread(image_file)) if image_file
    # The image, or nil. The client returns it as text with the same bytes.
    image = daemon.call("GET", user, profile)
    if image
      File.binwrite(copy, image)
      puts "#{image.bytesize} bytes written to #{copy}"
    end
  ensure
    # Ends the cache even after an error.
    receipt = daemon.call("LOGOUT", user)
  end
  # The receipt, an array of names and values, confirms that nothing can be read any more.
  puts "caches ended: #{Hash[*receipt]['users']}"

  begin
    daemon.call("GET", user, profile)
    abort "the cache still exists"
  rescue Redis::CommandError => error
    raise unless error.message.start_with?("NOLOGIN")
    puts "after logout: NOLOGIN"
  end
rescue Redis::BaseError, SystemCallError => error
  abort "avatar.rb: #{error.message}"
end

unless image
  warn "no image"
  exit 4
end
