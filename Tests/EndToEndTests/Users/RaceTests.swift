import Foundation
import Testing

extension EndToEnd {
    /// Many connections at once, over one user. What each sees must fit some order in which the commands ran one after
    /// another.
    struct RaceTests {
        /// What the threads of a stress share.
        private final class Board: Sendable {
            struct Marks: Sendable {
                /// Images that a purge or log-out ended whose receipt has come.
                var ended: Set<Int> = []
                /// Images whose PUT may not have begun yet, as far as anybody but its sender knows.
                var beingPut: Set<Int> = []
                var epoch: Int64 = 0
                var images = 0
                var cancelled = 0
            }

            let serial = Serial()
            let marks = Watched(Marks())
        }

        /// Without a memory tier images come from disk, from files that stay open.
        @Test(arguments: ["64MiB", "0"])
        func `I3, F41: purges, log-outs, log-ins, PUTs and downloads at once: no image outlives a receipt`(
            memoryTier: String
        ) throws {
            try withMachine { machine in
                let board = Board()
                let origin = try GatedOrigin.images { request in
                    Serial.image(String(request.path.dropFirst()), board.serial.next())
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["memory", "tier"] = .string(memoryTier)
                    daemon.settings["", "threads"] = 2
                }
                let socket = daemon.socket
                #expect(try daemon.connect().call("LOGIN", "alice") == .ok)
                try concurrently(6) { index in
                    try Self.play(Noise(seed: "player \(index)"), on: RESPClient(socket), board, moves: 400)
                }
                let marks = board.marks.current
                print(
                    "  \(marks.images) images served, \(marks.cancelled) GETs cancelled, "
                        + "\(origin.requests.count) downloads"
                )
                #expect(marks.images > 100)
                #expect(origin.requests.count > 20)
                // What is left in the end is one state, and the disk agrees with it after a restart.
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                let held = try Self.profiles.map { try client.call("GET", "alice", $0, "CACHED") }
                try daemon.restart()
                let later = try daemon.connect()
                #expect(try Self.profiles.map { try later.call("GET", "alice", $0, "CACHED") } == held)
                #expect(try later.call("LOGOUT", "*")["users"] == .integer(1))
                try eventually("nothing is left on disk") { daemon.imageFiles.isEmpty }
            }
        }

        private static let profiles = ["bob", "carol", "dave", "eve"]

        private static func play(_ noise: Noise, on client: RESPClient, _ board: Board, moves: Int) throws {
            var noise = noise
            for _ in 0..<moves {
                let profile = profiles[Int.random(in: 0..<4, using: &noise)]
                switch Int.random(in: 0..<100, using: &noise) {
                case ..<60:
                    let ended = board.marks.current.ended
                    let reply = try client.call("GET", "alice", profile)
                    switch reply {
                    case .bulk(let image):
                        guard let number = Serial.number(of: image, profile) else {
                            throw Failure("GET gave bytes that nobody made: \(reply.brief)")
                        }
                        guard !ended.contains(number) else {
                            throw Failure("image \(number) was served after the receipt that ended it")
                        }
                        board.marks.change { $0.images += 1 }
                    case .error("CANCELLED", _): board.marks.change { $0.cancelled += 1 }
                    case .error("NOLOGIN", _): break
                    default: throw Failure("GET: \(reply.brief)")
                    }
                case ..<75:
                    let number = board.marks.change { marks in
                        let number = board.serial.next()
                        marks.beingPut.insert(number)
                        return number
                    }
                    let reply = try client.call("PUT", "alice", profile, Serial.image(profile, number))
                    guard reply == .ok || reply.code == "NOLOGIN" || reply.code == "CANCELLED" else {
                        throw Failure("PUT: \(reply.brief)")
                    }
                    board.marks.change { _ = $0.beingPut.remove(number) }
                case ..<85: guard try client.call("LOGIN", "alice") == .ok else { throw Failure("LOGIN failed") }
                case ..<90: try end(["PURGE", "alice"], on: client, board, isOfUser: true)
                case ..<95: try end(["PURGE", "alice", "1", profile], on: client, board, isOfUser: false)
                default: try end(["LOGOUT", "alice"], on: client, board, isOfUser: true)
                }
            }
        }

        /// A purge or log-out, and what its receipt promises.
        private static func end(
            _ command: [String], on client: RESPClient, _ board: Board, isOfUser: Bool
        ) throws {
            // What began before this command: downloads that the origin has seen, and PUTs that have been answered.
            let (before, begun) = board.marks.change { marks in
                (marks.epoch, Set(0...board.serial.newest).subtracting(marks.beingPut))
            }
            try client.send(command)
            let receipt = try client.receive()
            guard let epoch = receipt["epoch"]?.number, let users = receipt["users"]?.number else {
                throw Failure("\(command): \(receipt.brief)")
            }
            guard users == 0 ? epoch >= before : epoch > before else {
                throw Failure("\(command): epoch \(epoch) came after \(before)")
            }
            board.marks.change { marks in
                marks.epoch = max(marks.epoch, epoch)
                if isOfUser { marks.ended.formUnion(begun) }
            }
        }

        @Test func `F42: what comes right after a purge belongs to the new generation and is kept`() throws {
            try withMachine { machine in
                let serial = Serial()
                let origin = try GatedOrigin.images { request in
                    Serial.image(String(request.path.dropFirst()), serial.next())
                }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let (client, other) = (try daemon.connect(), try daemon.connect())
                #expect(try client.call("LOGIN", "alice") == .ok)
                var put: [UInt8] = []
                for round in 0..<100 {
                    put = Serial.image("bob", 1_000_000 + round)
                    // On one connection: the purge, and at its heels a PUT and a GET that downloads.
                    try client.sendRaw(
                        RESPClient.frame(round % 2 == 0 ? ["PURGE", "alice"] : ["PURGE", "*"])
                            + RESPClient.frame(["PUT", "alice", "bob", put])
                            + RESPClient.frame(["GET", "alice", "carol"]))
                    let newest = serial.newest
                    #expect(try client.receive()["users"] == .integer(1))
                    #expect(try client.receive() == .ok)
                    let carol = try client.receive()
                    #expect(Serial.number(of: carol.bytes ?? [], "carol") == newest + 1, "\(carol.brief)")
                    // Seen from everywhere.
                    #expect(try other.call("GET", "alice", "bob", "CACHED") == .bulk(put))
                    #expect(try other.call("GET", "alice", "carol", "CACHED") == carol)
                }
                try daemon.restart()
                #expect(try daemon.connect().call("GET", "alice", "bob", "CACHED") == .bulk(put))
                #expect(origin.requests.count == 100)
            }
        }

        @Test
        func `F56: PUTs at the moment of a log-out are finished or dropped, and leave nothing under the ended key`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["memory", "tier"] = "0" }
                let (control, writer) = (try daemon.connect(), try daemon.connect())
                let picture = Picture.gif("bob", size: 200_000)
                let profiles = (0..<20).map { "friend \($0)" }
                for round in 0..<30 {
                    #expect(try control.call("LOGIN", "alice") == .ok)
                    let mark = round % profiles.count
                    for profile in profiles { try writer.send("PUT", "alice", profile, picture) }
                    // Somewhere in the middle of them: when so many replies are there.
                    var replies = try (0..<mark).map { _ in try writer.receive() }
                    let receipt = try control.call("LOGOUT", "alice")
                    #expect(receipt["users"] == .integer(1))
                    replies += try (mark..<profiles.count).map { _ in try writer.receive() }
                    let stored = replies.prefix { $0 == .ok }
                    #expect(stored.count >= mark)
                    let rest = replies.dropFirst(stored.count)
                    #expect(rest.allSatisfy { $0.code == "NOLOGIN" || $0.code == "CANCELLED" }, "\(rest.map(\.brief))")
                    #expect(try control.call("LOGIN", "alice") == .ok)
                    for profile in profiles { #expect(try control.call("GET", "alice", profile) == .null) }
                    #expect(try control.call("LOGOUT", "alice")["images"] == .integer(0))
                }
                try eventually("the trash is empty") { daemon.imageFiles.isEmpty }
            }
        }

        @Test func `I7: a PUT wins over a download that began before it, and the waiters get the PUT's image`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { request in
                    [.wait("gate"), .send(GatedOrigin.response(Picture.gif("downloaded")))]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "timeout"] = "120s"
                }
                let (waiter, writer) = (try daemon.connect(), try daemon.connect())
                #expect(try writer.call("LOGIN", "alice") == .ok)
                try waiter.send("GET", "alice", "bob")
                try origin.waitForRequests(1)
                #expect(try writer.call("PUT", "alice", "bob", Picture.gif("put")) == .ok)
                #expect(try waiter.receive() == .bulk(Picture.gif("put")))
                origin.open("gate")
                #expect(try writer.call("GET", "alice", "bob") == .bulk(Picture.gif("put")))
                try daemon.restart()
                #expect(try daemon.connect().call("GET", "alice", "bob") == .bulk(Picture.gif("put")))
            }
        }
    }
}
