import Foundation
import ProgramSupport
import Testing

@testable import thumbcached

/// Which file is read, and what `--check-config` says of it.
@Suite struct ConfigurationFileTests {
    private static let alice: UInt32 = 1000

    /// A home with a file of its own that says so.
    private func withHome(_ text: String = "threads = 7\n", _ body: (_ home: String, _ file: String) throws -> Void)
        throws
    {
        try Fixture.withDirectory { home in
            let folder = "\(home)/.config/thumbcached"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            try Data(text.utf8).write(to: URL(filePath: "\(folder)/thumbcached.toml"))
            try body(home, "\(folder)/thumbcached.toml")
        }
    }

    private func environment(_ home: String, _ more: [String: String] = [:]) -> [String: String] {
        ["HOME": home, "XDG_RUNTIME_DIR": "/run/user/1000"].merging(more) { $1 }
    }

    @Test(arguments: [
        (["HOME": "/home/a"], "/home/a/.config/thumbcached/thumbcached.toml"),
        (["HOME": "/home/a", "XDG_CONFIG_HOME": "/c"], "/c/thumbcached/thumbcached.toml"),
        (["HOME": "/home/a", "XDG_CONFIG_HOME": "relative"], "/home/a/.config/thumbcached/thumbcached.toml"),
        ([:], nil), (["HOME": ""], nil),
        // A service of the machine's.
        (["HOME": "/home/a", "CACHE_DIRECTORY": "/c"], nil), (["HOME": "/home/a", "STATE_DIRECTORY": "/s"], nil),
        (["XDG_CONFIG_HOME": "/c", "RUNTIME_DIRECTORY": ""], nil),
    ])
    func `a person's daemon looks for the person's file, and a service for none`(
        environment: [String: String], file: String?
    ) {
        #expect(StandardDirectories(environment: environment, uid: Self.alice).ownConfiguration == file)
        // Root's daemon is the machine's.
        #expect(StandardDirectories(environment: environment, uid: 0).ownConfiguration == nil)
        let files = Fixture.loader(environment: environment, uid: Self.alice).defaultFiles
        #expect(files == [file, "/etc/thumbcached/thumbcached.toml"].compactMap { $0 })
    }

    @Test func `one's own file counts, alone and as a whole, unless another is named`() throws {
        try withHome { home, file in
            let loader = Fixture.loader(environment: environment(home), uid: Self.alice)
            let own = try loader.load(file: nil)
            #expect(own.file == file && own.threads == 7)
            let other = "\(home)/other.toml"
            try Data("limits.id = 9\n".utf8).write(to: URL(filePath: other))
            let named = try loader.load(file: other)
            #expect(named.file == other && named.limits.id == 9 && named.threads == 1)
        }
    }

    @Test func `a service and root read nothing of a home that their environment names`() throws {
        try withHome("what is no TOML\n") { home, file in
            for (variables, uid) in [(Fixture.environment, Self.alice), ([:], 0)] {
                let loader = Fixture.loader(environment: environment(home, variables), uid: uid)
                #expect(loader.ownFile == nil)
                let read = try loader.load(file: nil)
                #expect(read.file != file)
            }
        }
    }

    @Test func `F50: an own file that is there and cannot be read is an error, and no reason to take the machine's`()
        throws
    {
        try withHome { home, file in
            try FileManager.default.removeItem(atPath: file)
            try FileManager.default.createDirectory(atPath: file, withIntermediateDirectories: false)
            let loader = Fixture.loader(environment: environment(home), uid: Self.alice)
            let error = #expect(throws: ConfigurationError.self) { try loader.load(file: nil) }
            #expect(error?.description == "\(file): is not a plain file")
            let check = ConfigurationCheck(file: nil, environment: environment(home))
            let judged = #expect(throws: ConfigurationError.self) {
                try check.report(isService: false, uid: Self.alice)
            }
            #expect(judged == error)
        }
    }

    @Test func `--check-config names the file that it read, and a line for each warning`() throws {
        let text = "[origins.default]\nurl = \"http://localhost/me.png\"\n"
        try withHome(text) { home, file in
            let check = ConfigurationCheck(file: nil, environment: environment(home))
            let lines = try check.report(isService: false, uid: Self.alice).split(separator: "\n")
            #expect(lines.first == "\(file) is good")
            #expect(lines.count == 3 && lines.dropFirst().allSatisfy { $0.hasPrefix("warning: origins.default.url: ") })
            // What root reads as the service's user is no person's, wherever root's home is.
            let machines = "/etc/thumbcached/thumbcached.toml"
            if !FileManager.default.fileExists(atPath: machines) {
                #expect(
                    try check.report(isService: true, uid: 999)
                        == "there is no \(machines), read as the user thumbcached; the defaults are good")
                try FileManager.default.removeItem(atPath: file)
                #expect(
                    try check.report(isService: false, uid: Self.alice)
                        == "there is no \(file) and no \(machines); the defaults are good")
            }
        }
    }
}
