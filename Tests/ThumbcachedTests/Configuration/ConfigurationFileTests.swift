import DaemonServer
import Foundation
import ProgramSupport
import Testing
import ThumbcacheProtocol

@testable import thumbcached

/// The choice of the file, and the output of `--check-config`.
@Suite struct ConfigurationFileTests {
    private static let alice: UInt32 = 1000

    /// A home directory with a configuration file.
    private func withHome(_ text: String = "threads = 7\n", _ body: (_ home: String, _ file: String) throws -> Void)
        throws
    {
        try Fixture.withDirectory { home in
            let directory = "\(home)/.config/thumbcached"
            try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
            try Data(text.utf8).write(to: URL(filePath: "\(directory)/thumbcached.toml"))
            try body(home, "\(directory)/thumbcached.toml")
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
        // A service.
        (["HOME": "/home/a", "CACHE_DIRECTORY": "/c"], nil), (["HOME": "/home/a", "STATE_DIRECTORY": "/s"], nil),
        (["XDG_CONFIG_HOME": "/c", "RUNTIME_DIRECTORY": ""], nil),
    ])
    func `only a daemon of an ordinary user has a personal file`(
        environment: [String: String], file: String?
    ) {
        #expect(StandardDirectories(environment: environment, uid: Self.alice).ownConfiguration == file)
        // Root's daemon serves the machine.
        #expect(StandardDirectories(environment: environment, uid: 0).ownConfiguration == nil)
        let files = Fixture.loader(environment: environment, uid: Self.alice).defaultFiles
        #expect(files == [file, "/etc/thumbcached/thumbcached.toml"].compactMap { $0 })
    }

    @Test func `the personal file is read alone, unless another file is named`() throws {
        try withHome { home, file in
            let loader = Fixture.loader(environment: environment(home), uid: Self.alice)
            let own = try loader.load(file: nil)
            #expect(own.file == file && own.threads == 7)
            let other = "\(home)/other.toml"
            try Data("limits.id = 9\n".utf8).write(to: URL(filePath: other))
            let named = try loader.load(file: other)
            #expect(named.file == other && named.limits.server.request.id == 9 && named.threads == 1)
        }
    }

    @Test func `a service and root ignore files in HOME`() throws {
        try withHome("what is no TOML\n") { home, file in
            for (variables, uid) in [(Fixture.environment, Self.alice), ([:], 0)] {
                let loader = Fixture.loader(environment: environment(home, variables), uid: uid)
                #expect(loader.ownFile == nil)
                let read = try loader.load(file: nil)
                #expect(read.file != file)
            }
        }
    }

    @Test func `F50: an unreadable personal file is an error; the machine's file is not tried`()
        throws
    {
        try withHome { home, file in
            try FileManager.default.removeItem(atPath: file)
            try FileManager.default.createDirectory(atPath: file, withIntermediateDirectories: false)
            let loader = Fixture.loader(environment: environment(home), uid: Self.alice)
            let error = #expect(throws: ConfigurationError.self) { try loader.load(file: nil) }
            #expect(error?.description == "\(file): is not a plain file")
            let check = ConfigurationCheck(file: nil, environment: environment(home))
            let checked = #expect(throws: ConfigurationError.self) {
                try check.report(isService: false, uid: Self.alice)
            }
            #expect(checked == error)
        }
    }

    @Test func `--check-config prints the file and a line for each warning`() throws {
        let text = "[origins.default]\nurl = \"http://localhost/me.png\"\n"
        try withHome(text) { home, file in
            let check = ConfigurationCheck(file: nil, environment: environment(home))
            let lines = try check.report(isService: false, uid: Self.alice).split(separator: "\n")
            #expect(lines.first == "\(file): valid")
            #expect(lines.count == 3 && lines.dropFirst().allSatisfy { $0.hasPrefix("warning: origins.default.url: ") })
            // Root reads no personal file when it checks the service's configuration.
            let machines = "/etc/thumbcached/thumbcached.toml"
            if !FileManager.default.fileExists(atPath: machines) {
                #expect(
                    try check.report(isService: true, uid: 999)
                        == "no configuration file (\(machines)), read as the user thumbcached; the defaults are valid")
                try FileManager.default.removeItem(atPath: file)
                #expect(
                    try check.report(isService: false, uid: Self.alice)
                        == "no configuration file (\(file), \(machines)); the defaults are valid")
            }
        }
    }
}
