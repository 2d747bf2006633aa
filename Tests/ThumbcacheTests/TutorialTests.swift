import Foundation
import NIOCore
import Testing

@testable @_spi(Wire) import Thumbcache

@Suite(.timeLimit(.minutes(1))) struct TutorialTests {
    private static let repository = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    @Test func `the article contains the compiled code`() throws {
        let article = try String(
            contentsOf: Self.repository.appending(path: "Sources/Thumbcache/Thumbcache.docc/Showing-Images.md"),
            encoding: .utf8)
        let blocks = article.components(separatedBy: "```swift\n").dropFirst().map {
            $0.components(separatedBy: "```")[0]
        }
        let code = try String(
            contentsOf: Self.repository.appending(path: "Tests/ThumbcacheTests/TutorialCode.swift"), encoding: .utf8)
        #expect(blocks.count == 1)
        for block in blocks { #expect(code.hasSuffix(block)) }
    }

    @Test func `the article's code shows images, and a placeholder for a missing one`() async throws {
        let daemon = try await FakeDaemon()
        let shown = Mailbox<String>()
        let program = Task {
            try await showContacts(of: "alice", ["bob", "carol"], socket: daemon.path) { person, image in
                shown.put("\(person): \(image?.text ?? "none")")
            }
        }
        // Three connections, in any order: events, short commands, GETs.
        let daemonTask = Task {
            try await withThrowingTaskGroup { group in
                for _ in 0..<3 {
                    let peer = try await daemon.accept()
                    group.addTask { try await Self.answer(peer) }
                }
                try await group.waitForAll()
            }
        }
        try await program.value
        #expect(try await shown.next() == "bob: an image of bob")
        #expect(try await shown.next() == "carol: none")
        daemonTask.cancel()
        _ = await daemonTask.result
        try await daemon.stop()
    }

    private static func answer(_ peer: FakePeer) async throws {
        while true {
            let request = try await peer.next()
            switch request[0] {
            case "SUBSCRIBE": peer.send(">3\r\n+subscribe\r\n+*\r\n:1\r\n")
            case "LOGIN": peer.send("+OK\r\n")
            case "LOGOUT": peer.send(Wire.receipt)
            case "GET" where request[2] == "bob": peer.send(Wire.image("an image of bob"))
            default: peer.send("-TIMEOUT the origin did not answer in time\r\n")
            }
        }
    }
}
