import NIOCore
import Testing

@testable import ThumbcacheProtocol

extension Request {
    /// Makes a request of these arguments.
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

/// Parses a request of these arguments.
func parse(_ arguments: [String], limits: RequestLimits = RequestLimits()) throws(CommandError) -> Command {
    try Command(Request(arguments.map { ByteBuffer(string: $0) }), limits: limits)
}

/// Parses a line whose words are the arguments.
func parse(_ line: String) throws(CommandError) -> Command {
    try parse(line.split(separator: " ").map(String.init))
}

/// Returns the error for a request of these arguments; nil if it is valid.
func refusal(_ arguments: [String], limits: RequestLimits = RequestLimits()) -> CommandError? {
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

/// Returns a copy of a command with modified properties.
func with<Value>(_ value: Value, _ change: (inout Value) -> Void) -> Value {
    var value = value
    change(&value)
    return value
}
