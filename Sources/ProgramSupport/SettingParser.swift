import Glibc
import LinuxSupport

/// Reads the value of a key, or throws an error that states what would be valid.
public struct SettingParser<Value>: Sendable {
    public let read: @Sendable (TOMLNode) throws(SettingError) -> Value
    /// Conversions of a number, which can be bounded by another one; nil for other values.
    public var number: Number?
    /// Returns a warning about a valid value; nil for none.
    public var caution: @Sendable (TOMLNode) -> String? = { _ in nil }

    public init(
        read: @escaping @Sendable (TOMLNode) throws(SettingError) -> Value, number: Number? = nil
    ) {
        (self.read, self.number) = (read, number)
    }

    public struct Number: Sendable {
        public let amount: @Sendable (Value) -> Int
        public let value: @Sendable (Int) -> Value
        public let text: @Sendable (Int) -> String
    }

    /// Adds a check, which returns the error of an invalid value.
    public func checked(_ check: @escaping @Sendable (Value) -> String?) -> SettingParser {
        map { value throws(SettingError) in
            if let sentence = check(value) { throw SettingError(sentence) }
            return value
        }
    }

    public func map<Other>(
        _ transform: @escaping @Sendable (Value) throws(SettingError) -> Other
    ) -> SettingParser<Other> {
        SettingParser<Other> { node throws(SettingError) in try transform(try read(node)) }
    }

    /// A parser for a property whose default is nil.
    public func optional() -> SettingParser<Value?> { map { value throws(SettingError) in value } }
}

extension SettingParser where Value: FixedWidthInteger & Sendable {
    private static func number(
        _ text: @escaping @Sendable (Int) -> String, _ read: @escaping @Sendable (TOMLNode) throws(SettingError) -> Int
    ) -> Self {
        Self(
            read: { node throws(SettingError) in Value(clamping: try read(node)) },
            number: Number(amount: { Int(clamping: $0) }, value: { Value(clamping: $0) }, text: text))
    }

    public static func count(_ range: ClosedRange<Int>) -> Self {
        number({ "\($0)" }) { node throws(SettingError) in
            guard case .integer(let value) = node else {
                throw SettingError(
                    "is \(node.typeName); write a whole number without quotes, as in \(range.lowerBound)")
            }
            guard range.contains(value) else {
                let fault = value < 0 && range.lowerBound >= 0 ? "is negative" : "is out of range"
                throw SettingError("\(value) \(fault): valid values are \(range.lowerBound) to \(range.upperBound)")
            }
            return value
        }
    }

    /// Bytes.
    public static func size(_ range: ClosedRange<Int>, zero isZeroAllowed: Bool = false) -> Self {
        quantity(.size, range, zero: isZeroAllowed)
    }

    /// Milliseconds.
    public static func time(_ range: ClosedRange<Int>) -> Self { quantity(.time, range) }

    private static func quantity(
        _ quantity: Quantity, _ range: ClosedRange<Int>, zero isZeroAllowed: Bool = false
    ) -> Self {
        number(quantity.format) { node throws(SettingError) in
            let expected = "a \(quantity.name) in quotes with its unit, as in \"\(quantity.example)\""
            if case .integer(let number) = node {
                throw SettingError("\(number) \(number < 0 ? "is negative and " : "")has no unit; write \(expected)")
            }
            let text = try string(node, as: expected)
            guard let amount = quantity.parse(text) else {
                let units = "\(quantity.unitNames), as in \"\(quantity.example)\""
                let fault = text.hasPrefix("-") ? "negative" : "not a valid \(quantity.name)"
                throw SettingError("\(quoted(text)) is \(fault): write a whole number with \(units)")
            }
            if amount == 0, isZeroAllowed { return 0 }
            guard amount >= range.lowerBound else {
                let least = quantity.format(range.lowerBound) + (isZeroAllowed ? ", or \"0\" for none" : "")
                throw SettingError("\(quoted(text)) is too \(quantity.tooLittle): at least \(least)")
            }
            guard amount <= range.upperBound else {
                let most = quantity.format(range.upperBound)
                throw SettingError("\(quoted(text)) is too \(quantity.tooMuch): at most \(most)")
            }
            return amount
        }
    }

    /// Whole seconds, from 0 to ten years.
    public static var seconds: Self {
        var seconds: Self = SettingParser<Int>.time(0...3650 * 86_400_000).map { value throws(SettingError) in
            guard value % 1000 == 0 else {
                throw SettingError("\"\(Quantity.time.format(value))\" is not a whole number of seconds")
            }
            return Value(clamping: value / 1000)
        }
        seconds.number = Number(
            amount: { Int(clamping: $0) }, value: { Value(clamping: $0) }, text: { Quantity.time.format($0 * 1000) })
        return seconds
    }
}

extension SettingParser<Bool> {
    public static var flag: Self {
        Self { node throws(SettingError) in
            guard case .boolean(let value) = node else {
                throw SettingError("is \(node.typeName); write true or false, without quotes")
            }
            return value
        }
    }
}

extension SettingParser<String> {
    public static var text: Self {
        Self { node throws(SettingError) in try string(node, as: "a text in quotes") }
    }

    /// An absolute path; with `orNone` it may be empty.
    public static func path(orNone mayBeEmpty: Bool = false) -> Self {
        Self { node throws(SettingError) in
            let path = try string(node, as: "a path in quotes")
            if path.utf8.first == UInt8(ascii: "/") || path.isEmpty && mayBeEmpty { return path }
            let orNone = mayBeEmpty ? ", or be \"\" for none" : ""
            throw SettingError("\(quoted(path)) is not an absolute path: it must begin with /\(orNone)")
        }
    }

    /// An http or https URL with a host. Messages omit it, since it may contain a password.
    public static var webURL: Self { url(["http://", "https://"], "http:// or https://") }

    /// The same, also with LDAP.
    public static var originURL: Self {
        url(["http://", "https://", "ldap://", "ldaps://"], "http://, https://, ldap:// or ldaps://")
    }

    private static func url(_ schemes: [String], _ valid: String) -> Self {
        text.checked { url in
            for scheme in schemes where url.lowercased().hasPrefix(scheme) {
                if let next = url.dropFirst(scheme.count).first, !"/?#".contains(next) { return nil }
            }
            return "is not a URL that begins with \(valid) and names a host"
        }
    }
}

extension SettingParser<Secret?> {
    /// The secret in a file, without a final line break. Errors contain nothing of the file.
    public static var secretFile: Self {
        var kind = secretInFile
        kind.caution = { node in
            var status = stat()
            guard case .string(let path) = node, stat(path, &status) == 0, status.st_mode & 0o004 != 0 else {
                return nil
            }
            return "\(quoted(path)) contains a secret and every account can read it; run chmod o-rwx on the file"
        }
        return kind
    }

    private static var secretInFile: Self {
        SettingParser<String>.path().map { path throws(SettingError) in
            var bytes: [UInt8]
            do throws(PlainFileError) {
                // A larger file is not a client secret.
                bytes = try readPlainFile(path, limit: 4 << 10)
            } catch {
                throw SettingError("\(quoted(path)) \(error)")
            }
            defer { bytes.wipe() }
            let secret = bytes.withoutLineBreak
            guard !secret.isEmpty else {
                throw SettingError("\(quoted(path)) is empty; it must contain the secret")
            }
            guard !secret.contains(where: { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: "\r") }) else {
                throw SettingError("\(quoted(path)) has several lines; it must contain only the secret, on one line")
            }
            return Secret(secret)
        }
    }
}

extension SettingParser where Value: CaseIterable & RawRepresentable & Sendable, Value.RawValue == String {
    /// One of the enumeration's words.
    public static var word: Self {
        Self { node throws(SettingError) in
            let list = Value.allCases.map { "\"\($0.rawValue)\"" }.joined(separator: ", ")
            let text = try string(node, as: "one of \(list)")
            if let match = Value(rawValue: text) { return match }
            let meant = closestWord(to: text.lowercased(), among: Value.allCases.map(\.rawValue))
            throw SettingError(
                "\(quoted(text)) is not one of \(list)" + (meant.map { "; did you mean \"\($0)\"?" } ?? ""))
        }
    }
}

extension SettingParser {
    public static func list<Element>(of element: SettingParser<Element>, such example: String) -> SettingParser
    where Value == [Element] {
        SettingParser { node throws(SettingError) in
            guard case .array(let nodes) = node else {
                throw SettingError("is \(node.typeName); write a list, as in \(example)")
            }
            var values: [Element] = []
            var flaws: [SettingError.Flaw] = []
            for (index, node) in nodes.enumerated() {
                do throws(SettingError) {
                    values.append(try element.read(node))
                } catch {
                    flaws += error.flaws.map { .init($0.sentence, keySuffix: "[\(index)]" + $0.keySuffix) }
                }
            }
            guard flaws.isEmpty else { throw SettingError(flaws) }
            return values
        }
    }
}

private func string(_ node: TOMLNode, as expected: String) throws(SettingError) -> String {
    guard case .string(let text) = node else { throw SettingError("is \(node.typeName); write \(expected)") }
    return text
}
