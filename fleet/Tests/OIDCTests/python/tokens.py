"""Prints valid and forged logout tokens as JSON, made with joserfc.

    tokens.py NOW          time at which the tokens in `good` are valid, in seconds since 1970
"""

import base64
import hashlib
import hmac
import json
import sys

from joserfc import jwe, jws
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

NOW = int(sys.argv[1])
EVENT = "http://schemas.openid.net/event/backchannel-logout"
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
ABSENT = object()

keys = {
    "rsa": RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig", "alg": "RS256"}),
    "any-rsa": RSAKey.generate_key(2048, {"kid": "any-rsa"}),
    "p256": ECKey.generate_key("P-256", {"kid": "p256", "use": "sig"}),
    "p384": ECKey.generate_key("P-384", {"kid": "p384"}),
    "p521": ECKey.generate_key("P-521", {"kid": "p521"}),
    "ed25519": OKPKey.generate_key("Ed25519", {"kid": "ed25519", "use": "sig"}),
}
stranger = RSAKey.generate_key(2048, {"kid": "rsa"})
encryption = RSAKey.generate_key(2048, {"kid": "encryption"})
short = RSAKey.generate_key(1024, {"kid": "short", "use": "sig"})
later = RSAKey.generate_key(2048, {"kid": "later", "use": "sig", "alg": "RS256"})
count = 0


def claims(**changes):
    global count
    count += 1
    everything = {
        "iss": "https://id.example.org/realms/staff",
        "aud": "thumbnails",
        "iat": NOW,
        "exp": NOW + 120,
        "jti": f"token-{count}",
        "events": {EVENT: {}},
        "sub": "alice",
        "sid": "desk-1",
        **changes,
    }
    return {name: value for name, value in everything.items() if value is not ABSENT}


def sign(payload, key="rsa", alg="RS256", header=None, by=None):
    head = {"alg": alg, "kid": key, "typ": "logout+jwt", **(header or {})}
    head = {name: value for name, value in head.items() if value is not ABSENT}
    registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    return jws.serialize_compact(head, json.dumps(payload), by or keys[key], registry=registry)


def sign_raw(payload):
    head = {"alg": "RS256", "kid": "rsa"}
    return jws.serialize_compact(head, payload, keys["rsa"], registry=jws.JWSRegistry(algorithms=ALGORITHMS))


def text(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def by_hand(head, payload, signer=lambda signed: b""):
    signed = text(json.dumps(head).encode()) + "." + text(json.dumps(payload).encode())
    return signed + "." + text(signer(signed.encode()))


def with_hmac(secret):
    return by_hand(
        {"alg": "HS256", "kid": "rsa", "typ": "logout+jwt"},
        claims(),
        lambda signed: hmac.new(secret, signed, hashlib.sha256).digest(),
    )


def changed(token, part):
    parts = token.split(".")
    middle = len(parts[part]) // 2
    parts[part] = parts[part][:middle] + ("A" if parts[part][middle] != "A" else "B") + parts[part][middle + 1 :]
    return ".".join(parts)


public_pem = keys["rsa"].as_pem(private=False)
public_jwk = json.dumps(keys["rsa"].as_dict(private=False)).encode()
modulus = base64.urlsafe_b64decode(keys["rsa"].as_dict(private=False)["n"] + "==")

good = {
    "RS256": sign(claims()),
    "RS256, with a key without alg": sign(claims(), "any-rsa"),
    "PS256": sign(claims(), "any-rsa", "PS256"),
    "ES256": sign(claims(), "p256", "ES256"),
    "EdDSA": sign(claims(), "ed25519", "EdDSA"),
    "several audiences": sign(claims(aud=["mail", "thumbnails"])),
    "a list of one audience": sign(claims(aud=["thumbnails"])),
    "without a typ": sign(claims(), header={"typ": ABSENT}),
    "typ in full": sign(claims(), header={"typ": "application/Logout+JWT"}),
    "without a sid": sign(claims(sid=ABSENT)),
    "times with fractions": sign(claims(iat=NOW - 0.5, exp=NOW + 119.5)),
    "a clock that is ahead": sign(claims(iat=NOW + 59)),
    "a clock that is behind": sign(claims(iat=NOW - 120, exp=NOW - 59)),
    "further claims": sign(claims(azp="mail", nested={"a": [1, {"nonce": 1}]}, events={EVENT: {"x": 1}, "other": 5})),
    "without a kid, with one possible key": sign(claims(), "p256", "ES256", header={"kid": ABSENT}),
}
other = {
    "without a sub": sign(claims(sub=ABSENT)),
    "ES384": sign(claims(), "p384", "ES384"),
    "ES512": sign(claims(), "p521", "ES512"),
    "RS512": sign(claims(), "any-rsa", "RS512"),
    "later": sign(claims(), "later", by=later),
    "typ JWT": sign(claims(), header={"typ": "JWT"}),
    "a strange user": sign(claims(sub="*")),
    "an empty sub": sign(claims(sub="")),
    "no exp": sign(claims(exp=ABSENT)),
    "no exp, issued long ago": sign(claims(exp=ABSENT, iat=NOW - 361)),
    "no exp, from the future": sign(claims(exp=ABSENT, iat=NOW + 61)),
    "an exp of null": sign(claims(exp=None)),
    "a long sub": sign(claims(sub="x" * 600)),
}

forged = {
    # Missing and invalid signatures.
    "alg none": (by_hand({"alg": "none", "typ": "logout+jwt"}, claims()), "alg is not in"),
    "alg None": (by_hand({"alg": "None", "kid": "rsa"}, claims()), "alg is not in"),
    "alg none, with the signature of another token": (
        by_hand({"alg": "none", "kid": "rsa"}, claims()) + sign(claims()).split(".")[2], "alg is not in"),
    "no alg": (by_hand({"kid": "rsa"}, claims()), "header is invalid"),
    "HS256 with the public key as PEM": (with_hmac(public_pem), "alg is not in"),
    "HS256 with the public key as JWK": (with_hmac(public_jwk), "alg is not in"),
    "HS256 with the modulus": (with_hmac(modulus), "alg is not in"),
    "an empty signature": (sign(claims()).rsplit(".", 1)[0] + ".", "signature is wrong"),
    "another key": (sign(claims(), by=stranger), "signature is wrong"),
    "a key in the header": (
        sign(claims(), by=stranger, header={"jwk": stranger.as_dict(private=False)}), "signature is wrong"),
    "the URL of a key set in the header": (
        sign(claims(), by=stranger, header={"jku": "https://evil.example/jwks"}), "signature is wrong"),
    "another payload": (changed(sign(claims()), 1), "signature is wrong"),
    "another signature": (changed(sign(claims()), 2), "signature is wrong"),
    "an unknown kid": (sign(claims(), header={"kid": "unknown"}), "kid matches no key"),
    "another key's kid": (sign(claims(), header={"kid": "any-rsa"}), "signature is wrong"),
    "no kid, with several possible keys": (sign(claims(), header={"kid": ABSENT}), "has no kid"),
    "a key for encryption": (sign(claims(), "encryption", by=encryption), "kid matches no key"),
    "a key that is too short": (sign(claims(), "short", by=short), "kid matches no key"),
    "an algorithm for which the key is not allowed": (
        sign(claims(), "any-rsa", "PS256", header={"kid": "rsa"}), "alg is not that of its key"),
    "an algorithm of another kind of key": (
        by_hand({"alg": "ES256", "kid": "rsa"}, claims(), lambda _: b"x" * 64), "alg is not that of its key"),
    "an algorithm that is not allowed": (sign(claims(), "any-rsa", "RS384"), "alg is not in"),
    "an ECDSA signature of zeros": (
        by_hand({"alg": "ES256", "kid": "p256"}, claims(), lambda _: bytes(64)), "signature is wrong"),
    # Not a signed token.
    "encrypted": (
        jwe.encrypt_compact(
            {"alg": "dir", "enc": "A128GCM"}, b"{}", OctKey.generate_key(128)), "is encrypted"),
    "two parts": ("a.b", "is not a signed JWT"),
    "four parts": (sign(claims()) + ".x", "is not a signed JWT"),
    "padding": (sign(claims()) + "=", "not valid base64url"),
    "a header that is not JSON": (text(b"x") + "." + text(b"{}") + ".eA", "header is invalid"),
    "a deeply nested header": (
        text(b'{"alg":' + b"[" * 40_000) + "." + text(b"{}") + ".eA", "header is invalid"),
    "deeply nested claims": (sign_raw('{"a":' * 6_000 + "1" + "}" * 6_000), "no JSON object"),
    "a critical header parameter": (
        by_hand({"alg": "RS256", "kid": "rsa", "crit": ["exp"], "exp": 1}, claims()), "has a crit"),
    "typ of an access token": (sign(claims(), header={"typ": "at+jwt"}), "typ is not in"),
    "typ JWT": (sign(claims(), header={"typ": "JWT"}), "typ is not in"),
    "typ is a number": (by_hand({"alg": "RS256", "typ": 5}, claims()), "header is invalid"),
    "claims are a list": (sign([claims()]), "no JSON object"),
    # Missing and invalid claims.
    "no iss": (sign(claims(iss=ABSENT)), "has no iss"),
    "another iss": (sign(claims(iss="https://id.example.org/realms/other")), "iss is not oidc.issuer"),
    "iss with a trailing slash": (sign(claims(iss="https://id.example.org/realms/staff/")), "iss is not oidc.issuer"),
    "iss is a list": (sign(claims(iss=["https://id.example.org/realms/staff"])), "iss is not a text"),
    "no aud": (sign(claims(aud=ABSENT)), "has no aud"),
    "another aud": (sign(claims(aud="mail")), "aud lacks oidc.client-id"),
    "an empty list of aud": (sign(claims(aud=[])), "aud lacks oidc.client-id"),
    "aud with an unknown audience": (sign(claims(aud=["thumbnails", "evil"])), "not in oidc.other-audiences"),
    "aud is an object": (sign(claims(aud={"thumbnails": 1})), "aud is not a text or a list"),
    "no iat": (sign(claims(iat=ABSENT)), "has no iat"),
    "iat in the future": (sign(claims(iat=NOW + 61)), "iat is in the future"),
    "iat far in the future": (sign(claims(iat=1e300, exp=1e301)), "iat is in the future"),
    "iat long ago": (sign(claims(iat=NOW - 361)), "longer ago than oidc.max-age"),
    "iat far in the past": (sign(claims(iat=-1e300)), "longer ago than oidc.max-age"),
    "iat is a text": (sign(claims(iat=str(NOW))), "iat is not a time"),
    "iat is true": (sign(claims(iat=True)), "iat is not a time"),
    "no exp": (sign(claims(exp=ABSENT)), "has no exp"),
    "alg twice": (
        text(b'{"alg":"RS256","alg":"none"}') + "." + text(b"{}") + ".eA", "header is invalid"),
    "sub twice": (sign_raw('{"sub":"alice","sub":"bob"}'), "no JSON object"),
    "an expired exp": (sign(claims(iat=NOW - 200, exp=NOW - 60)), "has expired"),
    "exp before iat": (sign(claims(iat=NOW, exp=NOW)), "exp is not after its iat"),
    "exp is null": (sign(claims(exp=None)), "exp is not a time"),
    "no jti": (sign(claims(jti=ABSENT)), "has no jti"),
    "an empty jti": (sign(claims(jti="")), "jti has to have"),
    "a long jti": (sign(claims(jti="x" * 256)), "jti has to have"),
    "jti is a number": (sign(claims(jti=5)), "jti is not a text"),
    "no events": (sign(claims(events=ABSENT)), "has no events"),
    "events of something else": (sign(claims(events={EVENT + "s": {}})), "events lack"),
    "events are a list": (sign(claims(events=[EVENT])), "events is not an object"),
    "the event is true": (sign(claims(events={EVENT: True})), "event is no object"),
    "the event is null": (sign(claims(events={EVENT: None})), "event is no object"),
    "a nonce": (sign(claims(nonce="n")), "has a nonce"),
    "a nonce of null": (sign(claims(nonce=None)), "has a nonce"),
    "neither sub nor sid": (sign(claims(sub=ABSENT, sid=ABSENT)), "neither sub nor sid"),
    "sub is a number": (sign(claims(sub=5)), "sub is not a text"),
    "sid is a list": (sign(claims(sid=["desk-1"])), "sid is not a text"),
    "an ID token": (
        sign({
            "iss": "https://id.example.org/realms/staff", "aud": "thumbnails", "iat": NOW, "exp": NOW + 120,
            "sub": "alice", "nonce": "n",
        }, header={"typ": ABSENT}), "has no jti"),
}


def public(*chosen):
    return {"keys": [key.as_dict(private=False) for key in chosen]}


of_the_provider = public(*keys.values(), short)
of_the_provider["keys"].append(encryption.as_dict(private=False) | {"use": "enc"})
# Unknown and invalid keys are ignored: RFC 7517, section 5.
of_the_provider["keys"] += [{"kty": "new"}, {"kty": "oct", "k": text(b"x" * 32), "kid": "secret"}, {"kty": "RSA"}, 5]
print(json.dumps({
    "jwks": of_the_provider,
    "rotated": public(keys["rsa"], later),
    "good": good,
    "other": other,
    "forged": {name: {"token": token, "reason": reason} for name, (token, reason) in forged.items()},
}))
