public struct ConfigurationError: Error, Equatable, CustomStringConvertible {
    /// The path that was given; empty if no file was read.
    public let file: String
    /// At least one.
    public let problems: [Problem]

    /// - Parameter problems: if a line was repaired and its value is invalid, too, only the latter problem is kept.
    public init(file: String, problems: [Problem]) {
        self.file = file
        let ofValues = Set(problems.filter { $0.line == nil }.compactMap(\.key))
        let lines = problems.reduce(into: [String: Int]()) { lines, problem in
            if let key = problem.key, let line = problem.line { lines[key] = line }
        }
        self.problems = problems.filter { $0.line == nil || !ofValues.contains($0.key ?? "") }.map { problem in
            let line = problem.line ?? problem.key.flatMap { lines[$0] }
            return Problem(line: line, key: problem.key, sentence: problem.sentence)
        }.sorted { $0.line ?? .max < $1.line ?? .max }
    }

    public struct Problem: Error, Equatable {
        /// Line in the file, from 1; nil unless the line is not TOML.
        public var line: Int?
        /// Full key such as `origins.default.timeout`; nil if the problem concerns the file.
        public var key: String?
        /// The problem and what would be valid.
        public var sentence: String

        public init(line: Int? = nil, key: String?, sentence: String) {
            (self.line, self.key, self.sentence) = (line, key, sentence)
        }
    }

    /// One line for each problem: `FILE:LINE: KEY: SENTENCE`, without unknown parts.
    public var description: String {
        problems.map { problem in
            let line = problem.line.map { ":\($0)" } ?? ""
            return [(file.isEmpty ? "configuration" : file) + line, problem.key, problem.sentence].compactMap { $0 }
                .joined(separator: ": ")
        }.joined(separator: "\n")
    }
}
