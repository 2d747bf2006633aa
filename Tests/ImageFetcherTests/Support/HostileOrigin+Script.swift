extension HostileOrigin {
    /// The program, which needs only Python 3 and its standard library.
    static let script = bytesAndHTTP1 + http2 + connections

    private static let bytesAndHTTP1 = #"""
        """Sends mutated responses over TLS on loopback: HTTP/1.1 on one port, HTTP/2 on another.

            CERTIFICATE KEY IMAGE-IN-HEX

        The response to /~~N~ is mutated by the seed N, and unchanged if N is a multiple of ten. Prints both ports.
        Exits when its standard input closes.
        """

        import os
        import random
        import re
        import socket
        import ssl
        import struct
        import sys
        import threading
        import traceback

        CERTIFICATE, KEY, IMAGE = sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3])
        # No client compresses these characters, because their Huffman codes in HPACK have more than 8 bits.
        PATH = re.compile(rb"/~~(\d{1,9})~")

        # Bytes

        PIECES = [b" \r\n", b"\t no-store\r\n", b": \r\n", b"\r\n", b"\n", b"\r", b"\0", b":", b" "]
        PIECES += [b"\r\n ", b"\xff\xfe", b"y" * 9000]


        def mutated(dice, answer):
            """Mutates the bytes, mostly near the beginning."""
            answer = bytearray(answer)
            for _ in range(dice.choice((0, 0, 1, 1, 2, 3))):
                at = dice.randrange(min(len(answer), dice.choice((20, 400, len(answer)))) + 1)
                what = dice.randrange(6)
                if what == 0:
                    answer[at : at + 1] = bytes([dice.randrange(256)])
                elif what == 1:
                    answer[at:at] = dice.choice(PIECES)
                elif what == 2:
                    del answer[at : at + dice.choice((1, 1, 2, 9, 40))]
                elif what == 3:
                    answer[at:at] = answer[dice.randrange(len(answer) + 1) :][: dice.randint(1, 60)]
                elif what == 4:
                    answer[at : at + 1] = bytes(byte ^ 1 << dice.randrange(8) for byte in answer[at : at + 1])
                elif dice.randrange(3) == 0:
                    del answer[at:]
            return bytes(answer)


        # HTTP/1.1

        LINES = [
            b" X: y", b"\tX: y", b" : ", b" ", b":", b": x", b"", b"\0", b"X: \0", b"X: a\rY: b", b"\r", b"X", b"X : y",
            b"\xe4: y", b"X: " + b"y" * 9000, b"X: " + b"y" * 200_000, b" " + b"y" * 9000,
            b"\r\n".join([b"X: y"] * 500), b"\r\n".join([b" y"] * 500),
            b"Content-Length: 5", b"Content-Length: 99999999999999999999", b"Content-Length: -1",
            b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
            b"Content-Encoding: gzip", b"Trailer: X", b"Content-Range: bytes 0-1/5", b"Set-Cookie: a=b",
            b"Keep-Alive: timeout=x", b'Alt-Svc: h2=":1"; ma=9',
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK", b"HTTP/1.1 100\r\n\r\n X: y", b"HTTP/2 200",
            b"Connection: close", b"Connection: Upgrade\r\nUpgrade: h2c", b"Strict-Transport-Security: max-age=9",
            b"WWW-Authenticate: NTLM", b'WWW-Authenticate: Digest nonce="',
            b"Location: /~~10~", b"Location: //\0", b"Location:\r\n /~~20~",
        ]
        STATUSES = [b"302 Found", b"304 Not Modified", b"404 Not Found", b"401 Unauthorized"]
        STATUSES += [b"101 Switching Protocols", b"204 No Content"] + [b"200 OK"] * 15 + [b"999"]


        def http1(dice):
            body, length = IMAGE, b"Content-Length: %d" % len(IMAGE)
            status = b"200 OK"
            lines = [b"Content-Type: image/png", b"Cache-Control: max-age=60,", b" private", b'ETag: "a"', length]
            if dice:
                status = dice.choice(STATUSES)
                if dice.randrange(3) == 0:
                    lines[-1] = b"Transfer-Encoding: chunked"
                    rest = b"%x\r\n%s\r\n0\r\nX: y\r\n y\r\n\r\n" % (len(IMAGE) - 5, IMAGE[5:])
                    body = b"5;a=b\r\n%s\r\n" % IMAGE[:5] + rest
                for _ in range(dice.choice((0, 0, 1, 1, 2))):
                    lines.insert(dice.choice((0, 0, dice.randrange(len(lines) + 1))), dice.choice(LINES))
            answer = b"\r\n".join([b"HTTP/1.1 " + status] + lines) + b"\r\n\r\n" + body
            return mutated(dice, answer) if dice else answer


        def serve_http1(connection):
            unread = b""
            while True:
                while b"\r\n\r\n" not in unread:
                    unread += received(connection, 65536)
                request, unread = unread.split(b"\r\n\r\n", 1)
                dice = dice_for(request)
                if not send(connection, dice, http1(dice)):
                    return


        """#

    private static let connections = #"""
        # Connections


        def dice_for(request):
            """A random generator, or None for an unchanged response."""
            found = PATH.search(request)
            # A mutated Location can have any path.
            seed = int(found[1]) if found else 1
            return random.Random(seed) if seed % 10 else None


        def send(connection, dice, answer):
            """Sends the response. Returns whether the connection stays open."""
            if not dice:
                connection.settimeout(60)
                connection.sendall(answer)
                return True
            # Closes connections whose client waits for the rest of a truncated response.
            connection.settimeout(0.2)
            at = dice.randrange(len(answer) + 1)
            # Each piece is a TLS record of its own.
            single = [answer[at : at + 1] for at in range(min(len(answer), 200))] + [answer[200:]]
            halves = [answer[:at], answer[at:]]
            for piece in dice.choice(([answer], [answer], [answer], halves, halves, halves, halves, single)):
                if piece:
                    connection.sendall(piece)
            end = dice.randrange(12)
            if end == 0:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if end == 1:
                connection.unwrap()
            return end > 2


        def received(connection, most):
            data = connection.recv(most)
            if not data:
                raise ConnectionError("the peer has closed the connection")
            return data


        def receive_exactly(connection, count):
            data = b""
            while len(data) < count:
                data += received(connection, count - len(data))
            return data


        def converse(plain, context, serve):
            try:
                with plain:
                    plain.settimeout(10)
                    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    with context.wrap_socket(plain, server_side=True) as connection:
                        if connection.selected_alpn_protocol() is not None:
                            serve(connection)
            except OSError:
                pass  # The peer has closed the connection, or a timeout.
            except BaseException:
                # An error of this program must not look like a mutated response.
                traceback.print_exc()
                os._exit(1)


        def accept(listener, context, serve):
            while True:
                try:
                    plain, _ = listener.accept()
                except socket.timeout:
                    continue
                threading.Thread(target=converse, args=(plain, context, serve), daemon=True).start()


        ports = []
        for protocol, serve in (("http/1.1", serve_http1), ("h2", serve_http2)):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE, KEY)
            context.set_alpn_protocols([protocol])
            listener = socket.create_server(("127.0.0.1", 0))
            listener.settimeout(1)
            ports.append(listener.getsockname()[1])
            threading.Thread(target=accept, args=(listener, context, serve), daemon=True).start()
        print(*ports, flush=True)
        sys.stdin.buffer.read()
        os._exit(0)

        """#
}
