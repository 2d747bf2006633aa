import ArgumentParser
import Logging

/// A log level as the command line takes it.
struct LogLevel: ExpressibleByArgument {
    let level: Logger.Level

    init?(argument: String) {
        guard let level = Logger.Level(rawValue: argument) else { return nil }
        self.level = level
    }

    static var allValueStrings: [String] { Logger.Level.allCases.map(\.rawValue) }

    /// All of them, as a sentence has them.
    static var names: String {
        allValueStrings.dropLast().joined(separator: ", ") + " or " + (allValueStrings.last ?? "")
    }
}
