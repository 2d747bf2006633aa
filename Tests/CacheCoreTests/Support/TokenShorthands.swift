import LinuxSupport
import NIOConcurrencyHelpers

@testable import CacheCore

extension LoginTokens {
    static func of(_ access: String? = nil, _ refresh: String? = nil) -> LoginTokens {
        LoginTokens(access: access.map { Secret($0.utf8) }, refresh: refresh.map { Secret($0.utf8) })
    }
}

extension TokenGrant {
    init(_ access: String, lifetime: Int64? = nil, refresh: String? = nil) {
        self.init(
            accessToken: Secret(access.utf8), lifetime: lifetime, refreshToken: refresh.map { Secret($0.utf8) })
    }
}

extension UserCache.Credentials {
    /// Tokens of a login without a token endpoint.
    init(origin: String? = nil, token: Secret?) {
        self.init(origin: origin, tokens: LoginTokens(access: token))
    }
}

extension Secret {
    convenience init(_ text: String) {
        self.init(text.utf8)
    }

    var text: String { withBytes { String(decoding: $0, as: UTF8.self) } }
}

extension Answers {
    /// Waits for that number of token requests.
    func count(_ count: Int) async throws {
        while outcomes.count < count { try await yieldTask() }
    }
}

extension UserSessions {
    /// Waits until the owner's token refresh has ended.
    func refreshesEnded(_ owner: Owner) async {
        while entry(owner)?.state.withLockedValue({ $0.service?.isIdle }) == false { await Task.yield() }
        await entry(owner)?.lock.withLock {}
    }
}
