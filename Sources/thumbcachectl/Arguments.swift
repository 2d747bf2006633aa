import ArgumentParser
import NIOCore
import ThumbcacheProtocol

/// The arguments of a request while they are put together.
struct RequestArguments {
    private(set) var buffers: [ByteBuffer]

    init(_ command: String, _ operands: String...) {
        buffers = [ByteBuffer(string: command)] + operands.map(ByteBuffer.init(string:))
    }

    mutating func append(_ operand: ByteBuffer) { buffers.append(operand) }
    mutating func append(_ operand: String) { buffers.append(ByteBuffer(string: operand)) }

    /// An option with its value; nothing where there is none.
    mutating func option(_ name: String, _ value: (some CustomStringConvertible)?) {
        guard let value else { return }
        append(name)
        append(value.description)
    }

    mutating func flag(_ name: String, _ isSet: Bool) {
        if isSet { append(name) }
    }
}

/// `*` stands for every user in the protocol. A shell puts it there too easily for it to mean that here.
func validate(user: String) throws {
    guard user != "*" else { throw ValidationError("'*' is no user; for all users there is --all") }
}

func validate(size: Int?) throws {
    if let size, !CommandLimits.size.contains(size) {
        let range = CommandLimits.size
        throw ValidationError(
            "--size \(size) is out of range: \(range.lowerBound) to \(range.upperBound) pixels can be")
    }
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
