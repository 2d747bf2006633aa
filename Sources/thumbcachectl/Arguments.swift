import ArgumentParser
import LinuxSupport
import NIOCore
import ThumbcacheProtocol

/// Arguments of a request.
func words(_ words: String...) -> [ByteBuffer] { words.map(ByteBuffer.init(string:)) }

/// An option with its value; nothing where there is none.
func option(_ name: String, _ value: (some CustomStringConvertible)?) -> [ByteBuffer] {
    value.map { words(name, $0.description) } ?? []
}

func flag(_ name: String, _ isSet: Bool) -> [ByteBuffer] { isSet ? words(name) : [] }

/// Reads a time in whole seconds, or with a unit as the configuration writes it.
/// - Returns: milliseconds.
func milliseconds(_ text: String) throws -> Int {
    if let seconds = Int(text) {
        let (product, overflow) = seconds.multipliedReportingOverflow(by: 1_000)
        if !overflow { return product }
    }
    guard let amount = Quantity.time.parse(text) else {
        throw ValidationError("write whole seconds, or a number with ms, s, m, h or d, as in 90, 90s or 1d")
    }
    return amount
}

/// The same, in seconds.
func seconds(_ text: String) throws -> Int {
    let amount = try milliseconds(text)
    guard amount % 1_000 == 0 else { throw ValidationError("write whole seconds, as in 1s instead of 1000ms") }
    return amount / 1_000
}

/// `*` stands for every user in the protocol. A shell puts it there too easily for it to mean that here.
func validate(user: String) throws {
    guard user != "*" else { throw ValidationError("'*' is no user; for all users there is --all") }
}

/// - Parameter unit: what the number counts.
func validate(_ option: String, _ value: Int?, in range: ClosedRange<Int>, _ unit: String) throws {
    guard let value, !range.contains(value) else { return }
    throw ValidationError(
        "--\(option) \(value) is out of range: valid values are \(range.lowerBound) to \(range.upperBound) \(unit)")
}

/// A user, or all.
func validate(user: String?, all: Bool) throws {
    switch (user, all) {
    case (nil, false): throw ValidationError("name a user, or all with --all")
    case (_?, true): throw ValidationError("--all is everybody: no user can be named beside it")
    case (let user?, false): try validate(user: user)
    case (nil, true): break
    }
}
