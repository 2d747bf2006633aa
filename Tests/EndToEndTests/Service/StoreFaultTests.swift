import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// A disk that is full, that fails, or that somebody meddles with.
    struct StoreFaultTests {
        // MARK: A full disk

        /// A namespace in which anybody may mount something; that goes with the daemon.
        static let mountNamespace: [String] =
            geteuid() == 0 ? ["unshare", "--mount"] : ["unshare", "--user", "--map-root-user", "--mount"]

        static let canMount =
            (try? ChildProcess(mountNamespace + ["mount", "-t", "tmpfs", "tmpfs", "/mnt"]).waitForEnd(within: 10)) == 0

        private func daemonOnSmallDisk(_ machine: Machine, megabytes: Int) throws -> (Daemon, directory: String) {
            try daemonOnDisk(machine, mount: "-t tmpfs -o size=\(megabytes)m,mode=0700 tmpfs")
        }

        /// A daemon all of whose directories lie on a file system of its own, and where that is seen from here.
        private func daemonOnDisk(_ machine: Machine, mount words: String) throws -> (Daemon, directory: String) {
            let disk = try machine.makeDirectory("disk")
            let daemon = Daemon(machine, "daemon")
            for kind in ["cache", "state", "runtime"] { daemon.settings["storage", kind] = "\(disk)/\(kind)" }
            daemon.settings["memory", "tier"] = "0"
            let script = "mount \(words) \"$0\" && exec \"$@\""
            daemon.wrapper = Self.mountNamespace + ["sh", "-c", script, disk]
            try daemon.start()
            return (daemon, "/proc/\(daemon.pid)/root\(disk)")
        }

        /// Takes all the room that is left.
        private func fill(_ machine: Machine, _ directory: String) throws {
            let filled = try machine.run(["dd", "if=/dev/zero", "of=\(directory)/ballast", "bs=4k"])
            #expect(filled.errors.contains("No space left"), "\(filled.everything)")
        }

        @Test(.enabled(if: canMount, "no namespace with a small file system may be made here"))
        func `I9, F4: on a full disk hits are served, PUT says NOSPACE, nothing half-written stays, PURGE works`()
            throws
        {
            try withMachine { machine in
                let (daemon, disk) = try daemonOnSmallDisk(machine, megabytes: 8)
                let client = try daemon.connect()
                for user in ["alice", "eve"] { #expect(try client.call("LOGIN", user) == .ok) }
                let profiles = (0..<10).map { "friend \($0)" }
                for profile in profiles {
                    #expect(try client.call("PUT", "alice", profile, Picture.gif(profile, size: 500_000)) == .ok)
                }
                try fill(machine, disk)
                let files = Files.under("\(disk)/cache").count

                // Eve holds nothing that could go to make room. Again and again it is refused, and nothing of it stays.
                for _ in 0..<5 {
                    let refused = try client.call("PUT", "eve", "bob", Picture.gif("bob", size: 300_000))
                    #expect(refused.code == "NOSPACE", "\(refused.brief)")
                }
                #expect(try client.call("GET", "eve", "bob") == .null)
                #expect(Files.under("\(disk)/cache").count == files)
                for profile in profiles {
                    #expect(try client.call("GET", "alice", profile) == .bulk(Picture.gif(profile, size: 500_000)))
                }
                // What ends, ends all the same; and the room it leaves is there to use.
                #expect(try client.call("PURGE", "alice")["images"] == .integer(10))
                #expect(try client.call("GET", "alice", "friend 0") == .null)
                try eventually("there is room again") {
                    try client.call("PUT", "eve", "bob", Picture.gif("bob", size: 300_000)) == .ok
                }
                #expect(try client.call("GET", "eve", "bob") == .bulk(Picture.gif("bob", size: 300_000)))
                #expect(try client.call("LOGOUT", "*")["users"] == .integer(2))
                try eventually("nothing is left") { Files.under("\(disk)/cache/users").isEmpty }
            }
        }

        @Test(.enabled(if: canMount, "no namespace with a small file system may be made here"))
        func `I4, F4: LOGOUT and PURGE work without one free block`() throws {
            try withMachine { machine in
                let (daemon, disk) = try daemonOnSmallDisk(machine, megabytes: 2)
                let client = try daemon.connect()
                for user in ["alice", "eve"] {
                    #expect(try client.call("LOGIN", user) == .ok)
                    #expect(try client.call("PUT", user, "bob", Picture.gif("bob")) == .ok)
                }
                try fill(machine, disk)
                #expect(try client.call("LOGOUT", "alice")["users"] == .integer(1))
                #expect(try client.call("GET", "alice", "bob").code == "NOLOGIN")
                #expect(try client.call("PURGE", "eve")["users"] == .integer(1))
                #expect(try client.call("GET", "eve", "bob") == .null)
            }
        }

        // MARK: A disk that fails

        static let hasLoopDevices = geteuid() == 0 && FileManager.default.fileExists(atPath: "/dev/loop-control")

        @Test(.enabled(if: canMount && hasLoopDevices, "only root may mount an ext4 from a file"))
        func `I4, I9, F13: on a disk that becomes read-only hits are served, and what must be durable is IOERR`()
            throws
        {
            try withMachine { machine in
                let image = machine.path("ext4")
                for words in [["truncate", "-s", "16M", image], ["mkfs.ext4", "-q", image]] {
                    #expect(try machine.run(words).status == 0)
                }
                let (daemon, disk) = try daemonOnDisk(machine, mount: "-o loop \(image)")
                let client = try daemon.connect()
                for user in ["alice", "eve"] {
                    #expect(try client.call("LOGIN", user) == .ok)
                    #expect(try client.call("PUT", user, "bob", Picture.gif("bob")) == .ok)
                }
                // As after an error of the disk: ext4(5), "abort".
                let inside = ["nsenter", "--target", "\(daemon.pid)", "--mount", "mount", "-o", "remount,abort"]
                #expect(try machine.run(inside + [machine.path("disk")]).status == 0)
                let files = Files.under(disk).count
                #expect(try client.call("PUT", "eve", "dave", Picture.gif("dave")).code == "IOERR")
                #expect(try client.call("LOGIN", "carol").code == "IOERR")
                for ending in ["LOGOUT", "PURGE"] { #expect(try client.call(ending, "alice").code == "IOERR") }
                // No receipt, and no image either; who asked for nothing is served.
                #expect(try client.call("GET", "alice", "bob").code == "IOERR")
                #expect(try client.call("GET", "eve", "bob") == .bulk(Picture.gif("bob")))
                #expect(Files.under(disk).count == files)
            }
        }

        static let canTrace =
            (try? ChildProcess(["strace", "-o", "/dev/null", "true"]).waitForEnd(within: 10)) == 0

        /// Makes system calls of the daemon fail while the body runs.
        private func failing(
            _ calls: String, _ error: String, _ machine: Machine, _ daemon: Daemon, _ body: () throws -> Void
        ) throws {
            let log = machine.path("strace-\(machine.takeNumber()).log")
            let tracer = try machine.start(
                [
                    "strace", "-f", "-p", "\(daemon.pid)", "-o", "/dev/null", "-e", "trace=\(calls)", "-e",
                    "inject=\(calls):error=\(error)",
                ], errors: .file(log))
            try eventually("strace is attached to every thread") {
                let threads = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon.pid)/task")
                return try threads.allSatisfy {
                    try String(decoding: read("/proc/\(daemon.pid)/task/\($0)/status"), as: UTF8.self)
                        .contains("TracerPid:\t\(tracer.pid)")
                }
            }
            defer {
                tracer.signal(SIGINT)  // strace lets go of the daemon
                while tracer.ending() == nil { usleep(500) }
            }
            try body()
        }

        @Test(.enabled(if: canTrace, "strace may not trace here"))
        func
            `I4, F61: while PURGE cannot be made durable there is no receipt but IOERR; then it is done`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("LOGIN", "eve") == .ok)
                for user in ["alice", "eve"] {
                    #expect(try client.call("PUT", user, "bob", Picture.gif("bob")) == .ok)
                }
                try failing("fsync,fdatasync", "EIO", machine, daemon) {
                    let purged = try client.call("PURGE", "alice")
                    #expect(purged.code == "IOERR", "\(purged.brief)")
                    #expect(try client.call("GET", "alice", "bob").code == "IOERR")
                    #expect(try client.call("PUT", "alice", "bob", Picture.gif("new")).code == "IOERR")
                    #expect(try client.call("LOGIN", "alice").code == "IOERR")
                    #expect(try client.call("LOGOUT", "alice").code == "IOERR")
                    // Another user's cache is none of this.
                    #expect(try client.call("GET", "eve", "bob") == .bulk(Picture.gif("bob")))
                }
                try eventually("alice can log in again") { try client.call("LOGIN", "alice") == .ok }
                #expect(try client.call("GET", "alice", "bob") == .null)
                #expect(try client.call("PUT", "alice", "bob", Picture.gif("new")) == .ok)
                #expect(try client.call("PURGE", "alice")["images"] == .integer(1))
                #expect(try client.call("LOGOUT", "alice")["users"] == .integer(1))
                #expect(try client.call("GET", "alice", "bob").code == "NOLOGIN")
            }
        }

        @Test(
            .enabled(if: canTrace, "strace may not trace here"), arguments: [["PURGE", "alice"], ["LOGOUT", "alice"]])
        func `I4: killed while a purge could not be made durable, the daemon does not serve what was to go`(
            command: [String]
        ) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
                try failing("fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat", "EIO", machine, daemon) {
                    try client.send(command)
                    #expect(try client.receive().code == "IOERR")
                    #expect(try client.call("GET", "alice", "bob").code == "IOERR")
                }
                // Nothing was promised, so the image may be back after this; but it is whole or gone.
                daemon.kill()
                try daemon.start()
                let held = try daemon.connect().call("GET", "alice", "bob")
                #expect([.bulk(Picture.gif("bob")), .null].contains(held) || held.code == "NOLOGIN", "\(held.brief)")
            }
        }

        @Test(.enabled(if: canTrace, "strace may not trace here"))
        func `F6: an image that cannot be read is a miss, not an error and not other bytes`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["memory", "tier"] = "0" }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
                #expect(try client.call("PUT", "alice", "eve", Picture.gif("eve")) == .ok)
                // The ways a file may be read; read itself also moves event loops and sockets.
                try failing("pread64,preadv,preadv2", "EIO", machine, daemon) {
                    let held = try client.call("GET", "alice", "bob")
                    #expect(held == .null, "\(held.brief)")
                }
                #expect(try client.call("GET", "alice", "bob") == .null)
                #expect(try client.call("GET", "alice", "eve") == .bulk(Picture.gif("eve")))
            }
        }

        // MARK: Somebody who meddles

        /// How an entry's file is spoiled.
        enum Meddling: String, CaseIterable, Sendable {
            case flippedBit, cut, emptied, swapped, symbolicLink, pipe, directory
        }

        @Test(arguments: Meddling.allCases)
        func `I5, F10, F11, F12, F24, F26: a meddled entry is a miss, harms no other, and nothing is followed`(
            meddling: Meddling
        ) throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["memory", "tier"] = "0" }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                let profiles = (0..<20).map { "friend \($0)" }
                for profile in profiles {
                    #expect(try client.call("PUT", "alice", profile, Picture.gif(profile, size: 1_000)) == .ok)
                }
                let entries = Files.under("\(daemon.cache)/users")
                #expect(entries.count == 20)
                let treasure = machine.path("treasure")
                try write("gold", to: treasure)
                // Every second one; for a swap, each with its neighbour.
                let spoiled = entries.enumerated().filter { $0.offset % 2 == 0 }.map(\.element)
                for (number, entry) in spoiled.enumerated() {
                    var bytes = try read(entry)
                    switch meddling {
                    case .flippedBit:
                        bytes[number * bytes.count / spoiled.count] ^= 4
                        try write(bytes, to: entry)
                    case .cut: try write(Array(bytes.dropLast(1 + number * 50)), to: entry)
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
                    #expect(reply == .bulk(Picture.gif(profile, size: 1_000)))
                }
                // What was missed can be put again, and all of it goes with the log-out.
                for profile in profiles {
                    #expect(try client.call("PUT", "alice", profile, Picture.gif(profile)) == .ok)
                    #expect(try client.call("GET", "alice", profile) == .bulk(Picture.gif(profile)))
                }
                #expect(try client.call("LOGOUT", "alice")["users"] == .integer(1))
                try eventually("nothing is left") { Files.entries(under: "\(daemon.cache)/trash").isEmpty }
                #expect(try read(treasure) == Array("gold".utf8))
            }
        }

        @Test func `F24: a symbolic link in place of a user's directory is not followed, and its target stays`() throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["memory", "tier"] = "0" }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
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
