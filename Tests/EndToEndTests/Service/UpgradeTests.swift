import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// Stores of other versions.
    struct UpgradeTests {
        private static let isWriting = ProcessInfo.processInfo.environment["THUMBCACHED_WRITE_STORE"] != nil
        /// For 68 years, the longest lifetime that counts.
        private static let fresh = "Cache-Control: max-age=2147483647"

        /// Sends a request as a uid, and returns the reply as redis-cli prints it, without the line break at its end.
        private func call(
            _ daemon: Daemon, _ uid: UInt32, _ words: [String], input: [UInt8] = []
        ) throws -> [UInt8] {
            let option = input.isEmpty ? [] : ["-x"]
            let command = Account(uid).running(["redis-cli", "-s", daemon.socket] + option + words)
            return try daemon.machine.runSuccessfully(command, input: input).output.dropLast()
        }

        private func text(_ daemon: Daemon, _ uid: UInt32, _ words: String...) throws -> String {
            String(decoding: try call(daemon, uid, words), as: UTF8.self)
        }

        // MARK: Newer programs

        @Test(arguments: KeptStore.all)
        func `F90: the store of an earlier release keeps its logins and images, and a logout leaves no file`(
            store: KeptStore
        ) throws {
            try withMachine { machine in
                let users = try store.extract(to: machine)
                let origin = try GatedOrigin.images { _ in TestImage.gif("downloaded") }
                defer { origin.end() }
                let daemon = try machine.daemon(KeptStore.daemon) { daemon in
                    daemon.acceptAccounts()
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    // Renditions are served from the store.
                    daemon.settings["renderer", "path"] = ""
                }
                for user in users {
                    for image in user.images {
                        let served = try call(daemon, user.uid, ["GET", user.name] + image.words)
                        if user.isPendingLogout {
                            #expect(String(decoding: served, as: UTF8.self).hasPrefix("NOLOGIN "))
                        } else {
                            #expect(served == [UInt8](image.bytes), "\(user.name) \(image.words)")
                        }
                    }
                }
                let remaining = users.filter { !$0.isPendingLogout }
                for uid in Set(users.map(\.uid)) {
                    let names = remaining.filter { $0.uid == uid }.map(\.name).sorted()
                    let listed = try text(daemon, uid, "USERS").split(separator: "\n").map(String.init)
                    #expect(listed.sorted() == names, "of uid \(uid)")
                }
                for user in remaining {
                    #expect(
                        try text(daemon, user.uid, "STAT", user.name).contains("sessions\n\(user.sessions.count)\n"))
                    // All sessions but the last end without ending the login.
                    for session in user.sessions.dropLast() {
                        _ = try text(daemon, user.uid, "LOGOUT", user.name, "SESSION", session)
                    }
                    #expect(try !text(daemon, user.uid, "STAT", user.name).isEmpty)
                }
                #expect(origin.requests.isEmpty)
                #expect(try daemon.info("damaged_logins") == "0")
                #expect(try daemon.info("rejected_entries") == "0")

                let receipt = try daemon.connect().call("LOGOUT", "*", "UID", "*")
                #expect(receipt["users"] == .integer(Int64(remaining.count)))
                for user in remaining {
                    #expect(try text(daemon, user.uid, "GET", user.name, "anyone").hasPrefix("NOLOGIN "))
                }
                #expect(daemon.loginFiles == [])
                #expect(Files.under(daemon.pending) == [])
                try eventually("no image is left") { daemon.imageFiles.isEmpty }
                #expect(try daemon.stop() == 0)
            }
        }

        @Test func `F90: a store of this version is kept`() throws {
            try withMachine { machine in
                let version = try machine.daemon().info("thumbcached_version")
                #expect(KeptStore.all.contains { $0.version == version }, "run `make kept-store`")
            }
        }

        /// `make kept-store` writes it to the repository.
        @Test func `F90: a store of this version can be written`() throws {
            try withMachine { machine in
                let source = try read("\(Files.repository)/Tests/RendererTests/Images/alpha.png")
                let origin = try GatedOrigin { _ in [.send(GatedOrigin.response(source, headers: [Self.fresh]))] }
                defer { origin.end() }
                let daemon = Daemon(machine, KeptStore.daemon)
                daemon.acceptAccounts()
                daemon.settings.setOrigin("\(origin.url)/{profile}")
                try daemon.writeConfiguration()
                guard mkdir(daemon.pending, 0o750) == 0 else { throw Failure(systemCall: "mkdir \(daemon.pending)") }
                try daemon.start()

                var users = [
                    KeptStore.User(uid: 4_001, name: "alice", sessions: ["default"]),
                    KeptStore.User(uid: 4_001, name: "dave", sessions: ["phone", "laptop"]),
                    KeptStore.User(uid: 4_002, name: "alice", sessions: ["default"]),
                    KeptStore.User(uid: 4_003, name: "erin", sessions: ["default"], isPendingLogout: true),
                ]
                for index in users.indices {
                    let (uid, name) = (users[index].uid, users[index].name)
                    for session in users[index].sessions {
                        let login = try text(
                            daemon, uid, "LOGIN", name, "SESSION", session, "ORIGIN", "default", "TOKEN", "a-token")
                        #expect(login == "OK")
                    }
                    let put = TestImage.gif("\(name) of \(uid)")
                    #expect(try call(daemon, uid, ["PUT", name, "bob"], input: put) == Array("OK".utf8))
                    users[index].images.append(KeptStore.Image(words: ["bob"], bytes: Data(put)))
                    guard index == 0 else { continue }
                    // The second is a rendition of the first.
                    for words in [["carol"], ["carol", "SIZE", "8"]] {
                        let image = try call(daemon, uid, ["GET", name] + words)
                        users[index].images.append(KeptStore.Image(words: words, bytes: Data(image)))
                    }
                }
                #expect(users[0].images[1].bytes == Data(source))
                #expect(users[0].images[2].bytes.count != source.count, "no rendition: build with the renderer")
                let version = try #require(try daemon.info("thumbcached_version"))
                #expect(try daemon.stop() == 0)
                for user in users where user.isPendingLogout {
                    try write([], to: "\(daemon.pending)/\(user.uid)." + String(repeating: "0f", count: 16))
                }
                try KeptStore(version: version).write(
                    daemon, holding: users, in: Self.isWriting ? KeptStore.directory : machine.directory)
            }
        }

        // MARK: Older programs

        @Test func `F90: a daemon refuses the store of a newer version and changes nothing`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let image = TestImage.gif("bob")
                #expect(try daemon.connect(loggedInAs: "alice").call("PUT", "alice", "bob", image) == .ok)
                #expect(try daemon.stop() == 0)
                let path = "\(daemon.cache)/VERSION"
                let version = try readText(path)
                try write("thumbcached 1000\n", to: path)
                func contents() throws -> [String: [UInt8]] {
                    try Dictionary(uniqueKeysWithValues: daemon.files.map { ($0, try read($0)) })
                }
                let before = try contents()

                try daemon.launch()
                #expect(try daemon.process?.waitForExit() == 1)
                #expect(daemon.log.contains("has format 1000, made by a newer thumbcached"), "\(daemon.log)")
                #expect(try contents() == before)

                try write(version, to: path)
                try daemon.start()
                #expect(try daemon.connect().call("GET", "alice", "bob", "CACHED") == .bulk(image))
            }
        }
    }
}
