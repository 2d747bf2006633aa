import Foundation
import Glibc
import HelperProtocol
import NIOCore
import Testing

/// Pictures that were made to do harm, and decoders that were broken into.
@Suite(.timeLimit(.minutes(3))) struct HostilePictureTests {
    @Test(arguments: [
        ("bomb.png", RenderAnswer.Outcome.tooManyPixels), ("bomb-bits.png", .tooManyPixels),
        ("lying.jpg", .tooManyPixels),
    ])
    func `a bomb is known by its header, and is not decoded`(name: String, outcome: RenderAnswer.Outcome) throws {
        let renderer = try Renderer()
        let worker = try renderer.worker()
        #expect(try worker.render(try Pictures.named(name), side: 64).answer.outcome == outcome)
        #expect(try worker.render(try Pictures.named("baseline.jpg"), side: 8).answer.outcome == .rendered)
    }

    @Test func `F81: a bomb that lies about itself costs its worker at most, and no other`() throws {
        let renderer = try Renderer()
        // All pixels are allowed: memory and time are what is left.
        for name in ["bomb.png", "bomb-bits.png", "lying.jpg", "bomb.gif"] {
            let (worker, other) = (try renderer.worker(mostPixels: .max), try renderer.worker())
            try worker.ask(try Pictures.named(name), side: 64)
            for _ in 0..<3 {
                #expect(try other.render(try Pictures.named("baseline.jpg"), side: 8).answer.outcome == .rendered)
            }
            do {
                let outcome = try worker.answer().answer.outcome
                #expect(outcome == .broken || outcome == .rendered, "\(name)")
            } catch is RendererWorker.Ended {
                // Its limits have ended it.
            }
        }
        #expect(try renderer.end() == 0)
    }

    /// Where the decoder had no data, a rendition shows nothing: it is not made, or is transparent there.
    @Test(arguments: RenderingTests.kinds + ["exif-6.jpg", "alpha.webp"], [[], [0xFF, 0xD9]] as [[UInt8]])
    func `an image that is cut off anywhere shows nothing that its decoder invented`(
        kind: String, end: [UInt8]
    ) throws {
        let renderer = try Renderer()
        let worker = try renderer.worker()
        let source = try Pictures.named(kind)
        let whole = try worker.render(source, side: 24, fit: .contain, format: .pixels).bytes
        for length in stride(from: 0, to: source.count, by: max(1, source.count / 60)) {
            let (answer, bytes) = try worker.render(source[..<length] + end, side: 24, fit: .contain, format: .pixels)
            guard answer.outcome == .rendered else { continue }
            try #require(bytes.count == whole.count)
            // A progressive JPEG without its last scans averages the blocks at the edges of the scene.
            let isInside = (0..<24 * 16).map { !(10...13).contains($0 % 24) && !(6...9).contains($0 / 24) }
            for pixel in stride(from: 0, to: bytes.count, by: 4) where bytes[pixel + 3] > 0 && isInside[pixel / 4] {
                let isDue = (pixel..<pixel + 3).allSatisfy { [bytes[$0]].areNear(Int(whole[$0]), within: 64) }
                try #require(isDue, "\(kind) cut off at \(length), pixel \(pixel / 4): \(bytes[pixel...].prefix(4))")
            }
        }
    }

    @Test(arguments: RenderingTests.kinds)
    func `a picture with any byte changed costs its worker at most`(kind: String) throws {
        let renderer = try Renderer()
        var worker = try renderer.worker()
        let source = try Pictures.named(kind)
        for place in stride(from: 0, to: source.count, by: max(1, source.count / 120)) {
            var changed = source
            changed[place] ^= UInt8(1 << (place % 8))
            do {
                _ = try worker.render(changed, side: 16)
            } catch is RendererWorker.Ended {
                worker = try renderer.worker()
            }
        }
        #expect(try renderer.worker().render(source, side: 8).answer.outcome == .rendered)
    }

    @Test func `what is no picture, or one of another format, is not looked at`() throws {
        let renderer = try Renderer()
        let worker = try renderer.worker()
        for text in ["", "hello", "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>", "%PDF-1.4\n", "BM"]
        {
            #expect(try worker.render(Array(text.utf8), side: 64).answer.outcome == .unknownFormat, "\(text)")
        }
        let hevc = try Pictures.named("hevc.avif")
        #expect(hevc.holds("ftypavif") && hevc.holds("hvc1"))
        #expect(try worker.render(hevc, side: 64).answer.outcome == .unknownFormat)
    }

    @Test(arguments: [
        (side: UInt16(0), fit: UInt8(0), format: UInt8(0), length: UInt32(0)), (1, 2, 0, 0), (1, 0, 5, 0),
        (1, 0, 0, .max),
    ])
    func `a request that is none ends the connection`(
        wrong: (side: UInt16, fit: UInt8, format: UInt8, length: UInt32)
    ) throws {
        let renderer = try Renderer()
        let worker = try renderer.worker()
        var head = ByteBuffer()
        head.writeMultipleIntegers(wrong.length, UInt32(1), wrong.side, wrong.fit, wrong.format)
        try worker.send(Array(head.readableBytesView))
        #expect(try worker.receiveSome(1).isEmpty)
    }

    /// Somebody has broken into the decoder, and tries for all that there is on the machine.
    @Test func `I1: whoever has broken into a worker gets at no file, no socket, no process and no other worker`()
        throws
    {
        let built = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent().path
        let renderer = try Renderer(environment: [
            "LD_PRELOAD": "\(built)/libHostileFetcher.so", "THUMBCACHED_HOSTILE_PID": "\(getpid())",
            "THUMBCACHED_HOSTILE_PATHS": "/etc/passwd:/proc/self/mem:/proc/self/maps:\(built)",
            "THUMBCACHED_HOSTILE_SOCKETS": "/run/dbus/system_bus_socket:@abstract",
        ])
        let worker = try renderer.worker()
        try worker.send(
            { () -> [UInt8] in
                var head = ByteBuffer()
                RenderRequest(length: 1, number: 1, side: 1, fit: .cover, format: .source)
                    .write(to: &head)
                head.writeInteger(UInt8(0))
                return Array(head.readableBytesView)
            }())
        var said: [UInt8] = []
        while !said.holds("hostile: end") {
            let piece = try worker.receiveSome(65_536)
            try #require(!piece.isEmpty, "\(String(decoding: said, as: UTF8.self))")
            said += piece
        }
        let tries = String(decoding: said, as: UTF8.self).split(separator: "\n").filter { $0.hasPrefix("hostile: ") }
            .dropLast()
        #expect(tries.count > 25, "\(tries)")
        #expect(tries.filter { !$0.contains(": refused (") } == [])
    }

    @Test func `F81: a worker that starts many threads is killed`() throws {
        let built = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent().path
        let renderer = try Renderer(environment: [
            "LD_PRELOAD": "\(built)/libHostileFetcher.so", "THUMBCACHED_HOSTILE_THREADS": "1000",
        ])
        let worker = try renderer.worker()
        try worker.ask([0], side: 1)
        // It sends a byte for each thread.
        var threads = 0
        while case let piece = try worker.receiveSome(4_096), !piece.isEmpty { threads += piece.count }
        #expect((1...32).contains(threads), "\(threads)")
        withExtendedLifetime(try renderer.worker()) {}
    }
}
