import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// What is left in the daemon's memory of what has ended.
    struct RemnantTests {
        private static let token = Array("a-token-that-nobody-is-to-see-any-more-4711".utf8)

        /// Pieces of an image, from all over it.
        private func pieces(of image: [UInt8]) -> [[UInt8]] {
            stride(from: 256, to: image.count - 32, by: image.count / 8).map { Array(image[$0..<$0 + 32]) }
        }

        /// - Parameter cuts: where the log-in is cut into pieces that come one after the other.
        @Test(arguments: [[], [60], [20, 70]])
        func `I11: behind the receipt of a log-out neither its token nor its images are in memory`(cuts: [Int]) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                let login = RESPClient.frame(["LOGIN", "alice", "TOKEN", Self.token])
                for (start, end) in zip([0] + cuts, cuts + [login.count]) {
                    try client.sendRaw(Array(login[start..<end]))
                    try daemon.takeUpEverythingSent()
                }
                #expect(try client.receive() == .ok)
                let (put, replaced) = (Picture.gif("put", size: 40_000), Picture.gif("replaced", size: 200_000))
                #expect(try client.call("PUT", "alice", "bob", put) == .ok)
                #expect(try client.call("PUT", "alice", "eve", replaced) == .ok)
                #expect(try client.call("PUT", "alice", "eve", put) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(put))
                let secrets = [Self.token] + pieces(of: put) + pieces(of: replaced)
                // The search does find.
                #expect(Set(try daemon.remnants(of: secrets)).isSuperset(of: [Self.token] + pieces(of: put)))
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
                // The thread that did it lets go of its work behind the reply.
                try eventually("nothing of it is left") { try daemon.remnants(of: secrets).isEmpty }
            }
        }

        /// What a user's key file holds: the image key and the session key.
        private func keys(_ daemon: Daemon) throws -> (images: [UInt8], session: [UInt8]) {
            let path = try #require(daemon.loginFiles.first { $0.split(separator: "/").dropLast(2).last == "keys" })
            let file = try read(path)
            try #require(file.count == 120)
            return (Array(file[24..<56]), Array(file[56..<88]))
        }

        /// Two halves of each: a part of a key is as much as half of it.
        private func halves(_ key: [UInt8]) -> [[UInt8]] { [Array(key[..<16]), Array(key[16...])] }

        /// libcurl has had each of the access tokens in a header line and in what it sent, and the refresh tokens in
        /// forms and in answers.
        @Test func `I11: behind a log-out no key is in memory, nor a token that was given, fetched or replaced`() throws
        {
            try withMachine { machine in
                let origin = try TokenOrigin(refresh: "the-first-refresh-token-of-alice")
                defer { origin.end() }
                let daemon = try machine.daemon { origin.configure(&$0.settings) }
                let client = try daemon.connect()
                let tokens = ["the-first-token-of-alice", "the-first-refresh-token-of-alice"]
                #expect(try client.call("LOGIN", "alice", "TOKEN", tokens[0], "REFRESH", tokens[1]) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(TokenOrigin.picture("/bob")))
                let first = origin.current
                origin.expire()
                #expect(try client.call("GET", "alice", "eve") == .bulk(TokenOrigin.picture("/eve")))
                let second = origin.current
                #expect(first.access != second.access && first.refresh != second.refresh)
                let replaced = (tokens + [first.access, first.refresh]).map { Array($0.utf8) }
                let current = [second.access, second.refresh].map { Array($0.utf8) }
                let (images, session) = try keys(daemon)
                let held = current + halves(images) + halves(session)
                // The search does find.
                #expect(Set(try daemon.remnants(of: held)) == Set(held))

                // Of a purge, the tokens and their key live on.
                #expect(try client.call("PURGE", "alice")["users"]?.number == 1)
                try eventually("the images' key is gone") { try daemon.remnants(of: halves(images)).isEmpty }
                let kept = current + halves(session)
                #expect(Set(try daemon.remnants(of: kept)) == Set(kept))

                // And of tokens that others take the place of nothing is left, while the user stays logged in.
                let newTokens = ["a-newer-token-of-alice", "a-newer-refresh-token-of-alice"]
                #expect(try client.call("LOGIN", "alice", "TOKEN", newTokens[0], "REFRESH", newTokens[1]) == .ok)
                try eventually("what was replaced is gone") { try daemon.remnants(of: replaced + current).isEmpty }

                let (newer, same) = try keys(daemon)
                #expect(same == session && newer != images)
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
                let all = replaced + held + halves(newer) + newTokens.map { Array($0.utf8) }
                try eventually("nothing of it is left") { try daemon.remnants(of: all).isEmpty }
            }
        }

        @Test(arguments: [["PURGE", "alice"], ["PURGE", "alice", "2", "bob", "eve"], ["LOGOUT", "alice"]])
        func `I11: nor an image that was downloaded or put, behind what ended it`(command: [String]) throws {
            try withMachine { machine in
                let (downloaded, put) = (Picture.gif("downloaded", size: 60_000), Picture.gif("put", size: 60_000))
                let origin = try GatedOrigin.images { _ in downloaded }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "TOKEN", Self.token) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(downloaded))
                try eventually("it is on disk") { daemon.imageFiles.count == 1 }
                #expect(try client.call("PUT", "alice", "eve", put) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(downloaded))
                #expect(try client.call("GET", "alice", "eve") == .bulk(put))
                let all = pieces(of: downloaded) + pieces(of: put)
                // The search does find.
                #expect(Set(try daemon.remnants(of: all)) == Set(all))
                try client.send(command)
                #expect(try client.receive()["images"]?.number == 2)
                try eventually("nothing of it is left") { try daemon.remnants(of: all).isEmpty }
            }
        }

        /// The same token in a LOGIN that has a mistake behind it.
        @Test(arguments: [1, 30])
        func `I11: nothing is left of the token of a log-in that is refused`(logins: Int) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                let login = RESPClient.frame(["LOGIN", "alice", "TOKEN", Self.token, "NONSENSE", "x"])
                // Many of them fill the buffer that a request is read into; a single one is copied out of it.
                try client.sendRaw(Array(repeating: login, count: logins).flatMap { $0 })
                for _ in 0..<logins {
                    let reply = try client.receive()
                    guard case .error = reply else {
                        Issue.record("\(reply)")
                        return
                    }
                }
                try eventually("nothing of it is left") { try daemon.remnants(of: [Self.token]).isEmpty }
            }
        }

        @Test func `I11: nor of one that ends with its connection, half-received`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                let login = RESPClient.frame(["LOGIN", "alice", "TOKEN", Self.token, "REFRESH", "r"])
                try client.sendRaw(Array(login.dropLast(8)))
                try daemon.takeUpEverythingSent()
                // The search does find.
                #expect(try daemon.remnants(of: [Self.token]) == [Self.token])
                client.end()
                try eventually("nothing of it is left") { try daemon.remnants(of: [Self.token]).isEmpty }
            }
        }
    }
}
