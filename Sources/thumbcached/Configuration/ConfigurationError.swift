/// A configuration that cannot be used: everything that is wrong with it, so that one look mends it all.
struct ConfigurationError: Error, Equatable, CustomStringConvertible {
    /// Path of the file as it was named; empty when no file was read.
    let file: String
    /// At least one, in the order of their lines.
    let problems: [Problem]

    struct Problem: Error, Equatable {
        /// Line in the file, from 1; nil where the fault is not on a line.
        var line: Int?
        /// Full name such as `origins.default.timeout`; nil where the fault is not in a key.
        var key: String?
        /// What is wrong and what would be right.
        var sentence: String
    }

    init(file: String, problems: [Problem]) {
        self.file = file
        self.problems = problems.enumerated()
            .sorted { ($0.element.line ?? 0, $0.offset) < ($1.element.line ?? 0, $1.offset) }
            .map(\.element)
    }

    /// One line for each problem: `FILE:LINE: KEY: SENTENCE`, without the parts that are not known.
    var description: String {
        problems.map { problem in
            var place = file.isEmpty ? "configuration" : file
            if let line = problem.line { place += ":\(line)" }
            return [place, problem.key, problem.sentence].compactMap { $0 }.joined(separator: ": ")
        }.joined(separator: "\n")
    }
}

/// What a value has against it. Whoever knows the key and the file makes a ``ConfigurationError/Problem`` of it.
struct SettingError: Error, Equatable {
    let sentence: String
    /// What to add to the key's name: `[2]` for the third element of a list.
    var keySuffix = ""
    /// A line closer to the fault than that of the key.
    var line: Int?

    init(_ sentence: String) {
        self.sentence = sentence
    }
}
