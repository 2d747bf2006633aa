extension HostileOrigin {
    /// The part of the program that encodes HTTP/2 frames (RFC 9113) and HPACK fields (RFC 7541). A library would not
    /// encode invalid ones.
    static let http2 = #"""
        # HTTP/2

        DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY = range(8)
        WINDOW_UPDATE, CONTINUATION = 8, 9
        END_STREAM, ACK, END_HEADERS, PADDED, PRIORITISED = 1, 1, 4, 8, 32


        def number(value, bits, first=0):
            most = (1 << bits) - 1
            if value < most:
                return bytes([first | value])
            coded, value = bytes([first | most]), value - most
            while value > 127:
                coded, value = coded + bytes([value & 127 | 128]), value >> 7
            return coded + bytes([value])


        def field(name, value):
            return b"\0" + number(len(name), 7) + name + number(len(value), 7) + value


        FIELDS = [
            field(b"X-Upper", b"y"), field(b"", b"y"), field(b" x", b"y"), field(b":", b"y"), field(b"x:", b"y"),
            field(b"x", b"a\0b"), field(b"x", b"a\r\n b"), field(b"x", b"a\r\n\r\nb"), field(b"x", b" y "),
            field(b"x\0", b""), field(b"\xe4", b"\xff"), field(b"x", b"y" * 9000),
            field(b"x", b"y" * 70_000), field(b"y" * 9000, b"x"),
            field(b"x", b"y") * 2000, field(b"x", b"\r\n") * 200, field(b":path", b"/"),
            field(b":status", b"200"), field(b":status", b""), field(b":status", b"2000"), field(b":status", b"a\0b"),
            field(b":status", b"103"), field(b"content-length", b"5"),
            field(b"content-length", b"99999999999999999999"),
            field(b"connection", b"close"), field(b"transfer-encoding", b"chunked"),
            field(b"content-encoding", b"gzip"),
            field(b"location", b"/~~10~"), field(b"location", b"//\0"), field(b"set-cookie", b"a=b"),
            field(b"alt-svc", b'h2=":1"; ma=9'), field(b"www-authenticate", b"NTLM"), field(b"trailer", b"x"),
            # Invalid indices, unterminated numbers, table sizes, a field that is added to the table and used from it,
            # an invalid Huffman code, a truncated field.
            b"\x80", b"\xbe", b"\xff\xff\xff\xff\xff\xff", b"\0\xff\xff\xff\xff\x0f", b"\x3f\xe1\xff\xff\x7f", b"\x20",
            b"\x40\x01a\x01b\xbe", b"\0\x81\xff\x81\xff", b"\0",
        ]
        REQUEST = field(b":method", b"GET") + field(b":scheme", b"https") + field(b":authority", b"a")
        REQUEST += field(b":path", b"/")


        def padded(dice, flags, payload):
            if dice.randrange(3):
                return flags, payload
            count = dice.choice((0, 1, 40, 255))
            # Sometimes the padding length exceeds the frame.
            return flags | PADDED, bytes([255 if dice.randrange(9) == 0 else count]) + payload + bytes(count)


        def header(dice, stream, block, flags=0, kind=HEADERS, before=b""):
            """Encodes a field block in one or several frames."""
            pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)] or [b""]
            for _ in range(dice.choice((0, 0, 1, 3))):
                at = dice.randint(0, len(pieces[-1]))
                pieces[-1:] = pieces[-1][:at], pieces[-1][at:]
            if kind == HEADERS and dice.randrange(5) == 0:
                flags, before = flags | PRIORITISED, struct.pack(">IB", dice.choice((0, stream, 3, 1 << 31 | 1)), 9)
            first, payload = padded(dice, flags, before + pieces[0])
            frames = [[kind, first, stream, payload]] + [[CONTINUATION, 0, stream, piece] for piece in pieces[1:]]
            frames[-1][1] |= END_HEADERS
            return frames


        def extra(dice, stream):
            """Returns one or several frames, valid or not, to insert anywhere."""
            any_stream = dice.choice((0, 1, 2, stream, stream, stream + 2))
            word = struct.pack(">I", dice.choice((0, 1, 2, 7, 65_535, 1 << 31, (1 << 31) - 1, (1 << 32) - 1)))
            what = dice.randrange(12)
            if what == 0:
                return [[RST_STREAM, 0, stream, word]]
            if what == 1:
                last = struct.pack(">I", dice.choice((0, 1, stream, (1 << 31) - 1)))
                return [[GOAWAY, 0, 0, last + word + dice.choice((b"", b"x" * 300))]]
            if what == 2:
                return [[WINDOW_UPDATE, 0, any_stream, word]]
            if what == 3:
                promised = dice.choice((2, 2, 4, any_stream))
                frames = header(dice, stream, REQUEST, kind=PUSH_PROMISE, before=struct.pack(">I", promised))
                frames += header(dice, promised, field(b":status", b"200") + dice.choice(FIELDS))
                return frames + [[DATA, END_STREAM, promised, IMAGE]]
            if what == 4:
                return [[SETTINGS, 0, 0, struct.pack(">H", dice.randrange(8)) + word]]
            if what == 5:
                return [[SETTINGS, ACK, 0, dice.choice((b"", b"x"))]]
            if what == 6:
                return [[PING, dice.choice((0, ACK)), 0, b"x" * dice.choice((8, 8, 7))]]
            if what == 7:
                return [[PRIORITY, 0, any_stream, word + b"\x09"]]
            if what == 8:
                return [[DATA, dice.choice((0, END_STREAM)), any_stream, dice.choice((b"", b"x" * 300))]]
            if what == 9:
                return [[CONTINUATION, END_HEADERS, any_stream, field(b"x", b"y")]]
            if what == 10:
                return header(dice, stream, field(b":status", b"103") + dice.choice(FIELDS))
            return [[dice.randint(10, 255), dice.randrange(256), any_stream, b"x" * 30]]


        def good(stream):
            block = field(b":status", b"200") + field(b"content-length", b"%d" % len(IMAGE))
            return [[HEADERS, END_HEADERS, stream, block], [DATA, END_STREAM, stream, IMAGE]]


        def nearly_good(dice, stream):
            fields = [field(b":status", dice.choice(STATUSES)[:3])]
            fields += [field(b"content-type", b"image/png"), field(b"etag", b'"a"')]
            if dice.randrange(2):
                fields.append(field(b"content-length", b"%d" % len(IMAGE)))
            for _ in range(dice.choice((0, 0, 0, 1, 1, 2))):
                fields.insert(dice.choice((0, 1, dice.randrange(len(fields) + 1))), dice.choice(FIELDS))
            at = dice.randrange(len(IMAGE))
            bodies = [padded(dice, flags, body) for flags, body in ((0, IMAGE[:at]), (END_STREAM, IMAGE[at:]))]
            frames = header(dice, stream, b"".join(fields)) + [[DATA, flags, stream, body] for flags, body in bodies]
            if dice.randrange(4) == 0:
                frames[-1][1] &= ~END_STREAM
                frames += header(dice, stream, dice.choice(FIELDS[:6] + [field(b"x", b"y")] * 6), END_STREAM)
            return frames


        def http2(dice, stream, start):
            if not dice:
                return b"".join(map(framed, start + good(stream)))
            frames = start + nearly_good(dice, stream)
            for _ in range(dice.choice((0, 0, 0, 1, 1, 2))):
                at = dice.randint(0 if dice.randrange(9) == 0 else len(start), len(frames))
                frames[at:at] = extra(dice, stream)
            for _ in range(dice.choice((0, 0, 0, 0, 0, 1, 2))):
                at, other = dice.randrange(len(frames)), dice.randrange(len(frames))
                what = dice.randrange(6)
                if what == 0:
                    frames[other:other] = [list(frames[at])] * dice.choice((1, 1, 50))
                elif what == 1:
                    frames[at], frames[other] = frames[other], frames[at]
                elif what == 2 and len(frames) > 1:
                    del frames[at]
                else:
                    frames[at][what % 3] = dice.choice((0, 1, stream + 2, dice.randrange(256))) & 255
            coded = [framed(frame) for frame in frames]
            if dice.randrange(9) == 0:
                at = dice.randrange(len(coded))
                length = max(0, len(coded[at]) - 9 + dice.choice((-1, 1, -9, 9, 20_000)))
                coded[at] = length.to_bytes(3, "big") + coded[at][3:]
            return mutated(dice, b"".join(coded)) if dice.randrange(5) == 0 else b"".join(coded)


        def framed(frame):
            kind, flags, stream, payload = frame
            return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


        def serve_http2(connection):
            receive_exactly(connection, len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
            # Sent with the first response, so that its seed mutates them, too.
            start = [[SETTINGS, 0, 0, struct.pack(">HI", 3, 100)], [SETTINGS, ACK, 0, b""]]
            while True:
                head = receive_exactly(connection, 9)
                payload = receive_exactly(connection, int.from_bytes(head[:3], "big"))
                if head[3] == GOAWAY:
                    return
                if head[3] == HEADERS:
                    dice = dice_for(payload)
                    if not send(connection, dice, http2(dice, int.from_bytes(head[5:], "big"), start)):
                        return
                    start = []


        """#
}
