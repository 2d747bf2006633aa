import Foundation
import Testing

extension EndToEnd.Users {
    /// Concurrent connections that use the same user.
    struct RaceTests {
        /// State that the threads of a stress test share.
        private final class SharedState: Sendable {
            struct Values: Sendable {
                /// Images that were removed by a purge or logout with a receipt.
                var removed: Set<Int> = []
                /// Images whose PUT has no reply yet.
                var pendingPuts: Set<Int> = []
                var epoch: Int64 = 0
                var images = 0
                var cancelled = 0
            }

            let serial = Serial()
            let values = Watched(Values())
        }

        /// Without a memory tier, images are read from files that stay open.
        @Test(arguments: ["64MiB", "0"])
        func `I3, F41: with concurrent commands, no image is served after the receipt that removed it`(
            memoryTier: String
        ) throws {
            try withMachine { machine in
                let shared = SharedState()
                let origin = try GatedOrigin.images { request in
                    Serial.image(String(request.path.dropFirst()), shared.serial.next())
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["memory", "tier"] = .string(memoryTier)
                    daemon.settings["", "threads"] = 2
                }
                let socket = daemon.socket
                _ = try daemon.connect(loggedInAs: "alice")
                try concurrently(6) { index in
                    try Self.run(Noise(seed: "player \(index)"), on: RESPClient(socket), shared, commands: 400)
                }
                let values = shared.values.current
                print(
                    "  \(values.images) images served, \(values.cancelled) GETs cancelled, "
                        + "\(origin.requests.count) downloads"
                )
                #expect(values.images > 100)
                #expect(origin.requests.count > 20)
                // The final state is the same after a restart.
                let client = try daemon.connect(loggedInAs: "alice")
                let held = try Self.profiles.map { try client.call("GET", "alice", $0, "CACHED") }
                try daemon.restart()
                let later = try daemon.connect()
                #expect(try Self.profiles.map { try later.call("GET", "alice", $0, "CACHED") } == held)
                #expect(try later.call("LOGOUT", "*")["users"] == .integer(1))
                try eventually("no image is left on disk") { daemon.imageFiles.isEmpty }
            }
        }

        private static let profiles = ["bob", "carol", "dave", "eve"]

        private static func run(_ noise: Noise, on client: RESPClient, _ shared: SharedState, commands: Int) throws {
            var noise = noise
            for _ in 0..<commands {
                let profile = profiles[Int.random(in: 0..<4, using: &noise)]
                switch Int.random(in: 0..<100, using: &noise) {
                case ..<60:
                    let removed = shared.values.current.removed
                    let reply = try client.call("GET", "alice", profile)
                    switch reply {
                    case .bulk(let image):
                        guard let number = Serial.number(of: image, profile) else {
                            throw Failure("GET returned unknown bytes: \(reply.brief)")
                        }
                        guard !removed.contains(number) else {
                            throw Failure("image \(number) was served after the receipt that removed it")
                        }
                        shared.values.change { $0.images += 1 }
                    case .error("CANCELLED", _): shared.values.change { $0.cancelled += 1 }
                    case .error("NOLOGIN", _): break
                    default: throw Failure("GET: \(reply.brief)")
                    }
                case ..<75:
                    let number = shared.values.change { values in
                        let number = shared.serial.next()
                        values.pendingPuts.insert(number)
                        return number
                    }
                    let reply = try client.call("PUT", "alice", profile, Serial.image(profile, number))
                    guard reply == .ok || reply.code == "NOLOGIN" || reply.code == "CANCELLED" else {
                        throw Failure("PUT: \(reply.brief)")
                    }
                    shared.values.change { _ = $0.pendingPuts.remove(number) }
                case ..<85: guard try client.call("LOGIN", "alice") == .ok else { throw Failure("LOGIN failed") }
                case ..<90: try remove(["PURGE", "alice"], on: client, shared, isOfUser: true)
                case ..<95: try remove(["PURGE", "alice", "1", profile], on: client, shared, isOfUser: false)
                default: try remove(["LOGOUT", "alice"], on: client, shared, isOfUser: true)
                }
            }
        }

        /// Sends a purge or logout and checks its receipt.
        private static func remove(
            _ command: [String], on client: RESPClient, _ shared: SharedState, isOfUser: Bool
        ) throws {
            // Images that are older than this command: of downloads that reached the origin, and of PUTs with a reply.
            let (before, older) = shared.values.change { values in
                (values.epoch, Set(0...shared.serial.newest).subtracting(values.pendingPuts))
            }
            try client.send(command)
            let receipt = try client.receive()
            guard let epoch = receipt["epoch"]?.number, let users = receipt["users"]?.number else {
                throw Failure("\(command): \(receipt.brief)")
            }
            guard users == 0 ? epoch >= before : epoch > before else {
                throw Failure("\(command): epoch \(epoch) is not above \(before)")
            }
            shared.values.change { values in
                values.epoch = max(values.epoch, epoch)
                if isOfUser { values.removed.formUnion(older) }
            }
        }

        @Test func `F42: images stored immediately after a purge are kept`() throws {
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
                    // A purge, a PUT and a GET with a download, pipelined.
                    try client.sendRaw(
                        RESPClient.frame(round % 2 == 0 ? ["PURGE", "alice"] : ["PURGE", "*"])
                            + RESPClient.frame(["PUT", "alice", "bob", put])
                            + RESPClient.frame(["GET", "alice", "carol"]))
                    let newest = serial.newest
                    #expect(try client.receive()["users"] == .integer(1))
                    #expect(try client.receive() == .ok)
                    let carol = try client.receive()
                    #expect(Serial.number(of: carol.bytes ?? [], "carol") == newest + 1, "\(carol.brief)")
                    // The images are visible to other connections.
                    #expect(try other.call("GET", "alice", "bob", "CACHED") == .bulk(put))
                    #expect(try other.call("GET", "alice", "carol", "CACHED") == carol)
                }
                try daemon.restart()
                #expect(try daemon.connect().call("GET", "alice", "bob", "CACHED") == .bulk(put))
                #expect(origin.requests.count == 100)
            }
        }

        @Test func `F56: PUTs during a logout leave no image behind`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["memory", "tier"] = "0" }
                let (control, writer) = (try daemon.connect(), try daemon.connect())
                let image = TestImage.gif("bob", size: 200_000)
                let profiles = (0..<20).map { "friend \($0)" }
                for round in 0..<30 {
                    #expect(try control.call("LOGIN", "alice") == .ok)
                    let count = round % profiles.count
                    for profile in profiles { try writer.send("PUT", "alice", profile, image) }
                    // The logout comes after `count` of the replies.
                    var replies = try (0..<count).map { _ in try writer.receive() }
                    let receipt = try control.call("LOGOUT", "alice")
                    #expect(receipt["users"] == .integer(1))
                    replies += try (count..<profiles.count).map { _ in try writer.receive() }
                    let stored = replies.prefix { $0 == .ok }
                    #expect(stored.count >= count)
                    let rest = replies.dropFirst(stored.count)
                    #expect(rest.allSatisfy { $0.code == "NOLOGIN" || $0.code == "CANCELLED" }, "\(rest.map(\.brief))")
                    #expect(try control.call("LOGIN", "alice") == .ok)
                    for profile in profiles { #expect(try control.call("GET", "alice", profile) == .null) }
                    #expect(try control.call("LOGOUT", "alice")["images"] == .integer(0))
                }
                try eventually("the trash is empty") { daemon.imageFiles.isEmpty }
            }
        }

        @Test func `I7: a PUT replaces the result of an earlier download, also for its waiters`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { request in
                    [.wait("gate"), .send(GatedOrigin.response(TestImage.gif("downloaded")))]
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
                #expect(try writer.call("PUT", "alice", "bob", TestImage.gif("put")) == .ok)
                #expect(try waiter.receive() == .bulk(TestImage.gif("put")))
                origin.open("gate")
                #expect(try writer.call("GET", "alice", "bob") == .bulk(TestImage.gif("put")))
                try daemon.restart()
                #expect(try daemon.connect().call("GET", "alice", "bob") == .bulk(TestImage.gif("put")))
            }
        }
    }
}
