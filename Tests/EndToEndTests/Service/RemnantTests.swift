import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// Searches for secrets and images in the daemon's memory after a logout or purge.
    struct RemnantTests {
        private static let token = Array("a-token-that-must-not-remain-in-memory-4711".utf8)

        /// 32-byte samples of an image.
        private func samples(of image: [UInt8]) -> [[UInt8]] {
            stride(from: 256, to: image.count - 32, by: image.count / 8).map { Array(image[$0..<$0 + 32]) }
        }

        /// - Parameter cuts: offsets at which the LOGIN request is split into separate writes.
        @Test(arguments: [[], [60], [20, 70]])
        func `I11: after a logout, neither token nor images are in memory`(cuts: [Int]) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                let login = RESPClient.frame(["LOGIN", "alice", "TOKEN", Self.token])
                for (start, end) in zip([0] + cuts, cuts + [login.count]) {
                    try client.sendRaw(Array(login[start..<end]))
                    try daemon.waitForEarlierRequests()
                }
                #expect(try client.receive() == .ok)
                let (put, replaced) = (TestImage.gif("put", size: 40_000), TestImage.gif("replaced", size: 200_000))
                #expect(try client.call("PUT", "alice", "bob", put) == .ok)
                #expect(try client.call("PUT", "alice", "eve", replaced) == .ok)
                #expect(try client.call("PUT", "alice", "eve", put) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(put))
                let secrets = [Self.token] + samples(of: put) + samples(of: replaced)
                // Proves that the search works.
                #expect(Set(try daemon.remnants(of: secrets)).isSuperset(of: [Self.token] + samples(of: put)))
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
                try waitUntilWiped(secrets, daemon)
            }
        }

        /// Polls, because the thread that performs a logout wipes the last of its memory after the reply.
        private func waitUntilWiped(_ secrets: [[UInt8]], _ daemon: Daemon) throws {
            try eventually("memory is wiped") { try daemon.remnants(of: secrets).isEmpty }
        }

        /// The image key and the session key in a user's key file.
        private func keys(_ daemon: Daemon) throws -> (images: [UInt8], session: [UInt8]) {
            let path = try #require(daemon.loginFiles.first { $0.split(separator: "/").dropLast(2).last == "keys" })
            let file = try read(path)
            try #require(file.count == 120)
            return (Array(file[24..<56]), Array(file[56..<88]))
        }

        /// Both halves of a key, so that the search also finds a half.
        private func halves(_ key: [UInt8]) -> [[UInt8]] { [Array(key[..<16]), Array(key[16...])] }

        /// libcurl had the access tokens in header fields, and the refresh tokens in requests and responses.
        @Test func `I11: after a logout, no key and no current or replaced token is in memory`() throws {
            try withMachine { machine in
                let origin = try TokenOrigin(refresh: "the-first-refresh-token-of-alice")
                defer { origin.end() }
                let daemon = try machine.daemon { origin.configure(&$0.settings) }
                let client = try daemon.connect()
                let tokens = ["the-first-token-of-alice", "the-first-refresh-token-of-alice"]
                #expect(try client.call("LOGIN", "alice", "TOKEN", tokens[0], "REFRESH", tokens[1]) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(TokenOrigin.image("/bob")))
                let first = origin.current
                origin.expire()
                #expect(try client.call("GET", "alice", "eve") == .bulk(TokenOrigin.image("/eve")))
                let second = origin.current
                #expect(first.access != second.access && first.refresh != second.refresh)
                let replaced = (tokens + [first.access, first.refresh]).map { Array($0.utf8) }
                let current = [second.access, second.refresh].map { Array($0.utf8) }
                let (images, session) = try keys(daemon)
                let held = current + halves(images) + halves(session)
                // Proves that the search works.
                #expect(Set(try daemon.remnants(of: held)) == Set(held))

                // A purge keeps the tokens and the session key.
                #expect(try client.call("PURGE", "alice")["users"]?.number == 1)
                try waitUntilWiped(halves(images), daemon)
                let kept = current + halves(session)
                #expect(Set(try daemon.remnants(of: kept)) == Set(kept))

                // A login with new tokens wipes the old ones.
                let newTokens = ["a-newer-token-of-alice", "a-newer-refresh-token-of-alice"]
                #expect(try client.call("LOGIN", "alice", "TOKEN", newTokens[0], "REFRESH", newTokens[1]) == .ok)
                try waitUntilWiped(replaced + current, daemon)

                let (newer, same) = try keys(daemon)
                #expect(same == session && newer != images)
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
                let all = replaced + held + halves(newer) + newTokens.map { Array($0.utf8) }
                try waitUntilWiped(all, daemon)
            }
        }

        @Test(arguments: [["PURGE", "alice"], ["PURGE", "alice", "2", "bob", "eve"], ["LOGOUT", "alice"]])
        func `I11: after a purge or logout, no downloaded or stored image is in memory`(command: [String]) throws {
            try withMachine { machine in
                let (downloaded, put) = (TestImage.gif("downloaded", size: 60_000), TestImage.gif("put", size: 60_000))
                let origin = try GatedOrigin.images { _ in downloaded }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "TOKEN", Self.token) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(downloaded))
                try eventually("the image is on disk") { daemon.imageFiles.count == 1 }
                #expect(try client.call("PUT", "alice", "eve", put) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(downloaded))
                #expect(try client.call("GET", "alice", "eve") == .bulk(put))
                let all = samples(of: downloaded) + samples(of: put)
                // Proves that the search works.
                #expect(Set(try daemon.remnants(of: all)) == Set(all))
                try client.send(command)
                #expect(try client.receive()["images"]?.number == 2)
                try waitUntilWiped(all, daemon)
            }
        }

        /// The LOGIN has an invalid option after the token.
        @Test(arguments: [1, 30])
        func `I11: the token of a rejected login does not remain in memory`(logins: Int) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                let login = RESPClient.frame(["LOGIN", "alice", "TOKEN", Self.token, "NONSENSE", "x"])
                // Many requests fill the receive buffer; a single one is copied out of it.
                try client.sendRaw(Array(repeating: login, count: logins).flatMap { $0 })
                for _ in 0..<logins {
                    let reply = try client.receive()
                    guard case .error = reply else {
                        Issue.record("\(reply)")
                        return
                    }
                }
                try waitUntilWiped([Self.token], daemon)
            }
        }

        @Test func `I11: the token of a partially received login does not remain in memory`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                let login = RESPClient.frame(["LOGIN", "alice", "TOKEN", Self.token, "REFRESH", "r"])
                try client.sendRaw(Array(login.dropLast(8)))
                try daemon.waitForEarlierRequests()
                // Proves that the search works.
                #expect(try daemon.remnants(of: [Self.token]) == [Self.token])
                client.end()
                try waitUntilWiped([Self.token], daemon)
            }
        }
    }
}
