import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// Renditions made by the real renderer from images of an nginx.
    struct RenditionTests {
        private static let images = "\(Files.repository)/Tests/RendererTests/Images"

        /// Starts nginx with test images, and a daemon that uses it as the origin.
        private func daemon(
            _ machine: Machine, more: (Daemon) -> Void = { _ in }
        ) throws -> (Daemon, Nginx, RESPClient) {
            let directory = try machine.makeDirectory("images")
            for name in ["exif-6.jpg", "baseline.jpg", "bomb.png", "alpha.png"] {
                try write(try read("\(Self.images)/\(name)"), to: "\(directory)/\(name)")
            }
            let nginx = try Nginx(machine, serving: directory)
            let daemon = try machine.daemon { daemon in
                daemon.settings.setOrigin("\(nginx.url)/{profile}")
                more(daemon)
            }
            let client = try daemon.connect(loggedInAs: "alice")
            return (daemon, nginx, client)
        }

        /// Type, dimensions, and whether the image is a rendition.
        private func shape(_ client: RESPClient, _ words: String...) throws -> [String] {
            try client.send(["GET", "alice"] + words + ["META"])
            let reply = try client.receive()
            let type = reply["type"]?.text ?? "none"
            let size = "\(reply["width"]?.number ?? 0)x\(reply["height"]?.number ?? 0)"
            return [type, size, reply["rendered"] == .null ? "source" : "rendition"]
        }

        @Test func `I6: four sizes of one image cause one request to the origin`() throws {
            try withMachine { machine in
                let (_, nginx, client) = try daemon(machine)
                let source = try client.call("GET", "alice", "exif-6.jpg", "META")
                #expect(source["rendered"] == .null)
                for side in ["8", "16", "24", "32"] {
                    let reply = try client.call("GET", "alice", "exif-6.jpg", "SIZE", side, "META")
                    #expect(reply["width"]?.number == Int64(side))
                    #expect(reply["height"]?.number == Int64(side))
                    #expect(reply["rendered"] == source["digest"])
                    // The metadata of the camera is removed.
                    let bytes = reply["image"]?.bytes ?? []
                    #expect(!bytes.isEmpty && Data(bytes).range(of: Data("Exif".utf8)) == nil)
                }
                #expect(try nginx.requests().count == 1)
            }
        }

        @Test func `FIT and FORMAT are respected, and no image is enlarged`() throws {
            try withMachine { machine in
                let (_, _, client) = try daemon(machine)
                let whole = try shape(client, "exif-6.jpg")
                #expect(whole[2] == "source")
                let sides = whole[1].split(separator: "x").compactMap { Int($0) }
                let contained = try shape(client, "exif-6.jpg", "SIZE", "32", "FIT", "contain", "FORMAT", "webp")
                #expect(contained[0] == "image/webp")
                // The Exif orientation is applied, which exchanges width and height.
                let (long, short) = (sides.max() ?? 0, sides.min() ?? 0)
                let side = "\((32 * short + long / 2) / long)"
                #expect(contained[1] == (sides[0] > sides[1] ? "\(side)x32" : "32x\(side)"))
                let jpeg = try shape(client, "alpha.png", "SIZE", "20", "FORMAT", "jpeg")
                #expect(jpeg == ["image/jpeg", "20x20", "rendition"])
                let huge = try shape(client, "baseline.jpg", "SIZE", "4096", "FIT", "contain")
                #expect(try huge[1] == shape(client, "baseline.jpg")[1])
            }
        }

        @Test func `I3: a logout removes the renditions and ends the worker that made them`() throws {
            try withMachine { machine in
                let (daemon, _, client) = try daemon(machine)
                #expect(try shape(client, "baseline.jpg", "SIZE", "32")[2] == "rendition")
                #expect(try daemon.rendererProcesses().count == 2)
                #expect(try client.call("LOGOUT", "alice")["users"] == .integer(1))
                #expect(try client.call("GET", "alice", "baseline.jpg", "SIZE", "32", "CACHED").code == "NOLOGIN")
                try eventually("the worker has ended") { try daemon.rendererProcesses().count == 1 }
                try eventually("the trash is empty") { daemon.imageFiles.isEmpty }
            }
        }

        @Test func `F81: a decompression bomb is served unchanged and affects no other request`() throws {
            try withMachine { machine in
                let (_, _, client) = try daemon(machine) { $0.settings["limits", "dimension"] = 65_536 }
                #expect(try shape(client, "bomb.png", "SIZE", "32")[2] == "source")
                #expect(try shape(client, "baseline.jpg", "SIZE", "32")[2] == "rendition")
            }
        }

        @Test func `F82: a killed renderer is restarted unless the fork server was killed`() throws {
            try withMachine { machine in
                let (daemon, _, client) = try daemon(machine)
                #expect(try shape(client, "baseline.jpg", "SIZE", "32")[2] == "rendition")
                let worker = try #require(try daemon.rendererProcesses().last)
                try kill([worker])
                #expect(try shape(client, "baseline.jpg", "SIZE", "33")[2] == "rendition")
                try kill(try daemon.rendererProcesses())
                #expect(try shape(client, "baseline.jpg", "SIZE", "34")[2] == "rendition")
                let processes = try daemon.rendererProcesses()
                try kill([try daemon.forkServerProcess()])
                #expect(try shape(client, "baseline.jpg", "SIZE", "35")[2] == "rendition")
                try kill(processes)
                #expect(try shape(client, "baseline.jpg", "SIZE", "36")[2] == "source")
                // Cached renditions are still served.
                #expect(try shape(client, "baseline.jpg", "SIZE", "32")[2] == "rendition")
                #expect(daemon.log.contains("helper process failed"))
                #expect(daemon.log.contains("restart thumbcached"))
            }
        }

        private func kill(_ processes: [pid_t]) throws {
            for process in processes { Glibc.kill(process, SIGKILL) }
            try eventually("the processes have ended") { processes.allSatisfy(Daemon.hasEnded) }
        }

        @Test func `cached renditions are served after a restart without a renderer`() throws {
            try withMachine { machine in
                let (daemon, nginx, client) = try daemon(machine)
                #expect(try shape(client, "baseline.jpg", "SIZE", "32")[2] == "rendition")
                try daemon.stop()
                daemon.settings["renderer", "path"] = ""
                try daemon.start()
                let again = try daemon.connect()
                #expect(try shape(again, "baseline.jpg", "SIZE", "32")[2] == "rendition")
                #expect(try shape(again, "baseline.jpg", "SIZE", "33")[2] == "source")
                #expect(try daemon.rendererProcesses().isEmpty)
                #expect(try nginx.requests().count == 1)
            }
        }
    }
}
