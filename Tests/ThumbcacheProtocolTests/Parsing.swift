import NIOCore
import Testing

@testable import ThumbcacheProtocol

extension Request {
    /// A request of these arguments, with no lines between them.
    init(_ arguments: [ByteBuffer]) {
        var frame = ByteBuffer()
        var list = ArgumentList()
        for argument in arguments {
            list.append(ArgumentSpan(offset: frame.readableBytes, length: argument.readableBytes))
            frame.writeImmutableBuffer(argument)
        }
        self.init(frame: frame, arguments: list)
    }
}

/// The command that a request of these arguments is.
func parse(_ arguments: [String], limits: CommandLimits = CommandLimits()) throws(CommandError) -> Command {
    try Command(Request(arguments.map { ByteBuffer(string: $0) }), limits: limits)
}

/// The command of a line whose words are the arguments.
func parse(_ line: String) throws(CommandError) -> Command {
    try parse(line.split(separator: " ").map(String.init))
}

/// Why a request of these arguments is no command; nil when it is one.
func refusal(_ arguments: [String], limits: CommandLimits = CommandLimits()) -> CommandError? {
    do throws(CommandError) {
        _ = try parse(arguments, limits: limits)
        return nil
    } catch {
        return error
    }
}

func refusal(_ line: String) -> CommandError? {
    refusal(line.split(separator: " ").map(String.init))
}

func bytes(_ text: String) -> ByteBuffer {
    ByteBuffer(string: text)
}

/// A command with some of its properties set.
func with<Value>(_ value: Value, _ change: (inout Value) -> Void) -> Value {
    var value = value
    change(&value)
    return value
}
