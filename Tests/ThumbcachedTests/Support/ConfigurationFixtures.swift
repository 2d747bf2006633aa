import Foundation
import LinuxSupport

@testable import thumbcached

/// A configuration of what a test says, on a machine that it describes.
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
            case "broken": throw SystemError("look up user", code: EIO)
            default: nil
            }
        },
        gid: { group throws(SystemError) in group == "wheel" ? 10 : nil })

    static func loader(environment: [String: String] = environment, uid: UInt32 = 0) -> ConfigurationLoader {
        ConfigurationLoader(environment: environment, uid: uid, accounts: accounts)
    }

    static func decode(_ text: String, environment: [String: String] = environment) throws -> Configuration {
        try loader(environment: environment).decode(text, file: "f.toml")
    }

    /// A directory of its own for the duration of `body`.
    static func withDirectory<Result>(_ body: (String) throws -> Result) throws -> Result {
        // Short, so that paths of sockets in it fit.
        var template = Array("/tmp/tc.XXXXXX".utf8CString)
        guard let made = mkdtemp(&template) else { throw SystemError("mkdtemp") }
        let path = String(cString: made)
        defer { try? FileManager.default.removeItem(atPath: path) }
        return try body(path)
    }
}

/// The repository, found from where this file stood when it was compiled.
let repository = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent()
    .deletingLastPathComponent()
