# Varnish as a cache that a whole farm shares, in front of one origin. To adapt: the origin (twice), and who may ask.
# What it saves, what it means for a log-out and when not to use it: fleet/docs/fleet.md, "One download for all".
#
#     varnishd -f /etc/varnish/shared-cache.vcl -a 10.0.0.5:80 -s malloc,256m
#     systemctl disable --now varnishncsa.service     # Debian's package starts it: it writes every URL to a log
#
# On each host, in /etc/thumbcached/thumbcached.toml:
#     [origins.default]
#     url = "http://pictures.farm.example.org/{profile}?s={size}"
#     allow-private-addresses = true
#
# Varnish speaks no TLS on either side: it is for an origin, and hosts, of one network that is trusted. Else take nginx.
#
# Whatever is not decided here goes on into Varnish's own rules (builtin.vcl), which keep nothing that says private,
# no-store or no-cache, sets a cookie or varies by everything.
vcl 4.1;

backend origin {
    .host = "avatars.example.org";                              # the origin
    .port = "80";
    # Together less than the 4 s that a host waits: it is to hear of a failure from here, and serve what it holds.
    .connect_timeout = 1s;
    .first_byte_timeout = 1500ms;
    .between_bytes_timeout = 1s;
}

# Whoever may ask learns by the time of an answer whether the farm has asked for a picture lately: only hosts may.
acl hosts {
    "127.0.0.0"/8;
    "10.0.0.0"/8;
}

sub vcl_recv {
    if (client.ip !~ hosts) { return (synth(403)); }
    if (req.method != "GET" && req.method != "HEAD") { return (synth(405)); }
    set req.http.Host = "avatars.example.org";                  # the origin; nobody chooses another
    # An answer is for all who ask for the URL. So what a client adds and origins are known to heed is not passed on,
    # or somebody could have one URL answered in a way of his own, for everybody. Varnish cannot drop all it does not
    # know, as nginx can.
    unset req.http.Cookie;
    unset req.http.Range;
    unset req.http.Accept-Language;
    unset req.http.Forwarded;
    unset req.http.X-Forwarded-For;
    unset req.http.X-Forwarded-Host;
    unset req.http.X-Forwarded-Port;
    unset req.http.X-Forwarded-Proto;
    unset req.http.X-Forwarded-Scheme;
    unset req.http.X-Host;
    unset req.http.X-HTTP-Method-Override;
    unset req.http.X-Original-URL;
    unset req.http.X-Rewrite-URL;
    set req.http.User-Agent = "thumbcached";
    set req.http.Accept = "image/avif,image/webp,image/png,image/jpeg,image/gif,image/*;q=0.5";
    # What is asked for with a token is that user's alone (RFC 9111 section 3.5). Varnish's own rules say so, too; here
    # it cannot be lost.
    if (req.http.Authorization) { return (pass); }
}

# Nobody's name and no token is part of the key: it is the URL, and the Host from above.

sub vcl_backend_response {
    # It would overrule Cache-Control: private in Varnish's own rules.
    unset beresp.http.Surrogate-Control;
    # A failure replaces nothing that is held, and is not kept.
    if (beresp.status >= 500 && bereq.is_bgfetch) { return (abandon); }
    if (beresp.status >= 500) {
        set beresp.uncacheable = true;
        set beresp.ttl = 0s;
        return (deliver);
    }
    if (beresp.status == 404 || beresp.status == 410) {
        if (beresp.ttl > 1m) { set beresp.ttl = 1m; }
    } else if (beresp.ttl > 10m) {
        # Hosts keep it for as long as the origin says, by the Age that they are told; here it need not stay.
        set beresp.ttl = 10m;
    }
    # Stale is served at once, and renewed behind, with a 304 where it is unchanged. Then it is gone.
    set beresp.grace = 10m;
    set beresp.keep = 0s;
}
