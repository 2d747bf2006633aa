import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// Pictures in other sizes, from a real nginx by way of the real renderer.
    struct RenditionTests {
        private static let pictures = "\(Files.repository)/Tests/RendererTests/Pictures"

        /// nginx with the pictures, and a daemon that makes others of them.
        private func daemon(
            _ machine: Machine, more: (Daemon) -> Void = { _ in }
        ) throws -> (Daemon, Nginx, RESPClient) {
            let directory = try machine.makeDirectory("pictures")
            for name in ["exif-6.jpg", "baseline.jpg", "bomb.png", "alpha.png"] {
                try write(try read("\(Self.pictures)/\(name)"), to: "\(directory)/\(name)")
            }
            let nginx = try Nginx(machine, serving: directory)
            let daemon = try machine.daemon { daemon in
                daemon.settings.setOrigin("\(nginx.url)/{profile}")
                more(daemon)
            }
            let client = try daemon.connect()
            #expect(try client.call("LOGIN", "alice") == .ok)
            return (daemon, nginx, client)
        }

        /// Width, height, and whether it was made here.
        private func shape(_ client: RESPClient, _ words: String...) throws -> [String] {
            try client.send(["GET", "alice"] + words + ["META"])
            let reply = try client.receive()
            let type = reply["type"]?.text ?? "none"
            let size = "\(reply["width"]?.number ?? 0)x\(reply["height"]?.number ?? 0)"
            return [type, size, reply["rendered"] == .null ? "as it came" : "made here"]
        }

        @Test func `I6: one picture in four sizes is one request at the origin`() throws {
            try withMachine { machine in
                let (_, nginx, client) = try daemon(machine)
                let source = try client.call("GET", "alice", "exif-6.jpg", "META")
                #expect(source["rendered"] == .null)
                for side in ["8", "16", "24", "32"] {
                    let reply = try client.call("GET", "alice", "exif-6.jpg", "SIZE", side, "META")
                    #expect(reply["width"]?.number == Int64(side))
                    #expect(reply["height"]?.number == Int64(side))
                    #expect(reply["rendered"] == source["digest"])
                    // Nothing of what the camera wrote is left.
                    let bytes = reply["image"]?.bytes ?? []
                    #expect(!bytes.isEmpty && Data(bytes).range(of: Data("Exif".utf8)) == nil)
                }
                #expect(try nginx.requests().count == 1)
            }
        }

        @Test func `FIT and FORMAT are what they say, and no picture grows`() throws {
            try withMachine { machine in
                let (_, _, client) = try daemon(machine)
                let whole = try shape(client, "exif-6.jpg")
                #expect(whole[2] == "as it came")
                let sides = whole[1].split(separator: "x").compactMap { Int($0) }
                let contained = try shape(client, "exif-6.jpg", "SIZE", "32", "FIT", "contain", "FORMAT", "webp")
                #expect(contained[0] == "image/webp")
                // Turned upright: what was wide is high.
                let (long, short) = (sides.max() ?? 0, sides.min() ?? 0)
                let side = "\((32 * short + long / 2) / long)"
                #expect(contained[1] == (sides[0] > sides[1] ? "\(side)x32" : "32x\(side)"))
                #expect(
                    try shape(client, "alpha.png", "SIZE", "20", "FORMAT", "jpeg") == [
                        "image/jpeg", "20x20", "made here",
                    ])
                let huge = try shape(client, "baseline.jpg", "SIZE", "4096", "FIT", "contain")
                #expect(try huge[1] == shape(client, "baseline.jpg")[1])
            }
        }

        @Test func `I3: with a log-out go the pictures that were made and the process that saw them`() throws {
            try withMachine { machine in
                let (daemon, _, client) = try daemon(machine)
                #expect(try shape(client, "baseline.jpg", "SIZE", "32")[2] == "made here")
                #expect(try daemon.rendererProcesses().count == 2)
                #expect(try client.call("LOGOUT", "alice")["users"] == .integer(1))
                #expect(try client.call("GET", "alice", "baseline.jpg", "SIZE", "32", "CACHED").code == "NOLOGIN")
                try eventually("its worker has ended") { try daemon.rendererProcesses().count == 1 }
                try eventually("the trash is empty") { daemon.imageFiles.isEmpty }
            }
        }

        @Test func `F81: a bomb ends its own request alone, and is served as it is`() throws {
            try withMachine { machine in
                let (_, _, client) = try daemon(machine) { $0.settings["limits", "dimension"] = 65_536 }
                #expect(try shape(client, "bomb.png", "SIZE", "32")[2] == "as it came")
                #expect(try shape(client, "baseline.jpg", "SIZE", "32")[2] == "made here")
            }
        }

        @Test func `F82: a renderer that was killed is started again, unless its starter was killed`() throws {
            try withMachine { machine in
                let (daemon, _, client) = try daemon(machine)
                #expect(try shape(client, "baseline.jpg", "SIZE", "32")[2] == "made here")
                let worker = try #require(try daemon.rendererProcesses().last)
                try kill([worker])
                #expect(try shape(client, "baseline.jpg", "SIZE", "33")[2] == "made here")
                try kill(try daemon.rendererProcesses())
                #expect(try shape(client, "baseline.jpg", "SIZE", "34")[2] == "made here")
                let processes = try daemon.rendererProcesses()
                try kill([try daemon.starterProcess()])
                #expect(try shape(client, "baseline.jpg", "SIZE", "35")[2] == "made here")
                try kill(processes)
                #expect(try shape(client, "baseline.jpg", "SIZE", "36")[2] == "as it came")
                // What was made is still there.
                #expect(try shape(client, "baseline.jpg", "SIZE", "32")[2] == "made here")
                #expect(daemon.log.contains("there is no renderer"))
                #expect(daemon.log.contains("restart thumbcached"))
            }
        }

        private func kill(_ processes: [pid_t]) throws {
            for process in processes { Glibc.kill(process, SIGKILL) }
            try eventually("the processes have ended") { processes.allSatisfy { !Files.exists("/proc/\($0)/exe") } }
        }

        @Test func `what was made is found again after a restart, and without a renderer`() throws {
            try withMachine { machine in
                let (daemon, nginx, client) = try daemon(machine)
                #expect(try shape(client, "baseline.jpg", "SIZE", "32")[2] == "made here")
                try daemon.stop()
                daemon.settings["renderer", "path"] = ""
                try daemon.start()
                let again = try daemon.connect()
                #expect(try shape(again, "baseline.jpg", "SIZE", "32")[2] == "made here")
                #expect(try shape(again, "baseline.jpg", "SIZE", "33")[2] == "as it came")
                #expect(try daemon.rendererProcesses().isEmpty)
                #expect(try nginx.requests().count == 1)
            }
        }
    }
}
