import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import SocketLoops
import Testing

@testable import thumbcached

@Suite(.timeLimit(.minutes(5))) struct PendingLogoutDirectoryWatchTests {
    private final class Scene: Sendable {
        let root: String
        let loop: SocketLoop
        let watch: PendingLogoutDirectoryWatch
        private let changes = NIOLockedValueBox(0)

        init() throws {
            var template = Array("/tmp/thumbcached-pending-XXXXXX".utf8CString)
            guard mkdtemp(&template) != nil else { throw SystemError("mkdtemp") }
            root = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
            loop = try SocketLoop(named: "test")
            watch = PendingLogoutDirectoryWatch(
                path: root + "/a/pending", loop: loop, log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        }

        func renew() -> Bool { watch.renew { self.changes.withLockedValue { $0 += 1 } } }

        /// Waits for a further change, and returns when all reports are counted.
        func change(_ body: () throws -> Void) async throws {
            let before = changes.withLockedValue { $0 }
            try body()
            while changes.withLockedValue({ $0 }) == before { try await Task.sleep(for: .milliseconds(1)) }
        }

        func make(_ name: String) throws {
            guard mkdir("\(root)/\(name)", 0o700) == 0 else { throw SystemError("mkdir \(name)") }
        }

        func leavePendingFile(_ name: String) throws {
            _ = try File("\(root)/a/pending/\(name)", O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        }

        func end() async {
            watch.end()
            await withCheckedContinuation { ended in loop.end { ended.resume() } }
            for name in ["a/pending/one", "a/pending/two"] { unlink("\(root)/\(name)") }
            for name in ["/a/pending", "/a/old", "/a", ""] { rmdir(root + name) }
        }
    }

    @Test func `F46: pending-logout files are reported, also if the directory appears later or is replaced`()
        async throws
    {
        let scene = try Scene()
        // Neither the directory nor its parent exists.
        #expect(scene.renew())
        try await scene.change { try scene.make("a") }
        #expect(scene.renew())
        try await scene.change { try scene.make("a/pending") }
        #expect(scene.renew())
        try await scene.change { try scene.leavePendingFile("one") }
        #expect(scene.renew())
        try await scene.change {
            unlink("\(scene.root)/a/pending/one")
            rename("\(scene.root)/a/pending", "\(scene.root)/a/old")
            try scene.make("a/pending")
        }
        #expect(scene.renew())
        try await scene.change { try scene.leavePendingFile("two") }
        await scene.end()
    }

    @Test func `a symbolic link is not watched, and an ended watch is not renewed`() async throws {
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
