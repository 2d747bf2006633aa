/// The version of the protocol that a connection speaks: 2 from the first byte, 3 after `HELLO 3`.
public enum RESPVersion: Int, Sendable, CaseIterable {
    case two = 2
    case three = 3
}

/// What stands in the place of the null. Version 2 has one null for each; version 3 has one for all.
public enum NullKind: Sendable {
    case bulk
    case array

    public static let map = NullKind.array
}
