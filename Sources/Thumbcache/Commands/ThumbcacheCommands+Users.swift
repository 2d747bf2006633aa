import NIOCore
import ThumbcacheProtocol

extension ThumbcacheCommands {
    /// Opens a user's cache. Before, nothing of the user is stored. The cache stays open until logout, also across
    /// restarts of the daemon. Has no effect if the cache is open.
    /// - Parameters:
    ///   - session: the name of this session, so that it can be logged out alone; the cache ends with the last session.
    ///   - origin: the name of an origin in the daemon's configuration. An open cache cannot change its origin.
    ///   - token: the access token for downloads.
    ///   - refreshToken: the token with which the daemon renews the access token.
    public func logIn(
        _ user: ThumbcacheID, session: ThumbcacheID? = nil, origin: String? = nil, token: String? = nil,
        refreshToken: String? = nil
    ) async throws(ThumbcacheError) {
        let request = try ThumbcacheRequest.logIn(user, session, origin, token, refreshToken, holds: false)
        try await reply(to: request).value.expectingOK()
    }

    /// Ends a user's cache, or one session of it. After it returns, nothing of an ended cache is served again. Succeeds
    /// if the user is not logged in.
    /// - Parameters:
    ///   - session: the session to end; the cache ends with the last one. Default: all sessions.
    ///   - uid: another uid; admins only.
    public func logOut(
        _ user: ThumbcacheID, session: ThumbcacheID? = nil, uid: UInt32? = nil
    ) async throws(ThumbcacheError) -> Receipt {
        var request = ThumbcacheRequest("LOGOUT", try user.asUser)
        request.append("SESSION", session)
        request.append("UID", uid)
        request.change = .of(user)
        return try Receipt(try await reply(to: request).value)
    }

    /// Ends the caches of all users of the uid.
    /// - Parameter uid: another uid; admins only.
    public func logOutAll(uid: UInt32? = nil) async throws(ThumbcacheError) -> Receipt {
        var request = ThumbcacheRequest("LOGOUT", "*")
        request.append("UID", uid)
        request.change = .all
        return try Receipt(try await reply(to: request).value)
    }

    /// Ends the caches of a user name, or one session of each, under every uid; admins only. The receipt contains the
    /// totals. If it throws, some caches may have ended; retrying is safe.
    public func logOutInEveryUID(
        _ user: ThumbcacheID, session: ThumbcacheID? = nil
    ) async throws(ThumbcacheError) -> Receipt {
        var request = ThumbcacheRequest("LOGOUT", try user.asUser)
        request.append("SESSION", session)
        request.append("UID", "*")
        request.change = .of(user)
        return try Receipt(try await reply(to: request).value)
    }

    /// Ends the caches of all users of all uids; admins only.
    public func logOutAllUsers() async throws(ThumbcacheError) -> Receipt {
        var request = ThumbcacheRequest("LOGOUT", "*")
        request.append("UID", "*")
        request.change = .all
        return try Receipt(try await reply(to: request).value)
    }

    /// Removes all images of a user, or those of some profiles in every size. The user stays logged in.
    /// - Parameters:
    ///   - profiles: the profiles to purge; nil for all. An empty list throws ``ThumbcacheError/invalidRequest(_:)``.
    ///   - uid: another uid; admins only.
    public func purge(
        _ user: ThumbcacheID, profiles: [ThumbcacheID]? = nil, uid: UInt32? = nil
    ) async throws(ThumbcacheError) -> Receipt {
        var request = try ThumbcacheRequest.purge(user, profiles)
        request.append("UID", uid)
        return try Receipt(try await reply(to: request).value)
    }

    /// Removes the images of all users of the uid.
    /// - Parameter uid: another uid; admins only.
    public func purgeAll(uid: UInt32? = nil) async throws(ThumbcacheError) -> Receipt {
        var request = ThumbcacheRequest("PURGE", "*")
        request.append("UID", uid)
        request.change = .all
        return try Receipt(try await reply(to: request).value)
    }

    /// Removes the images of a user name, or those of some profiles, under every uid; admins only. As
    /// ``logOutInEveryUID(_:session:)`` otherwise.
    public func purgeInEveryUID(
        _ user: ThumbcacheID, profiles: [ThumbcacheID]? = nil
    ) async throws(ThumbcacheError) -> Receipt {
        var request = try ThumbcacheRequest.purge(user, profiles)
        request.append("UID", "*")
        return try Receipt(try await reply(to: request).value)
    }

    /// Removes the images of all users of all uids; admins only.
    public func purgeAllUsers() async throws(ThumbcacheError) -> Receipt {
        var request = ThumbcacheRequest("PURGE", "*")
        request.append("UID", "*")
        request.change = .all
        return try Receipt(try await reply(to: request).value)
    }

    /// Returns the logged-in users of the caller's uid.
    public func users() async throws(ThumbcacheError) -> [ThumbcacheID] {
        let value = try await reply(to: ThumbcacheRequest("USERS")).value
        guard let elements = value.elements else { throw .protocolViolation("the reply to USERS is not an array") }
        return elements.compactMap { $0.bytes.map(ThumbcacheID.init) }
    }

    /// Returns what is stored for a user; nil if the user is not logged in.
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
            throw .invalidRequest("the list of profiles is empty; name profiles, or pass nil to purge all")
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

    /// A list is preceded by its count, since an id may look like an option.
    mutating func append(counted ids: [ThumbcacheID]) {
        append("\(ids.count)")
        for id in ids { append(id) }
    }
}
