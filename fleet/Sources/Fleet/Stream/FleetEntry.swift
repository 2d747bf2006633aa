import NIOCore
@_spi(Wire) import Thumbcache

/// A command for every daemon of the fleet.
package enum FleetCommand: Sendable, Hashable {
    /// - Parameter session: nil for every session.
    case logOut(ThumbcacheID, session: ThumbcacheID?)
    /// - Parameter profiles: empty for all of the user's images.
    case purge(ThumbcacheID, profiles: [ThumbcacheID])
    case logOutAll
    case purgeAll
}

/// An invalid entry. The description contains no values, which may be ids.
package struct EntryError: Error, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}

/// Encodes and decodes stream entries; fleet/docs/fleet.md specifies the format.
///
/// An entry with an unknown field is rejected as a whole: the field could narrow or widen the command.
package enum FleetEntry {
    package static let longestID = 512
    package static let mostProfiles = 1_000

    private static let operation = "op"
    private static let user = "user"
    private static let session = "session"
    private static let profile = "profile"

    package static func command(_ fields: [(name: ByteBuffer, value: ByteBuffer)]) throws(EntryError) -> FleetCommand {
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
        func requiredUser() throws(EntryError) -> ThumbcacheID {
            guard let bytes = try one(user) else { throw EntryError("lacks \(user)") }
            let user = try id(bytes, Self.user)
            guard user.bytes != [UInt8(ascii: "*")] else { throw EntryError("has the invalid user '*'") }
            return user
        }
        guard let operation = try one(operation) else { throw EntryError("lacks \(operation)") }
        let command: FleetCommand
        switch String(buffer: operation) {
        case "logout":
            let session = try one(session)
            command = .logOut(
                try requiredUser(),
                session: try session.map { bytes throws(EntryError) in
                    try id(bytes, Self.session)
                })
        case "purge":
            let profiles = values.removeValue(forKey: profile) ?? []
            guard profiles.count <= mostProfiles else { throw EntryError("has more than \(mostProfiles) profiles") }
            command = .purge(
                try requiredUser(),
                profiles: try profiles.map { bytes throws(EntryError) in
                    try id(bytes, profile)
                })
        case "logout-all": command = .logOutAll
        case "purge-all": command = .purgeAll
        default: throw EntryError("has an unknown \(Self.operation)")
        }
        if let left = values.keys.sorted().first { throw EntryError("has a \(left), which its op does not allow") }
        return command
    }

    private static func id(_ bytes: ByteBuffer, _ name: String) throws(EntryError) -> ThumbcacheID {
        guard 1...longestID ~= bytes.readableBytes else {
            throw EntryError("has a \(name) of \(bytes.readableBytes) bytes: expected 1 to \(longestID)")
        }
        return ThumbcacheID(bytes)
    }

    /// Throws if relays would skip the command's entry, which must then not be published.
    package static func check(_ command: FleetCommand) throws(EntryError) {
        let words = words(command)
        _ = try self.command(stride(from: 0, to: words.count, by: 2).map { (name: words[$0], value: words[$0 + 1]) })
    }

    /// The alternating fields and values of a command, as XADD expects them.
    package static func words(_ command: FleetCommand) -> [ByteBuffer] {
        func text(_ words: String...) -> [ByteBuffer] { words.map(ByteBuffer.init(string:)) }
        switch command {
        case .logOut(let user, let session):
            return text(operation, "logout", Self.user) + [user.buffer]
                + (session.map { text(Self.session) + [$0.buffer] } ?? [])
        case .purge(let user, let profiles):
            return text(operation, "purge", Self.user) + [user.buffer]
                + profiles.flatMap { text(profile) + [$0.buffer] }
        case .logOutAll: return text(operation, "logout-all")
        case .purgeAll: return text(operation, "purge-all")
        }
    }
}
