import Foundation
import Glibc
import HelperProtocol
import ImageOptions
import NIOCore
import Testing

/// Malicious images, and decoders under an attacker's control.
@Suite(.timeLimit(.minutes(3))) struct HostileImageTests {
    @Test(arguments: [
        ("bomb.png", RenderReply.Outcome.tooManyPixels), ("bomb-bits.png", .tooManyPixels),
        ("lying.jpg", .tooManyPixels),
    ])
    func `an image bomb is rejected by its header`(name: String, outcome: RenderReply.Outcome) throws {
        let renderer = try Renderer()
        let worker = try renderer.worker()
        #expect(try worker.render(try TestImages.named(name), side: 64).reply.outcome == outcome)
        #expect(try worker.render(try TestImages.named("baseline.jpg"), side: 8).reply.outcome == .rendered)
    }

    @Test func `F81: an image bomb with a false header ends its worker at most`() throws {
        let renderer = try Renderer()
        // No limit of pixels, so only the limits of memory and time apply.
        for name in ["bomb.png", "bomb-bits.png", "lying.jpg", "bomb.gif"] {
            let (worker, other) = (try renderer.worker(mostPixels: .max), try renderer.worker())
            let request = try worker.request(try TestImages.named(name), side: 64)
            for _ in 0..<3 {
                #expect(try other.render(try TestImages.named("baseline.jpg"), side: 8).reply.outcome == .rendered)
            }
            do {
                let outcome = try worker.reply(to: request).reply.outcome
                #expect(outcome == .broken || outcome == .rendered, "\(name)")
            } catch is RendererWorker.Ended {
                // A limit has ended the worker.
            }
        }
        #expect(try renderer.end() == 0)
    }

    /// Without data for a part of the image, rendering fails, or the part is transparent.
    @Test(arguments: RenderingTests.kinds + ["exif-6.jpg", "alpha.webp"], [[], [0xFF, 0xD9]] as [[UInt8]])
    func `a rendition of a truncated image shows no invented pixels`(
        kind: String, end: [UInt8]
    ) throws {
        let renderer = try Renderer()
        let worker = try renderer.worker()
        let source = try TestImages.named(kind)
        let whole = try worker.render(source, side: 24, fit: .contain, output: .pixels).bytes
        for length in stride(from: 0, to: source.count, by: max(1, source.count / 60)) {
            let (reply, bytes) = try worker.render(source[..<length] + end, side: 24, fit: .contain, output: .pixels)
            guard reply.outcome == .rendered else { continue }
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
    func `an image with any byte changed ends its worker at most`(kind: String) throws {
        let renderer = try Renderer()
        var worker = try renderer.worker()
        let source = try TestImages.named(kind)
        for place in stride(from: 0, to: source.count, by: max(1, source.count / 120)) {
            var changed = source
            changed[place] ^= UInt8(1 << (place % 8))
            do {
                _ = try worker.render(changed, side: 16)
            } catch is RendererWorker.Ended {
                worker = try renderer.worker()
            }
        }
        #expect(try renderer.worker().render(source, side: 8).reply.outcome == .rendered)
    }

    @Test func `files of other formats are rejected without decoding`() throws {
        let renderer = try Renderer()
        let worker = try renderer.worker()
        for text in ["", "hello", "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>", "%PDF-1.4\n", "BM"]
        {
            #expect(try worker.render(Array(text.utf8), side: 64).reply.outcome == .unknownFormat, "\(text)")
        }
        let hevc = try TestImages.named("hevc.avif")
        #expect(hevc.holds("ftypavif") && hevc.holds("hvc1"))
        #expect(try worker.render(hevc, side: 64).reply.outcome == .unknownFormat)
    }

    @Test(arguments: [
        (side: UInt16(0), fit: UInt8(0), format: UInt8(0), body: UInt32(0)), (1, 2, 0, 0), (1, 0, 5, 0),
        (1, 0, 0, .max),
    ])
    func `an invalid request ends the connection`(
        wrong: (side: UInt16, fit: UInt8, format: UInt8, body: UInt32)
    ) throws {
        let renderer = try Renderer()
        let worker = try renderer.worker()
        var message = ByteBuffer()
        message.writeMultipleIntegers(UInt32(8), wrong.body, UInt32(1), wrong.side, wrong.fit, wrong.format)
        try worker.send(message)
        #expect(try worker.receiveBytes(atMost: 1).isEmpty)
    }

    /// The library that is preloaded into the worker simulates an attacker who controls the decoder.
    @Test func `I1: a worker under an attacker's control reaches no file, socket, process or other worker`()
        throws
    {
        let built = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent().path
        let renderer = try Renderer(environment: [
            "LD_PRELOAD": "\(built)/libHostileFetcher.so", "THUMBCACHED_HOSTILE_PID": "\(getpid())",
            "THUMBCACHED_HOSTILE_PATHS": "/etc/passwd:/proc/self/mem:/proc/self/maps:\(built)",
            "THUMBCACHED_HOSTILE_SOCKETS": "/run/dbus/system_bus_socket:@abstract",
        ])
        let worker = try renderer.worker()
        try worker.request([0], side: 1)
        var output: [UInt8] = []
        while !output.holds("hostile: end") {
            let piece = try worker.receiveBytes(atMost: 65_536)
            try #require(!piece.isEmpty, "\(String(decoding: output, as: UTF8.self))")
            output += piece
        }
        let attempts = String(decoding: output, as: UTF8.self).split(separator: "\n").filter {
            $0.hasPrefix("hostile: ")
        }
        .dropLast()
        #expect(attempts.count > 25, "\(attempts)")
        #expect(attempts.filter { !$0.contains(": refused (") } == [])
    }

    @Test func `F81: a worker that starts many threads is killed`() throws {
        let built = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent().path
        let renderer = try Renderer(environment: [
            "LD_PRELOAD": "\(built)/libHostileFetcher.so", "THUMBCACHED_HOSTILE_THREADS": "1000",
        ])
        let worker = try renderer.worker()
        try worker.request([0], side: 1)
        // The library sends a byte for each thread.
        var threads = 0
        while case let piece = try worker.receiveBytes(atMost: 4_096), !piece.isEmpty { threads += piece.count }
        #expect((1...32).contains(threads), "\(threads)")
        withExtendedLifetime(try renderer.worker()) {}
    }
}
