import Foundation
import NIOCore
import Testing
import Thumbcache

extension EndToEnd.Clients {
    /// The client library, called from several tasks, with a running daemon.
    struct SwiftClientTests {
        /// Blocks the test's thread until the operation completes.
        private func awaited<Value: Sendable>(_ body: @escaping @Sendable () async throws -> Value) throws -> Value {
            let outcome = Watched<Result<Value, any Error>?>(nil)
            Task.detached {
                let result: Result<Value, any Error>
                do { result = .success(try await body()) } catch { result = .failure(error) }
                outcome.change { $0 = result }
            }
            guard outcome.wait(longestWait, until: { $0 != nil }), let result = outcome.current else {
                throw Failure("timeout of the client")
            }
            return try result.get()
        }

        @Test func `I3, I4, F41: ThumbcacheImages survives a restart and serves no image after the logout`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = ThumbcacheClient(path: daemon.socket)
                let images = ThumbcacheImages(client)
                let running = [Task.detached { await client.run() }, Task.detached { await images.run() }]
                defer { for task in running { task.cancel() } }
                let expected = ["alice": TestImage.gif("alice's bob"), "carol": TestImage.gif("carol's bob")]
                func image(_ user: String) throws -> [UInt8]? {
                    try awaited {
                        (try await images.get(ThumbcacheID(user), "bob")?.bytes).map { Array($0.readableBytesView) }
                    }
                }
                func errorCode(_ user: String) throws -> ServerErrorCode? {
                    do {
                        let shown = try image(user)
                        #expect(shown == expected[user])
                        return nil
                    } catch ThumbcacheError.server(let code, _) {
                        return code
                    }
                }

                for (user, image) in expected {
                    try awaited {
                        try await client.logIn(ThumbcacheID(user))
                        try await client.put(ThumbcacheID(user), "bob", ByteBuffer(bytes: image))
                    }
                }
                for _ in 0..<3 { for user in expected.keys { #expect(try image(user) == expected[user]) } }

                // A logout by another connection. Its event arrives shortly after the receipt.
                let other = try daemon.connect()
                #expect(try other.call("LOGOUT", "alice")["users"] == .integer(1))
                try eventually("alice's images are removed") { try errorCode("alice") == .noLogin }
                for _ in 0..<20 { #expect(try errorCode("alice") == .noLogin) }
                #expect(try image("carol") == expected["carol"])

                // Without a daemon, the client serves nothing.
                daemon.kill()
                try eventually("requests fail without the daemon") {
                    do {
                        let shown = try image("carol")
                        #expect(shown == expected["carol"])
                        return false
                    } catch is ThumbcacheError {
                        return true
                    }
                }
                try daemon.start()
                try eventually("the client is connected again") {
                    do { return try image("carol") == expected["carol"] } catch is ThumbcacheError { return false }
                }
                #expect(try errorCode("alice") == .noLogin)
                // A logout by the client itself has effect at once.
                _ = try awaited { try await client.logOut("carol") }
                #expect(try errorCode("carol") == .noLogin)
            }
        }
    }
}
