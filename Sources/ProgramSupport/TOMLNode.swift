import TOMLKit
import ThumbcacheProtocol

/// A value of a TOML document.
///
/// TOMLKit's decoder is not used: it reports a wrong type as a missing key and traps on integers that do not fit.
public enum TOMLNode: Equatable, Sendable {
    case table([String: TOMLNode])
    case array([TOMLNode])
    case string(String)
    case integer(Int)
    case float(Double)
    case boolean(Bool)
    /// A date, a time or both. No key accepts one.
    case date

    /// The type's name with its article, for messages.
    public var typeName: String {
        switch self {
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
    /// Parses a whole document. Errors have a line if the parser reports one.
    public static func parse(_ text: String) throws(ConfigurationError.Problem) -> [String: TOMLNode] {
        // TOMLKit passes C strings, so text after a NUL would silently be ignored.
        if let line = lineOfNUL(in: text) {
            throw .init(line: line, key: nil, sentence: "a configuration cannot contain a NUL character")
        }
        try TOMLGuard.check(text)
        let table: TOMLTable
        do {
            table = try TOMLTable(string: text)
        } catch let error as TOMLParseError {
            throw .init(line: error.source.begin.line, key: nil, sentence: "not TOML: \(oneLine(error.description))")
        } catch {
            throw .init(line: nil, key: nil, sentence: "not TOML: \(error)")
        }
        return convert(table)
    }

    private static func lineOfNUL(in text: String) -> Int? {
        text.split(separator: "\n", omittingEmptySubsequences: false).firstIndex { line in
            line.utf8.contains(0) || line.contains("\\u0000") || line.contains("\\U00000000")
        }.map { $0 + 1 }
    }

    private static func convert(_ table: TOMLTable) -> [String: TOMLNode] {
        var nodes: [String: TOMLNode] = [:]
        for key in table.keys {
            if let value = table[key] { nodes[key] = convert(value) }
        }
        return nodes
    }

    private static func convert(_ value: any TOMLValueConvertible) -> TOMLNode {
        if let table = value.table { return .table(convert(table)) }
        if let array = value.array { return .array((0..<array.count).map { convert(array[$0]) }) }
        if let string = value.string { return .string(string) }
        if let integer = value.int { return .integer(integer) }
        if let boolean = value.bool { return .boolean(boolean) }
        if let float = value.double { return .float(float) }
        return .date
    }
}
