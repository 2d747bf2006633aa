import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

@Suite struct RequestReaderTests {
    private func reader() -> RequestReader { RequestReader(limits: RequestLimits()) }

    private func requests(_ reader: inout RequestReader) throws -> [[String]] {
        var requests: [[String]] = []
        while let request = try reader.next() {
            requests.append((0..<request.count).map { String(buffer: request[$0]) })
        }
        return requests
    }

    private func isEmpty(_ reader: inout RequestReader) throws -> Bool {
        if case .none = try reader.next() { true } else { false }
    }

    private static let words = [["PING"], ["ECHO", "hello"], ["SET", "", "x\r\ny"], ["PING"]]

    private func stream() -> ByteBuffer {
        var bytes = ByteBuffer()
        for request in Self.words { bytes.writeRequest(request) }
        return bytes
    }

    @Test func `requests are decoded from pieces of any size`() throws {
        let bytes = Array(stream().readableBytesView)
        for size in 1...bytes.count {
            var reader = reader()
            var read: [[String]] = []
            for start in stride(from: 0, to: bytes.count, by: size) {
                reader.append(ByteBuffer(bytes: bytes[start..<min(start + size, bytes.count)]))
                read += try requests(&reader)
            }
            #expect(read == Self.words)
            #expect(reader.readableBytes == 0 && !reader.isInsideFrame && reader.count == 4)
        }
    }

    @Test func `requests read ahead are decoded in order while earlier ones are retained`() throws {
        var reader = reader()
        var retained: [Request] = []
        let bytes = Array(stream().readableBytesView)
        for start in stride(from: 0, to: bytes.count, by: 7) {
            reader.append(ByteBuffer(bytes: bytes[start..<min(start + 7, bytes.count)]))
            // At most one, so that input runs ahead; retained, so that its storage is shared.
            if let request = try reader.next() { retained.append(request) }
        }
        while let request = try reader.next() { retained.append(request) }
        #expect(retained.map { request in (0..<request.count).map { String(buffer: request[$0]) } } == Self.words)
    }

    @Test func `I8: a stream that always ends inside a frame does not grow the buffer`() throws {
        var reader = reader()
        let frame = TestClient.request(["ECHO", String(repeating: "x", count: 100)])
        let half = try #require(frame.getSlice(at: 0, length: 60))
        var rest = try #require(frame.getSlice(at: 60, length: frame.readableBytes - 60))
        rest.writeImmutableBuffer(half)
        reader.append(half)
        for _ in 0..<100_000 {
            #expect(try isEmpty(&reader))
            reader.append(rest)
            #expect(try !isEmpty(&reader))
        }
        #expect(reader.capacity < 4_096)
    }

    /// A buffer like the loop's read buffer, much larger than its content.
    private func borrowed(_ bytes: some Sequence<UInt8>) -> ByteBuffer {
        var buffer = ByteBuffer()
        buffer.reserveCapacity(64 << 10)
        buffer.writeBytes(bytes)
        return buffer
    }

    @Test func `I8: an unfinished frame does not retain the borrowed buffer`() throws {
        var reader = reader()
        reader.append(borrowed(TestClient.request(["ECHO", "hello"]).readableBytesView.prefix(15)))
        #expect(try isEmpty(&reader))
        reader.keep()
        #expect(reader.storage < 1_024)
        reader.append(borrowed(TestClient.request(["ECHO", "hello"]).readableBytesView.dropFirst(15)))
        #expect(try requests(&reader) == [["ECHO", "hello"]])
        reader.keep()
        #expect(reader.storage == 0)
    }

    @Test func `F18, I8: a large argument that arrives byte by byte is not copied repeatedly`() throws {
        var reader = reader()
        let size = 1 << 20
        let frame = Array(TestClient.request(["ECHO", String(repeating: "x", count: size)]).readableBytesView)
        reader.append(borrowed(frame.prefix(size / 2)))
        #expect(try isEmpty(&reader))
        reader.keep()
        reader.append(borrowed(frame[(size / 2)..<(size / 2 + 1)]))
        #expect(try isEmpty(&reader))
        reader.keep()
        // The space for the whole argument was reserved at once.
        let before = reader.storage
        #expect(before >= size)
        for index in (size / 2 + 1)..<(size / 2 + 1_000) {
            reader.append(borrowed(CollectionOfOne(frame[index])))
            #expect(try isEmpty(&reader))
            reader.keep()
            #expect(reader.storage == before)
        }
        reader.append(borrowed(frame[(size / 2 + 1_000)...]))
        #expect(try requests(&reader) == [["ECHO", String(repeating: "x", count: size)]])
    }

    @Test(arguments: ["PURGE", "purge", "PuRgE", "PUT", "PURGED", ""])
    func `I8: the command and missing bytes of an unfinished frame are known`(_ name: String) throws {
        var reader = reader()
        #expect(reader.missingBytes == 0 && !reader.isInsideFrame(of: "PURGE"))
        reader.append(ByteBuffer(string: "*2\r\n$\(name.utf8.count)\r\n\(name)\r\n$100\r\n0123456789"))
        #expect(reader.missingBytes == 0 && !reader.isInsideFrame(of: "PURGE"))
        #expect(try isEmpty(&reader))
        #expect(reader.missingBytes == 92)
        #expect(reader.isInsideFrame(of: "PURGE") == (name.uppercased() == "PURGE"))
        reader.append(ByteBuffer(string: String(repeating: "x", count: 90) + "\r\n"))
        #expect(try !isEmpty(&reader))
        #expect(reader.missingBytes == 0 && !reader.isInsideFrame(of: "PURGE"))
    }

    @Test func `I8, F20: the missing bytes account for undecoded input`() throws {
        var reader = reader()
        reader.append(ByteBuffer(string: "*2\r\n$4\r\nECHO\r\n$100\r\n0123456789"))
        #expect(try isEmpty(&reader))
        reader.append(ByteBuffer(string: String(repeating: "x", count: 50)))
        #expect(reader.missingBytes == 42 && !reader.isInsideFrame)
        reader.append(ByteBuffer(string: String(repeating: "x", count: 40) + "\r\n*1\r\n$4\r\nPING\r\n"))
        #expect(reader.missingBytes == 0)
        reader.clear()
        #expect(reader.missingBytes == 0)
    }

    @Test func `an idle connection retains no input`() throws {
        var reader = reader()
        reader.append(TestClient.request(["ECHO", String(repeating: "x", count: 1 << 20)]))
        #expect(try !isEmpty(&reader))
        #expect(reader.capacity == 0)
    }

    @Test func `a frame is unfinished only if all input is decoded`() throws {
        var reader = reader()
        reader.append(ByteBuffer(string: "*1\r\n$4\r\nPI"))
        #expect(!reader.isInsideFrame)
        #expect(try isEmpty(&reader))
        #expect(reader.isInsideFrame)
        reader.append(ByteBuffer(string: "NG\r\n"))
        #expect(!reader.isInsideFrame)
        #expect(try !isEmpty(&reader))
        #expect(!reader.isInsideFrame)
    }
}

extension RequestReader {
    /// Bytes of memory of the input, and of returned requests that are not discarded.
    fileprivate var capacity: Int { decoding.capacity + undecoded.capacity }

    /// The capacity of the buffers, which may be shared.
    fileprivate var storage: Int { decoding.storageCapacity + undecoded.storageCapacity }
}
