import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import SocketLoops
import Testing

@testable import thumbcached

@Suite(.timeLimit(.minutes(5))) struct MarkerDirectoryWatchTests {
    private final class Scene: Sendable {
        let root: String
        let loop: SocketLoop
        let watch: MarkerDirectoryWatch
        private let changes = NIOLockedValueBox(0)

        init() throws {
            var template = Array("/tmp/thumbcached-markers-XXXXXX".utf8CString)
            guard mkdtemp(&template) != nil else { throw SystemError("mkdtemp") }
            root = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
            loop = try SocketLoop(named: "test")
            watch = MarkerDirectoryWatch(
                path: root + "/a/pending", loop: loop, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        }

        func renew() -> Bool { watch.renew { self.changes.withLockedValue { $0 += 1 } } }

        /// Waits for a change after those seen before, and returns when all that was reported is counted.
        func change(_ body: () throws -> Void) async throws {
            let before = changes.withLockedValue { $0 }
            try body()
            while changes.withLockedValue({ $0 }) == before { try await Task.sleep(for: .milliseconds(1)) }
        }

        func make(_ name: String) throws {
            guard mkdir("\(root)/\(name)", 0o700) == 0 else { throw SystemError("mkdir \(name)") }
        }

        func leaveMarker(_ name: String) throws {
            _ = try File("\(root)/a/pending/\(name)", O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        }

        func end() async {
            watch.end()
            await withCheckedContinuation { ended in loop.end { ended.resume() } }
            for name in ["a/pending/one", "a/pending/two"] { unlink("\(root)/\(name)") }
            for name in ["/a/pending", "/a/old", "/a", ""] { rmdir(root + name) }
        }
    }

    @Test func `F46: markers are reported, also if the directory appears later or is replaced`() async throws {
        let scene = try Scene()
        // Neither the directory nor its parent is there.
        #expect(scene.renew())
        try await scene.change { try scene.make("a") }
        #expect(scene.renew())
        try await scene.change { try scene.make("a/pending") }
        #expect(scene.renew())
        try await scene.change { try scene.leaveMarker("one") }
        #expect(scene.renew())
        try await scene.change {
            unlink("\(scene.root)/a/pending/one")
            rename("\(scene.root)/a/pending", "\(scene.root)/a/old")
            try scene.make("a/pending")
        }
        #expect(scene.renew())
        try await scene.change { try scene.leaveMarker("two") }
        await scene.end()
    }

    @Test func `a link in place of the directory is not watched, and an ended watch is not renewed`() async throws {
        let scene = try Scene()
        try scene.make("a")
        symlink("/tmp", "\(scene.root)/a/pending")
        #expect(!scene.renew())
        unlink("\(scene.root)/a/pending")
        try scene.make("a/pending")
        #expect(scene.renew())
        scene.watch.end()
        #expect(!scene.renew())
        await scene.end()
    }
}
