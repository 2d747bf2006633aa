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
