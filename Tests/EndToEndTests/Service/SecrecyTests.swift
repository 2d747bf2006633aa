import Foundation
import Testing

extension EndToEnd.Service {
    /// Confidentiality of the files and the log while users are logged in.
    struct SecrecyTests {
        private static let needles = [
            "alice.liddell@wonderland.example", "white.rabbit@wonderland.example", "cheshire-cat@wonderland.example",
            "drink-me-token-7741", "session-of-the-looking-glass", "queens-croquet-ground",
        ]

        @Test func `I11: no id, token, URL or image appears in files, file names or the log`()
            throws
        {
            try withMachine { machine in
                let downloaded = TestImage.gif("downloaded image", size: 30_000)
                let put = TestImage.gif("stored image", size: 30_000)
                let origin = try GatedOrigin.images { _ in downloaded }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "allow"] = [.string(origin.url)]
                    daemon.settings["log", "level"] = "trace"
                }
                let (user, profile, cat) = (Self.needles[0], Self.needles[1], Self.needles[2])
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", user, "SESSION", Self.needles[4], "TOKEN", Self.needles[3]) == .ok)
                #expect(try client.call("GET", user, profile) == .bulk(downloaded))
                #expect(
                    try client.call("GET", user, cat, "URL", "\(origin.url)/queens-croquet-ground/cat")
                        == .bulk(downloaded))
                #expect(try client.call("PUT", user, cat, put, "SIZE", "64") == .ok)
                #expect(try client.call("PUT", user, cat, Array("no image".utf8)).code == "BADIMAGE")
                #expect(
                    try client.call("GET", user, profile, "URL", "http://queens-croquet-ground.example/").code != nil)
                // The reply to a download comes before the write to disk.
                try eventually("three images are stored") { daemon.imageFiles.count >= 3 }
                #expect(origin.requests.contains { $0.headers["authorization"] == "Bearer \(Self.needles[3])" })

                for step in ["running", "restarted", "killed"] {
                    if step == "restarted" { try daemon.restart() }
                    if step == "killed" {
                        daemon.kill()
                        try daemon.start()
                    }
                    #expect(try daemon.connect().call("GET", user, cat, "SIZE", "64", "CACHED") == .bulk(put))
                    #expect(daemon.imageFiles.count >= 3)
                    try search(machine, daemon, images: [downloaded, put], origin.url)
                }
                for needle in Self.needles { #expect(!daemon.log.contains(needle), "the log contains \(needle)") }

                // Proves that the search works.
                try write(Array("x".utf8) + put[5_000..<5_100], to: "\(daemon.cache)/planted")
                #expect(try imageBytes(of: [downloaded, put], in: daemon.files) == ["\(daemon.cache)/planted"])
                try write("x \(profile) y", to: "\(daemon.state)/planted")
                #expect(try grep(machine, daemon, [profile]).text.contains("planted"))
            }
        }

        private func search(_ machine: Machine, _ daemon: Daemon, images: [[UInt8]], _ url: String) throws {
            let texts = Self.needles + [url, "127.0.0.1", "wonderland", "GIF89a"]
            let found = try grep(machine, daemon, texts + texts.map { Data($0.utf8).base64EncodedString() })
            #expect(found.status == 1, "\(found.summary)")
            #expect(try imageBytes(of: images, in: daemon.files) == [])
            for path in [daemon.cache, daemon.state, daemon.runtime].flatMap(Files.entries) {
                for needle in texts { #expect(!path.contains(needle)) }
            }
            // Only the owner may read.
            for file in daemon.files {
                let mode = try FileManager.default.attributesOfItem(atPath: file)[.posixPermissions] as? Int
                #expect((mode ?? 0o777) & 0o077 == 0, "\(file) has mode \(String(mode ?? 0, radix: 8))")
            }
        }

        private func grep(_ machine: Machine, _ daemon: Daemon, _ needles: [String]) throws -> Finished {
            try machine.run(
                ["grep", "-rlaF"] + needles.flatMap { ["-e", $0] } + [daemon.cache, daemon.state, daemon.runtime])
        }

        /// The files that contain a part of an image. Searches for 16 bytes at every 64th offset, which finds each part
        /// of at least 79 bytes.
        private func imageBytes(of images: [[UInt8]], in files: [String]) throws -> [String] {
            let parts = images.flatMap { image in
                stride(from: 0, to: image.count - 16, by: 64).map { Data(image[$0..<$0 + 16]) }
            }
            return try files.filter { file in
                let bytes = Data(try read(file))
                return parts.contains { bytes.range(of: $0) != nil }
            }
        }
    }
}
