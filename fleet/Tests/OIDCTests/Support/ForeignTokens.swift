import Foundation

/// Tokens that another implementation has made, and forgeries of them: see python/tokens.py.
struct ForeignTokens: Decodable, Sendable {
    struct Forgery: Decodable, Sendable {
        let token: String
        /// A part of what is to be said of it.
        let reason: String
    }

    /// Seconds since 1970 at which the good ones are good.
    static let now = 1_800_000_000.0
    /// They are made once.
    static let made = Result { try make() }

    let good: [String: String]
    let other: [String: String]
    let forged: [String: Forgery]
    private(set) var jwks: [UInt8] = []
    /// Has `rsa` as before, and `later` instead of the others.
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
