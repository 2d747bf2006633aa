import Glibc
import HelperProtocol
import LinuxSupport
import NIOCore

/// The message that a fetcher waits for before it does anything.
enum FirstMessage {
    /// Milliseconds. The daemon says it as soon as it has connected.
    private static var patience: CInt { 10_000 }

    /// Reads that one and no byte of the next. Blocks.
    static func read(from connection: CInt) throws -> ByteBuffer {
        var fields: ByteBuffer?
        var assembler = MessageAssembler(longestBody: 0)
        while fields == nil {
            var piece = ByteBuffer()
            let missing = try assembler.missing
            let count = try piece.writeWithUnsafeMutableBytes(minimumWritableBytes: missing) { room in
                var poll = pollfd(fd: connection, events: Int16(POLLIN), revents: 0)
                guard Glibc.poll(&poll, 1, patience) > 0 else {
                    throw SystemError("wait for the daemon's settings", code: ETIMEDOUT)
                }
                return try retryingInterrupts("read the daemon's settings") {
                    recv(connection, room.baseAddress, missing, 0)
                }
            }
            guard count > 0 else { _exit(0) }
            try assembler.receive(piece) { lent, _ throws(MessageError) in
                fields = ByteBuffer(bytes: lent.readableBytesView)
            }
        }
        return fields ?? ByteBuffer()
    }
}
