import TOMLKit

/// A value of a TOML document, with the line its key stands on.
///
/// A tree of our own, because TOMLKit's decoder reports a wrong type as a missing key, traps on integers
/// that do not fit, and forgets where a value stood.
struct TOMLNode: Equatable, Sendable {
    enum Value: Equatable, Sendable {
        case table([String: TOMLNode])
        case array([TOMLNode])
        case string(String)
        case integer(Int)
        case float(Double)
        case boolean(Bool)
        /// A date, a time or both: no key takes one.
        case date
    }

    let value: Value
    /// From 1.
    let line: Int?

    /// The type in words, with its article.
    var typeName: String {
        switch value {
        case .table: "a table"
        case .array: "a list"
        case .string: "a string"
        case .integer: "an integer"
        case .float: "a decimal number"
        case .boolean: "true or false"
        case .date: "a date"
        }
    }
}

extension TOMLNode {
    /// Parses a whole document. Throws a problem with the line where it can.
    static func parse(_ text: String) throws(ConfigurationError.Problem) -> [String: TOMLNode] {
        // TOMLKit hands strings through C: what follows a NUL would silently be ignored.
        if let line = lineOfNUL(in: text) {
            throw .init(line: line, key: nil, sentence: "a NUL character cannot be part of a configuration")
        }
        let lines = try TOMLLines(text)
        let table: TOMLTable
        do {
            table = try TOMLTable(string: text)
        } catch let error as TOMLParseError {
            throw .init(line: error.source.begin.line, key: nil, sentence: "not TOML: \(oneLine(error.description))")
        } catch {
            throw .init(line: nil, key: nil, sentence: "not TOML: \(error)")
        }
        return convert(table, path: [], lines: lines)
    }

    private static func lineOfNUL(in text: String) -> Int? {
        for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated()
        where line.utf8.contains(0) || line.contains("\\u0000") || line.contains("\\U00000000") {
            return index + 1
        }
        return nil
    }

    private static func convert(_ table: TOMLTable, path: [String], lines: TOMLLines) -> [String: TOMLNode] {
        var nodes: [String: TOMLNode] = [:]
        for key in table.keys {
            guard let value = table[key] else { continue }
            nodes[key] = convert(value, path: path + [key], lines: lines)
        }
        return nodes
    }

    private static func convert(_ value: any TOMLValueConvertible, path: [String], lines: TOMLLines) -> TOMLNode {
        let line = lines[path]
        if let table = value.table {
            return TOMLNode(value: .table(convert(table, path: path, lines: lines)), line: line)
        }
        if let array = value.array {
            let elements = (0..<array.count).map { index in
                convert(array[index], path: path + ["[\(index)]"], lines: lines)
            }
            return TOMLNode(value: .array(elements), line: line)
        }
        if let string = value.string { return TOMLNode(value: .string(string), line: line) }
        if let integer = value.int { return TOMLNode(value: .integer(integer), line: line) }
        if let boolean = value.bool { return TOMLNode(value: .boolean(boolean), line: line) }
        if let float = value.double { return TOMLNode(value: .float(float), line: line) }
        return TOMLNode(value: .date, line: line)
    }
}
