import Foundation
import NIOCore
import Testing

@testable @_spi(Wire) import Thumbcache

@Suite(.timeLimit(.minutes(1))) struct TutorialTests {
    private static let repository = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    @Test func `the article's code is the code that is compiled here`() throws {
        let article = try String(
            contentsOf: Self.repository.appending(path: "Sources/Thumbcache/Thumbcache.docc/Showing-Pictures.md"),
            encoding: .utf8)
        let blocks = article.components(separatedBy: "```swift\n").dropFirst().map {
            $0.components(separatedBy: "```")[0]
        }
        let code = try String(
            contentsOf: Self.repository.appending(path: "Tests/ThumbcacheTests/TutorialCode.swift"), encoding: .utf8)
        #expect(blocks.count == 1)
        for block in blocks { #expect(code.hasSuffix(block)) }
    }

    @Test func `the article's code shows pictures, and a placeholder for what does not come`() async throws {
        let daemon = try await PlayedDaemon()
        let shown = Mailbox<String>()
        let program = Task {
            try await showContacts(of: "alice", ["bob", "carol"], socket: daemon.path) { person, image in
                shown.put("\(person): \(image?.text ?? "nobody")")
            }
        }
        // Three connections, in whichever order: of events, of short commands, of GETs.
        let players = Task {
            try await withThrowingTaskGroup { group in
                for _ in 0..<3 {
                    let peer = try await daemon.accept()
                    group.addTask { try await Self.play(peer) }
                }
                try await group.waitForAll()
            }
        }
        try await program.value
        #expect(try await shown.take() == "bob: a picture of bob")
        #expect(try await shown.take() == "carol: nobody")
        players.cancel()
        _ = await players.result
        try await daemon.stop()
    }

    private static func play(_ peer: PlayedPeer) async throws {
        while true {
            let request = try await peer.next()
            switch request[0] {
            case "SUBSCRIBE": peer.send(">3\r\n+subscribe\r\n+*\r\n:1\r\n")
            case "LOGIN": peer.send("+OK\r\n")
            case "LOGOUT": peer.send(Wire.receipt)
            case "GET" where request[2] == "bob": peer.send(Wire.image("a picture of bob"))
            default: peer.send("-TIMEOUT the origin did not answer in time\r\n")
            }
        }
    }
}
