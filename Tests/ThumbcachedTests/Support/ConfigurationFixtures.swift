import Foundation
import LinuxSupport

@testable import thumbcached

/// Reads configurations of tests on an imaginary machine.
enum Fixture {
    static let environment = [
        "CACHE_DIRECTORY": "/var/cache/thumbcached",
        "STATE_DIRECTORY": "/var/lib/thumbcached",
        "RUNTIME_DIRECTORY": "/run/thumbcached",
    ]

    static let accounts = AccountDirectory(
        uid: { user throws(SystemError) in
            switch user {
            case "alice": 1000
            case "thumbcached-http": 990
            case "broken": throw SystemError("look up user", code: EIO)
            default: nil
            }
        },
        gid: { group throws(SystemError) in group == "wheel" ? 10 : nil })

    static func loader(
        environment: [String: String] = environment, uid: UInt32 = 0, accounts: AccountDirectory = accounts
    ) -> ConfigurationLoader {
        ConfigurationLoader(environment: environment, uid: uid, accounts: accounts)
    }

    static func decode(_ text: String, environment: [String: String] = environment) throws -> Configuration {
        try loader(environment: environment).decode(text, file: "f.toml")
    }

    /// Runs `body` with a temporary directory.
    static func withDirectory<Result>(_ body: (String) throws -> Result) throws -> Result {
        // Short enough for the paths of sockets.
        var template = Array("/tmp/tc.XXXXXX".utf8CString)
        guard let made = mkdtemp(&template) else { throw SystemError("mkdtemp") }
        let path = String(cString: made)
        defer { try? FileManager.default.removeItem(atPath: path) }
        return try body(path)
    }
}

/// The repository, found through this file's path at compile time.
let repository = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent()
    .deletingLastPathComponent()
