import Foundation

/// Valid and forged tokens made by another implementation: python/tokens.py.
struct ForeignTokens: Decodable, Sendable {
    struct Forgery: Decodable, Sendable {
        let token: String
        /// A part of the expected reason for the rejection.
        let reason: String
    }

    /// The time at which the tokens in `good` are valid, in seconds since 1970.
    static let now = 1_800_000_000.0
    /// The tokens, made once per process.
    static let made = Result { try make() }

    let good: [String: String]
    let other: [String: String]
    let forged: [String: Forgery]
    private(set) var jwks: [UInt8] = []
    /// A key set with `rsa` and the new key `later`.
    private(set) var rotated: [UInt8] = []

    private enum CodingKeys: String, CodingKey {
        case good, other, forged
    }

    private static let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()

    private static func make() throws -> ForeignTokens {
        let python = tests.deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: ".build/python-client/bin/python")
        guard FileManager.default.isExecutableFile(atPath: python.path) else {
            throw Missing(description: "\(python.path) is missing: run tools/install-python-client, as make test does")
        }
        let process = Process()
        process.executableURL = python
        process.arguments = ["-W", "ignore", tests.appending(path: "python/tokens.py").path, "\(Int(now))"]
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let json = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else { throw Missing(description: "tokens.py failed") }
        var tokens = try JSONDecoder().decode(ForeignTokens.self, from: json)
        let all = try JSONSerialization.jsonObject(with: json) as? [String: Any] ?? [:]
        tokens.jwks = Array(try JSONSerialization.data(withJSONObject: all["jwks"] ?? [:]))
        tokens.rotated = Array(try JSONSerialization.data(withJSONObject: all["rotated"] ?? [:]))
        return tokens
    }
}

struct Missing: Error, CustomStringConvertible {
    let description: String
}
