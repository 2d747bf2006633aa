# Varnish as a cache in front of one origin, shared by all hosts of a fleet. Adapt the origin (twice) and the allowed
# addresses. Effects, logouts and limits: fleet/docs/fleet.md, "One download for all".
#
#     varnishd -f /etc/varnish/shared-cache.vcl -a 10.0.0.5:80 -s malloc,256m
#     systemctl disable --now varnishncsa.service     # started by Debian's package; logs every URL
#
# On each host, in /etc/thumbcached/thumbcached.toml:
#     [origins.default]
#     url = "http://cache.example.org/{profile}?s={size}"
#     allow-private-addresses = true
#
# Varnish has no TLS on either side: use it only if origin and hosts are in one trusted network, otherwise nginx.
#
# Requests and responses not handled here continue in Varnish's builtin.vcl, which does not store responses with private,
# no-store, no-cache, Set-Cookie or Vary: *.
vcl 4.1;

backend origin {
    .host = "avatars.example.org";                              # the origin
    .port = "80";
    # Together less than the 4 s after which a host gives up, so that it receives the error and serves its stored image.
    .connect_timeout = 1s;
    .first_byte_timeout = 1500ms;
    .between_bytes_timeout = 1s;
}

# Response times reveal whether a host has requested an image recently, so only hosts are admitted.
acl hosts {
    "127.0.0.0"/8;
    "10.0.0.0"/8;
}

sub vcl_recv {
    if (client.ip !~ hosts) { return (synth(403)); }
    if (req.method != "GET" && req.method != "HEAD") { return (synth(405)); }
    set req.http.Host = "avatars.example.org";                  # the origin; clients cannot select another
    # The response is stored for all clients, so header fields that origins are known to use are removed. Unlike nginx,
    # Varnish cannot remove all unknown ones.
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
    # Responses to requests with a token belong to one user (RFC 9111 section 3.5). builtin.vcl also passes them; this
    # line does not depend on it.
    if (req.http.Authorization) { return (pass); }
}

# The key is the URL and the Host set above; it contains neither users nor tokens.

sub vcl_backend_response {
    # Surrogate-Control would override Cache-Control: private in Varnish.
    unset beresp.http.Surrogate-Control;
    # A server error neither replaces a stored image nor is stored.
    if (beresp.status >= 500 && bereq.is_bgfetch) { return (abandon); }
    if (beresp.status >= 500) {
        set beresp.uncacheable = true;
        set beresp.ttl = 0s;
        return (deliver);
    }
    if (beresp.status == 404 || beresp.status == 410) {
        if (beresp.ttl > 1m) { set beresp.ttl = 1m; }
    } else if (beresp.ttl > 10m) {
        # Hosts keep the image for the time that the origin allows, minus Age; the cache keeps it for a shorter time.
        set beresp.ttl = 10m;
    }
    # Stale images are served at once and revalidated in the background for ten minutes, then removed.
    set beresp.grace = 10m;
    set beresp.keep = 0s;
}
