"""An OpenID Connect provider for back-channel logout: keys, tokens and logout requests.

    provider.py DIRECTORY

Writes its port to DIRECTORY/port once it serves. Signs tokens with joserfc.

    GET /keys            the key set, in the way that DIRECTORY/keys names: `usual`, `large`, `slow`, `moved`, `broken`
                         or `nested`
    GET /tls?certificate=FILE&key=FILE   serves the same with TLS on another port, and returns the port
    GET /rotate          replaces the signing key
    GET /token?sub=…     returns a logout token
    GET /logout?to=URL&ca=FILE&sub=…   sends a logout token to URL and returns the response
"""

import http.server
import json
import pathlib
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

from joserfc import jwt
from joserfc.jwk import RSAKey

HOME = pathlib.Path(sys.argv[1])
EVENT = "http://schemas.openid.net/event/backchannel-logout"
END = threading.Event()


class Provider(http.server.BaseHTTPRequestHandler):
    key = RSAKey.generate_key(2048, {"kid": "first", "use": "sig", "alg": "RS256"})
    asked = 0

    def do_GET(self):
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        answer = {
            "/keys": self.keys, "/token": self.token, "/logout": self.logout, "/rotate": self.rotate, "/tls": self.tls,
        }[parts.path]
        answer(**query)

    def keys(self):
        Provider.asked += 1
        (HOME / "asked").write_text(str(Provider.asked))
        how = (HOME / "keys").read_text().strip()
        keys = json.dumps({"keys": [self.key.as_dict(private=False)]})
        if how == "large":
            keys += " " * (1 << 20)
        if how == "nested":
            keys = '{"keys":' + "[" * 513
        if how == "slow":
            # Sends the head and a part of the body, and then nothing.
            self.send_response(200)
            self.send_header("Content-Length", str(len(keys)))
            self.end_headers()
            self.wfile.write(keys[:10].encode())
            self.wfile.flush()
            END.wait()
        elif how == "moved":
            self.answer(302, keys, {"Location": "/token"})
        else:
            self.answer(500 if how == "broken" else 200, keys)

    def signed(self, sub="alice"):
        now = int(time.time())
        claims = {
            "iss": "https://id.example.org", "aud": "thumbnails", "iat": now, "exp": now + 120, "sub": sub,
            "sid": "desk", "jti": str(uuid.uuid4()), "events": {EVENT: {}},
        }
        return jwt.encode({"alg": "RS256", "kid": self.key.kid, "typ": "logout+jwt"}, claims, self.key)

    def token(self, **query):
        self.answer(200, self.signed(**query))

    def rotate(self):
        Provider.key = RSAKey.generate_key(2048, {"kid": "second", "use": "sig", "alg": "RS256"})
        self.answer(200, "")

    def tls(self, certificate, key):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        server = listening()
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.answer(200, str(server.server_port))

    def logout(self, to, ca=None, **query):
        body = urllib.parse.urlencode({"logout_token": self.signed(**query)}).encode()
        # The receiver runs on this machine; a proxy from the environment must not be used.
        direct = [urllib.request.ProxyHandler({})]
        if ca:
            direct.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
        try:
            with urllib.request.build_opener(*direct).open(to, body, timeout=30) as reply:
                self.answer(200, f"{reply.status} {reply.headers['Cache-Control']} {reply.read().decode()}")
        except urllib.error.HTTPError as error:
            self.answer(200, f"{error.code} {error.headers['Cache-Control']} {error.read().decode()}")

    def answer(self, status, text, headers={}):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def listening():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.daemon_threads = True
    return server


if not (HOME / "keys").exists():
    (HOME / "keys").write_text("usual")
server = listening()
(HOME / "port.new").write_text(str(server.server_port))
(HOME / "port.new").rename(HOME / "port")
server.serve_forever()
