import NIOConcurrencyHelpers
import NIOCore

/// The users of a uid that were logged in at one moment, and the reply that says so.
public final class UserList: Sendable {
    public let users: [OpaqueID]
    private let memory: MemoryLease
    private let kept = NIOLockedValueBox<ByteBuffer?>(nil)

    /// - Parameter memory: what is kept counts there.
    init(_ users: [OpaqueID], _ memory: MemoryLease) {
        self.users = users
        self.memory = memory
    }

    /// What `render` made of the users when this was first asked for: it costs microseconds for each ten of them, and one uid can have
    /// ten thousand, and ask again and again. Kept if the uid has room for it.
    public func reply(_ render: ([OpaqueID]) -> ByteBuffer) -> ByteBuffer {
        kept.withLockedValue { kept in
            if let kept { return kept }
            let reply = render(users)
            if memory.take(reply.storageCapacity) { kept = reply }
            return reply
        }
    }
}
