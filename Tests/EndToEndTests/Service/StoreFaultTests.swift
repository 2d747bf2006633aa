import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// Full and failing disks, and files that were altered from outside.
    struct StoreFaultTests {
        // MARK: A full disk

        /// Runs a program in a mount namespace of its own.
        static let mountNamespace: [String] =
            geteuid() == 0 ? ["unshare", "--mount"] : ["unshare", "--user", "--map-root-user", "--mount"]

        static let canMount =
            (try? ChildProcess(mountNamespace + ["mount", "-t", "tmpfs", "tmpfs", "/mnt"]).waitForExit(within: 10)) == 0

        private func daemonOnSmallDisk(_ machine: Machine, megabytes: Int) throws -> (Daemon, directory: String) {
            try daemonOnDisk(machine, mount: "-t tmpfs -o size=\(megabytes)m,mode=0700 tmpfs")
        }

        /// A daemon with its directories on a separate file system, and the path of that from outside its namespace.
        private func daemonOnDisk(_ machine: Machine, mount arguments: String) throws -> (Daemon, directory: String) {
            let disk = try machine.makeDirectory("disk")
            let daemon = Daemon(machine, "daemon")
            for kind in ["cache", "state", "runtime"] { daemon.settings["storage", kind] = "\(disk)/\(kind)" }
            daemon.settings["memory", "tier"] = "0"
            let script = "mount \(arguments) \"$0\" && exec \"$@\""
            daemon.wrapper = Self.mountNamespace + ["sh", "-c", script, disk]
            try daemon.start()
            return (daemon, "/proc/\(daemon.pid)/root\(disk)")
        }

        /// Fills the remaining space of a file system.
        private func fill(_ machine: Machine, _ directory: String) throws {
            let filled = try machine.run(["dd", "if=/dev/zero", "of=\(directory)/ballast", "bs=4k"])
            #expect(filled.errors.contains("No space left"), "\(filled.summary)")
        }

        @Test(.enabled(if: canMount, "mount namespaces are not permitted"))
        func `I9, F4: on a full disk, hits and PURGE work, and PUT fails with NOSPACE and leaves no file`() throws {
            try withMachine { machine in
                let (daemon, disk) = try daemonOnSmallDisk(machine, megabytes: 8)
                let client = try daemon.connect()
                for user in ["alice", "eve"] { #expect(try client.call("LOGIN", user) == .ok) }
                let profiles = (0..<10).map { "friend \($0)" }
                for profile in profiles {
                    #expect(try client.call("PUT", "alice", profile, TestImage.gif(profile, size: 500_000)) == .ok)
                }
                try fill(machine, disk)
                let files = Files.under("\(disk)/cache").count

                // Eve has no images that could be evicted for a new one.
                for _ in 0..<5 {
                    let rejected = try client.call("PUT", "eve", "bob", TestImage.gif("bob", size: 300_000))
                    #expect(rejected.code == "NOSPACE", "\(rejected.brief)")
                }
                #expect(try client.call("GET", "eve", "bob") == .null)
                #expect(Files.under("\(disk)/cache").count == files)
                for profile in profiles {
                    #expect(try client.call("GET", "alice", profile) == .bulk(TestImage.gif(profile, size: 500_000)))
                }
                // A purge works and frees space.
                #expect(try client.call("PURGE", "alice")["images"] == .integer(10))
                #expect(try client.call("GET", "alice", "friend 0") == .null)
                try eventually("space is free again") {
                    try client.call("PUT", "eve", "bob", TestImage.gif("bob", size: 300_000)) == .ok
                }
                #expect(try client.call("GET", "eve", "bob") == .bulk(TestImage.gif("bob", size: 300_000)))
                #expect(try client.call("LOGOUT", "*")["users"] == .integer(2))
                try eventually("no file is left") { Files.under("\(disk)/cache/users").isEmpty }
            }
        }

        @Test(.enabled(if: canMount, "mount namespaces are not permitted"))
        func `I4, F4: LOGOUT and PURGE work without a free block`() throws {
            try withMachine { machine in
                let (daemon, disk) = try daemonOnSmallDisk(machine, megabytes: 2)
                let client = try daemon.connect()
                for user in ["alice", "eve"] {
                    #expect(try client.call("LOGIN", user) == .ok)
                    #expect(try client.call("PUT", user, "bob", TestImage.gif("bob")) == .ok)
                }
                try fill(machine, disk)
                #expect(try client.call("LOGOUT", "alice")["users"] == .integer(1))
                #expect(try client.call("GET", "alice", "bob").code == "NOLOGIN")
                #expect(try client.call("PURGE", "eve")["users"] == .integer(1))
                #expect(try client.call("GET", "eve", "bob") == .null)
            }
        }

        // MARK: Failing disks

        static let hasLoopDevices = geteuid() == 0 && FileManager.default.fileExists(atPath: "/dev/loop-control")

        @Test(.enabled(if: canMount && hasLoopDevices, "only root may mount an ext4 image"))
        func `I4, I9, F13: on a disk that becomes read-only, hits are served and changes fail with IOERR`()
            throws
        {
            try withMachine { machine in
                let image = machine.path("ext4")
                for words in [["truncate", "-s", "16M", image], ["mkfs.ext4", "-q", image]] {
                    try machine.runSuccessfully(words)
                }
                let (daemon, disk) = try daemonOnDisk(machine, mount: "-o loop \(image)")
                let client = try daemon.connect()
                for user in ["alice", "eve"] {
                    #expect(try client.call("LOGIN", user) == .ok)
                    #expect(try client.call("PUT", user, "bob", TestImage.gif("bob")) == .ok)
                }
                // Simulates a disk error; see "abort" in ext4(5).
                let inside = ["nsenter", "--target", "\(daemon.pid)", "--mount", "mount", "-o", "remount,abort"]
                try machine.runSuccessfully(inside + [machine.path("disk")])
                let files = Files.under(disk).count
                #expect(try client.call("PUT", "eve", "dave", TestImage.gif("dave")).code == "IOERR")
                #expect(try client.call("LOGIN", "carol").code == "IOERR")
                for command in ["LOGOUT", "PURGE"] { #expect(try client.call(command, "alice").code == "IOERR") }
                // Without a receipt, alice's cache is closed; eve's is not affected.
                #expect(try client.call("GET", "alice", "bob").code == "IOERR")
                #expect(try client.call("GET", "eve", "bob") == .bulk(TestImage.gif("bob")))
                #expect(Files.under(disk).count == files)
            }
        }

        static let canTrace =
            (try? ChildProcess(["strace", "-o", "/dev/null", "true"]).waitForExit(within: 10)) == 0

        /// Runs a body while some system calls of the daemon fail.
        private func failing(
            _ calls: String, _ error: String, _ machine: Machine, _ daemon: Daemon, _ body: () throws -> Void
        ) throws {
            let log = machine.path("strace-\(machine.nextNumber()).log")
            let tracer = try machine.start(
                [
                    "strace", "-f", "-p", "\(daemon.pid)", "-o", "/dev/null", "-e", "trace=\(calls)", "-e",
                    "inject=\(calls):error=\(error)",
                ], errors: .file(log))
            try eventually("strace is attached to every thread") {
                let threads = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon.pid)/task")
                return try threads.allSatisfy {
                    try readText("/proc/\(daemon.pid)/task/\($0)/status")
                        .contains("TracerPid:\t\(tracer.pid)")
                }
            }
            defer {
                tracer.signal(SIGINT)  // strace detaches
                while tracer.exitStatus() == nil { usleep(500) }
            }
            try body()
        }

        @Test(.enabled(if: canTrace, "strace is not permitted"))
        func `I4, F61: PURGE fails with IOERR while it cannot be made durable, and is done afterwards`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("LOGIN", "eve") == .ok)
                for user in ["alice", "eve"] {
                    #expect(try client.call("PUT", user, "bob", TestImage.gif("bob")) == .ok)
                }
                try failing("fsync,fdatasync", "EIO", machine, daemon) {
                    let purged = try client.call("PURGE", "alice")
                    #expect(purged.code == "IOERR", "\(purged.brief)")
                    #expect(try client.call("GET", "alice", "bob").code == "IOERR")
                    #expect(try client.call("PUT", "alice", "bob", TestImage.gif("new")).code == "IOERR")
                    #expect(try client.call("LOGIN", "alice").code == "IOERR")
                    #expect(try client.call("LOGOUT", "alice").code == "IOERR")
                    // Other users are not affected.
                    #expect(try client.call("GET", "eve", "bob") == .bulk(TestImage.gif("bob")))
                }
                try eventually("alice can log in again") { try client.call("LOGIN", "alice") == .ok }
                #expect(try client.call("GET", "alice", "bob") == .null)
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("new")) == .ok)
                #expect(try client.call("PURGE", "alice")["images"] == .integer(1))
                #expect(try client.call("LOGOUT", "alice")["users"] == .integer(1))
                #expect(try client.call("GET", "alice", "bob").code == "NOLOGIN")
            }
        }

        @Test(
            .enabled(if: canTrace, "strace is not permitted"), arguments: [["PURGE", "alice"], ["LOGOUT", "alice"]])
        func `I4: after a kill during a failing purge, an image is intact or absent`(
            command: [String]
        ) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                try failing("fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat", "EIO", machine, daemon) {
                    try client.send(command)
                    #expect(try client.receive().code == "IOERR")
                    #expect(try client.call("GET", "alice", "bob").code == "IOERR")
                }
                // Without a receipt, the image may return.
                daemon.kill()
                try daemon.start()
                let held = try daemon.connect().call("GET", "alice", "bob")
                #expect([.bulk(TestImage.gif("bob")), .null].contains(held) || held.code == "NOLOGIN", "\(held.brief)")
            }
        }

        @Test(.enabled(if: canTrace, "strace is not permitted"))
        func `F6: an image that cannot be read is a miss`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["memory", "tier"] = "0" }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                #expect(try client.call("PUT", "alice", "eve", TestImage.gif("eve")) == .ok)
                // Not read(2), which event loops and sockets also use.
                try failing("pread64,preadv,preadv2", "EIO", machine, daemon) {
                    let held = try client.call("GET", "alice", "bob")
                    #expect(held == .null, "\(held.brief)")
                }
                #expect(try client.call("GET", "alice", "bob") == .null)
                #expect(try client.call("GET", "alice", "eve") == .bulk(TestImage.gif("eve")))
            }
        }

        // MARK: Altered files

        /// How the file of an entry is altered.
        enum Alteration: String, CaseIterable, Sendable {
            case flippedBit, truncated, emptied, swapped, symbolicLink, pipe, directory
        }

        @Test(arguments: Alteration.allCases)
        func `I5, F10, F11, F12, F24, F26: an altered entry is a miss, affects no other, and no link is followed`(
            alteration: Alteration
        ) throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["memory", "tier"] = "0" }
                let client = try daemon.connect(loggedInAs: "alice")
                let profiles = (0..<20).map { "friend \($0)" }
                for profile in profiles {
                    #expect(try client.call("PUT", "alice", profile, TestImage.gif(profile, size: 1_000)) == .ok)
                }
                let entries = Files.under("\(daemon.cache)/users")
                #expect(entries.count == 20)
                let treasure = machine.path("treasure")
                try write("gold", to: treasure)
                // Every second entry. A swap overwrites it with the next one.
                let altered = entries.enumerated().filter { $0.offset % 2 == 0 }.map(\.element)
                for (number, entry) in altered.enumerated() {
                    var bytes = try read(entry)
                    switch alteration {
                    case .flippedBit:
                        bytes[number * bytes.count / altered.count] ^= 4
                        try write(bytes, to: entry)
                    case .truncated: try write(Array(bytes.dropLast(1 + number * 50)), to: entry)
                    case .emptied: try write([], to: entry)
                    case .swapped: try write(read(entries[number * 2 + 1]), to: entry)
                    case .symbolicLink:
                        unlink(entry)
                        symlink(treasure, entry)
                    case .pipe:
                        unlink(entry)
                        mkfifo(entry, 0o600)
                    case .directory:
                        unlink(entry)
                        mkdir(entry, 0o700)
                    }
                }
                let replies = try profiles.map { try client.call("GET", "alice", $0) }
                #expect(replies.filter { $0 == .null }.count == 10, "\(replies.map(\.brief))")
                for (profile, reply) in zip(profiles, replies) where reply != .null {
                    #expect(reply == .bulk(TestImage.gif(profile, size: 1_000)))
                }
                // Each entry can be stored again, and a logout removes all of them.
                for profile in profiles {
                    #expect(try client.call("PUT", "alice", profile, TestImage.gif(profile)) == .ok)
                    #expect(try client.call("GET", "alice", profile) == .bulk(TestImage.gif(profile)))
                }
                #expect(try client.call("LOGOUT", "alice")["users"] == .integer(1))
                try eventually("the trash is empty") { Files.entries(under: "\(daemon.cache)/trash").isEmpty }
                #expect(try read(treasure) == Array("gold".utf8))
            }
        }

        @Test func `F24: a symbolic link in place of a user's directory is not followed`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["memory", "tier"] = "0" }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                try daemon.stop()
                let homes = try FileManager.default.contentsOfDirectory(atPath: "\(daemon.cache)/users/\(geteuid())")
                let home = try #require(homes.first)
                let path = "\(daemon.cache)/users/\(geteuid())/\(home)"
                let elsewhere = machine.path("elsewhere")
                #expect(rename(path, elsewhere) == 0)
                #expect(symlink(elsewhere, path) == 0)
                let before = Files.under(elsewhere)
                try daemon.start()
                let later = try daemon.connect()
                #expect(try later.call("GET", "alice", "bob").bytes == nil)
                #expect(try later.call("LOGOUT", "alice").code == nil)
                try daemon.restart()
                #expect(Files.under(elsewhere) == before && before.count == 1)
            }
        }
    }
}
