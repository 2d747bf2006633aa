import NIOCore
import ThumbcacheProtocol

extension ThumbcacheCommands {
    /// Opens a user's cache: nothing is kept of a user before. It stays open until log-out, also across a restart of
    /// the daemon. No change where it is open.
    /// - Parameters:
    ///   - session: a name by which this log-in can end alone; the cache ends with the last.
    ///   - origin: from which of the daemon's origins to download. An open cache cannot get another.
    ///   - token: for the downloads.
    ///   - refreshToken: with which the daemon renews the token.
    public func logIn(
        _ user: ThumbcacheID, session: ThumbcacheID? = nil, origin: String? = nil, token: String? = nil,
        refreshToken: String? = nil
    ) async throws(ThumbcacheError) {
        let request = try ThumbcacheRequest.logIn(user, session, origin, token, refreshToken, holds: false)
        try await reply(to: request).value.expectingOK()
    }

    /// Ends a user's cache, or one session of it. When this returns, nothing of it is ever served again. A user who is
    /// not logged in is no error.
    /// - Parameters:
    ///   - session: this one alone; the cache ends with the last.
    ///   - uid: of another account, for admins.
    public func logOut(
        _ user: ThumbcacheID, session: ThumbcacheID? = nil, uid: UInt32? = nil
    ) async throws(ThumbcacheError) -> Receipt {
        var request = ThumbcacheRequest("LOGOUT", try user.asUser)
        request.append("SESSION", session)
        request.append("UID", uid)
        request.change = .of(user)
        return try Receipt(try await reply(to: request).value)
    }

    /// Ends the caches of every user of the uid.
    /// - Parameter uid: of another account, for admins.
    public func logOutAll(uid: UInt32? = nil) async throws(ThumbcacheError) -> Receipt {
        var request = ThumbcacheRequest("LOGOUT", "*")
        request.append("UID", uid)
        request.change = .ofEverybody
        return try Receipt(try await reply(to: request).value)
    }

    /// Ends a user's caches, or one session of each, in every uid of the machine; only for admins. The receipt adds up
    /// what each uid had. When it throws, some may have ended; asking again is harmless.
    public func logOutInEveryUID(
        _ user: ThumbcacheID, session: ThumbcacheID? = nil
    ) async throws(ThumbcacheError) -> Receipt {
        var request = ThumbcacheRequest("LOGOUT", try user.asUser)
        request.append("SESSION", session)
        request.append("UID", "*")
        request.change = .of(user)
        return try Receipt(try await reply(to: request).value)
    }

    /// Ends the caches of every user of every uid; only for admins.
    public func logOutEverybody() async throws(ThumbcacheError) -> Receipt {
        var request = ThumbcacheRequest("LOGOUT", "*")
        request.append("UID", "*")
        request.change = .ofEverybody
        return try Receipt(try await reply(to: request).value)
    }

    /// Removes a user's images, or those of some profiles, in every size. The user stays logged in.
    /// - Parameters:
    ///   - profiles: whose; nil for everybody's. An empty list is refused: who has nobody to name means nobody.
    ///   - uid: of another account, for admins.
    public func purge(
        _ user: ThumbcacheID, profiles: [ThumbcacheID]? = nil, uid: UInt32? = nil
    ) async throws(ThumbcacheError) -> Receipt {
        var request = try ThumbcacheRequest.purge(user, profiles)
        request.append("UID", uid)
        return try Receipt(try await reply(to: request).value)
    }

    /// Removes the images of every user of the uid.
    /// - Parameter uid: of another account, for admins.
    public func purgeAll(uid: UInt32? = nil) async throws(ThumbcacheError) -> Receipt {
        var request = ThumbcacheRequest("PURGE", "*")
        request.append("UID", uid)
        request.change = .ofEverybody
        return try Receipt(try await reply(to: request).value)
    }

    /// Removes a user's images, or those of some profiles, in every uid of the machine; only for admins. As
    /// ``logOutInEveryUID(_:session:)`` otherwise.
    public func purgeInEveryUID(
        _ user: ThumbcacheID, profiles: [ThumbcacheID]? = nil
    ) async throws(ThumbcacheError) -> Receipt {
        var request = try ThumbcacheRequest.purge(user, profiles)
        request.append("UID", "*")
        return try Receipt(try await reply(to: request).value)
    }

    /// Removes the images of every user of every uid; only for admins.
    public func purgeEverybody() async throws(ThumbcacheError) -> Receipt {
        var request = ThumbcacheRequest("PURGE", "*")
        request.append("UID", "*")
        request.change = .ofEverybody
        return try Receipt(try await reply(to: request).value)
    }

    /// The users of the caller's uid that are logged in.
    public func users() async throws(ThumbcacheError) -> [ThumbcacheID] {
        let value = try await reply(to: ThumbcacheRequest("USERS")).value
        guard let elements = value.elements else { throw .protocolViolation("USERS was answered by no array") }
        return elements.compactMap { $0.bytes.map(ThumbcacheID.init) }
    }

    /// What is held of a user; nil where the user is not logged in.
    public func stat(_ user: ThumbcacheID) async throws(ThumbcacheError) -> UserStatus? {
        let value = try await reply(to: ThumbcacheRequest("STAT", try user.asUser)).value
        return value.isNull ? nil : try UserStatus(value)
    }
}

extension ThumbcacheRequest {
    static func purge(
        _ user: ThumbcacheID, _ profiles: [ThumbcacheID]?
    ) throws(ThumbcacheError) -> ThumbcacheRequest {
        var request = ThumbcacheRequest("PURGE", try user.asUser)
        if profiles?.isEmpty == true {
            throw .invalidRequest("a purge of no profiles: name some, or leave the list out to purge all")
        }
        if let profiles { request.append(counted: profiles) }
        request.change =
            if let profiles, profiles.count == 1 { .gone(user, profile: profiles[0]) } else { .of(user) }
        return request
    }

    static func logIn(
        _ user: ThumbcacheID, _ session: ThumbcacheID?, _ origin: String?, _ token: String?, _ refreshToken: String?,
        holds: Bool
    ) throws(ThumbcacheError) -> ThumbcacheRequest {
        var request = ThumbcacheRequest("LOGIN", try user.asUser)
        request.append("SESSION", session)
        if holds { request.append("HOLD") }
        request.append("ORIGIN", origin)
        request.append("TOKEN", token)
        request.append("REFRESH", refreshToken)
        return request
    }

    /// A list carries its count, since an id may look like an option.
    mutating func append(counted ids: [ThumbcacheID]) {
        append("\(ids.count)")
        for id in ids { append(id) }
    }
}
