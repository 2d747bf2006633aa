import NIOCore
@_spi(Wire) import Thumbcache

/// What an entry of the stream asks of every daemon.
package enum FleetCommand: Sendable, Hashable {
    /// - Parameter session: nil for every session.
    case logOut(ThumbcacheID, session: ThumbcacheID?)
    /// - Parameter profiles: none: all that the user has.
    case purge(ThumbcacheID, profiles: [ThumbcacheID])
    case logOutEverybody
    case purgeEverybody
}

/// Why an entry is no order. Says nothing of what stands in it, which may be ids.
package struct EntryError: Error, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}

/// The form of an entry, as fleet/docs/fleet.md has it.
///
/// What is not wholly understood is not done at all: an entry with a field that this version does not know may ask for
/// less than it seems to, or for more.
package enum FleetEntry {
    package static let longestID = 512
    package static let mostProfiles = 1_000

    private static let operation = "op"
    private static let user = "user"
    private static let session = "session"
    private static let profile = "profile"

    package static func order(_ fields: [(name: ByteBuffer, value: ByteBuffer)]) throws(EntryError) -> FleetCommand {
        var values: [String: [ByteBuffer]] = [:]
        for (name, value) in fields {
            let name = String(buffer: name)
            guard [operation, user, session, profile].contains(name) else { throw EntryError("has an unknown field") }
            values[name, default: []].append(value)
        }
        func one(_ name: String) throws(EntryError) -> ByteBuffer? {
            let all = values.removeValue(forKey: name) ?? []
            guard all.count <= 1 else { throw EntryError("has \(name) more than once") }
            return all.first
        }
        func takenUser() throws(EntryError) -> ThumbcacheID {
            guard let bytes = try one(user) else { throw EntryError("lacks \(user)") }
            let user = try id(bytes, Self.user)
            guard user.bytes != [UInt8(ascii: "*")] else { throw EntryError("has '*' as its user, which is nobody") }
            return user
        }
        guard let operation = try one(operation) else { throw EntryError("lacks \(operation)") }
        let order: FleetCommand
        switch String(buffer: operation) {
        case "logout":
            let session = try one(session)
            order = .logOut(
                try takenUser(),
                session: try session.map { bytes throws(EntryError) in
                    try id(bytes, Self.session)
                })
        case "purge":
            let profiles = values.removeValue(forKey: profile) ?? []
            guard profiles.count <= mostProfiles else { throw EntryError("has more than \(mostProfiles) profiles") }
            order = .purge(
                try takenUser(),
                profiles: try profiles.map { bytes throws(EntryError) in
                    try id(bytes, profile)
                })
        case "logout-all": order = .logOutEverybody
        case "purge-all": order = .purgeEverybody
        default: throw EntryError("has an unknown \(Self.operation)")
        }
        if let left = values.keys.sorted().first { throw EntryError("has a \(left), which its op does not take") }
        return order
    }

    private static func id(_ bytes: ByteBuffer, _ name: String) throws(EntryError) -> ThumbcacheID {
        guard 1...longestID ~= bytes.readableBytes else {
            throw EntryError("has a \(name) of \(bytes.readableBytes) bytes: expected 1 to \(longestID)")
        }
        return ThumbcacheID(bytes)
    }

    /// Whether relays would do it; whatever they would skip is not to be published.
    /// - Throws: why they would not.
    package static func check(_ order: FleetCommand) throws(EntryError) {
        let words = words(order)
        _ = try self.order(stride(from: 0, to: words.count, by: 2).map { (name: words[$0], value: words[$0 + 1]) })
    }

    /// The fields and values of an order, in turns, as XADD takes them.
    package static func words(_ order: FleetCommand) -> [ByteBuffer] {
        func text(_ words: String...) -> [ByteBuffer] { words.map(ByteBuffer.init(string:)) }
        switch order {
        case .logOut(let user, let session):
            return text(operation, "logout", Self.user) + [user.buffer]
                + (session.map { text(Self.session) + [$0.buffer] } ?? [])
        case .purge(let user, let profiles):
            return text(operation, "purge", Self.user) + [user.buffer]
                + profiles.flatMap { text(profile) + [$0.buffer] }
        case .logOutEverybody: return text(operation, "logout-all")
        case .purgeEverybody: return text(operation, "purge-all")
        }
    }
}
