/// A configuration that cannot be used: everything that is wrong with it, so that one look mends it all.
struct ConfigurationError: Error, Equatable, CustomStringConvertible {
    /// Path of the file as it was named; empty when no file was read.
    let file: String
    /// At least one.
    let problems: [Problem]

    struct Problem: Error, Equatable {
        /// Line in the file, from 1; known only of what is no TOML.
        var line: Int?
        /// Full name such as `origins.default.timeout`; nil where the fault is not in a key.
        var key: String?
        /// What is wrong and what would be right.
        var sentence: String
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

    init(_ sentence: String) {
        self.sentence = sentence
    }
}
