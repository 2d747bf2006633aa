import ArgumentParser
import LinuxSupport
import NIOCore
import ThumbcacheProtocol

func words(_ words: String...) -> [ByteBuffer] { words.map(ByteBuffer.init(string:)) }

func option(_ name: String, _ value: (some CustomStringConvertible)?) -> [ByteBuffer] {
    value.map { words(name, $0.description) } ?? []
}

func flag(_ name: String, _ isSet: Bool) -> [ByteBuffer] { isSet ? words(name) : [] }

/// Parses whole seconds, or a number with a unit as in the configuration file. Returns milliseconds.
func milliseconds(_ text: String) throws -> Int {
    if let seconds = Int(text) {
        let (product, overflow) = seconds.multipliedReportingOverflow(by: 1_000)
        if !overflow { return product }
    }
    guard let amount = Quantity.time.parse(text) else {
        throw ValidationError("expected whole seconds, or a number with ms, s, m, h or d, such as 90, 90s or 1d")
    }
    return amount
}

/// Parses like ``milliseconds(_:)`` and rejects fractions of a second.
func seconds(_ text: String) throws -> Int {
    let amount = try milliseconds(text)
    guard amount % 1_000 == 0 else { throw ValidationError("expected whole seconds, such as 1s instead of 1000ms") }
    return amount / 1_000
}

/// Rejects `*`, which means every user in the protocol and which a shell can insert by accident.
func validate(user: String) throws {
    guard user != "*" else { throw ValidationError("'*' is not a valid user; use --all for all users") }
}

func validate(_ option: String, _ value: Int?, in range: ClosedRange<Int>, _ unit: String) throws {
    guard let value, !range.contains(value) else { return }
    throw ValidationError(
        "--\(option) \(value) is out of range: valid values are \(range.lowerBound) to \(range.upperBound) \(unit)")
}

func validate(user: String?, all: Bool) throws {
    switch (user, all) {
    case (nil, false): throw ValidationError("missing user; name one, or use --all for all users")
    case (_?, true): throw ValidationError("--all cannot be combined with a user")
    case (let user?, false): try validate(user: user)
    case (nil, true): break
    }
}
