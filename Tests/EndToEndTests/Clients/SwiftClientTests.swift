import Foundation
import NIOCore
import Testing
import Thumbcache

extension EndToEnd {
    /// The client library with the real daemon.
    struct SwiftClientTests {
        /// Waits on this thread, which is the test's own.
        private func awaited<Value: Sendable>(_ body: @escaping @Sendable () async throws -> Value) throws -> Value {
            let outcome = Watched<Result<Value, any Error>?>(nil)
            Task.detached {
                let result: Result<Value, any Error>
                do { result = .success(try await body()) } catch { result = .failure(error) }
                outcome.change { $0 = result }
            }
            guard outcome.wait(longestWait, until: { $0 != nil }), let result = outcome.current else {
                throw Failure("the client does not answer")
            }
            return try result.get()
        }

        @Test func `I3, I4, F41: a client outlives its daemon, and shows nobody's picture to somebody else`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = ThumbcacheClient(path: daemon.socket)
                let images = ThumbcacheImages(client)
                let running = [Task.detached { await client.run() }, Task.detached { await images.run() }]
                defer { for task in running { task.cancel() } }
                let pictures = ["alice": Picture.gif("alice's bob"), "carol": Picture.gif("carol's bob")]
                func show(_ user: String) throws -> [UInt8]? {
                    try awaited {
                        (try await images.get(ThumbcacheID(user), "bob")?.bytes).map { Array($0.readableBytesView) }
                    }
                }
                func refusal(_ user: String) throws -> ServerErrorCode? {
                    do {
                        let shown = try show(user)
                        #expect(shown == pictures[user])
                        return nil
                    } catch ThumbcacheError.server(let code, _) {
                        return code
                    }
                }

                for (user, picture) in pictures {
                    try awaited {
                        try await client.logIn(ThumbcacheID(user))
                        try await client.put(ThumbcacheID(user), "bob", ByteBuffer(bytes: picture))
                    }
                }
                for _ in 0..<3 { for user in pictures.keys { #expect(try show(user) == pictures[user]) } }

                // Logged out by somebody else: the event is in the client's socket before the receipt, and it reads it.
                let other = try daemon.connect()
                #expect(try other.call("LOGOUT", "alice")["users"] == .integer(1))
                try eventually("alice's picture is gone") { try refusal("alice") == .noLogin }
                for _ in 0..<20 { #expect(try refusal("alice") == .noLogin) }
                #expect(try show("carol") == pictures["carol"])

                // Without its daemon it has nothing to show.
                daemon.kill()
                try eventually("nothing is shown without the daemon") {
                    do {
                        let shown = try show("carol")
                        #expect(shown == pictures["carol"])
                        return false
                    } catch is ThumbcacheError {
                        return true
                    }
                }
                try daemon.start()
                try eventually("it is back") {
                    do { return try show("carol") == pictures["carol"] } catch is ThumbcacheError { return false }
                }
                #expect(try refusal("alice") == .noLogin)
                // The log-out through the client itself is seen at once.
                _ = try awaited { try await client.logOut("carol") }
                #expect(try refusal("carol") == .noLogin)
            }
        }
    }
}
