import Logging
import NIOConcurrencyHelpers

// The tokens of those who are logged in: whose they are, and how what a refresh brings becomes part of the log-in.

extension UserSessions {
    /// The tokens of a log-in that begins, or is found on disk.
    func tokenService(_ owner: Owner, _ tokens: LoginTokens) -> AccessTokenService {
        let log = self.log
        return AccessTokenService(
            tokens, payer: services.budget.account(of: owner.uid),
            keeper: TokenKeeper(
                keep: { [weak self] service throws(CacheFailure) in try await self?.keepTokens(of: service, owner) },
                adopt: { [weak self] service in self?.adopt(service, of: owner) },
                tell: { what, failure in
                    log.warning("\(what)", metadata: ["uid": "\(owner.uid)", "reason": "\(failure)"])
                }))
    }

    /// Makes the tokens of a service durable, with the owner's turn, so that a log-in, log-out or purge comes before or after it.
    private func keepTokens(of service: AccessTokenService, _ owner: Owner) async throws(CacheFailure) {
        try await withTurn(owner, on: services.lifecycle) { entry throws(CacheFailure) in
            // Looked at only now: whatever was before it in the line may have brought others, or ended the log-in.
            let login = entry.state.withLockedValue { state -> LoginRecord? in
                guard state.tokens === service, let tokens = service.worthKeeping else { return nil }
                state.login.tokens = tokens
                return state.login
            }
            guard let login else { return }
            if case .broken(_, let reason) = entry.phase { throw .inputOutput(Self.closed(reason)) }
            try await self.save(login, of: owner, on: self.services.lifecycle)
        }
    }

    /// Has the cache of a log-in show the family of the tokens that there are now. A cache that is being made looks itself.
    private func adopt(_ service: AccessTokenService, of owner: Owner) {
        guard let entry = entry(owner), case .open(let cache) = entry.phase, cache.account.tokens === service else {
            return
        }
        cache.update(cache.account)
    }

    /// Begins no refresh any more and waits for those under way, all at once; see ``AccessTokenService/settle(_:)``.
    func settleTokens(of entries: [UserEntry]) async {
        await withTaskGroup { group in
            for entry in entries {
                let tokens = entry.state.withLockedValue { $0.tokens }
                group.addTask { await tokens.settle(self.services) }
            }
        }
    }

    /// Whether the origin that a log-in goes to can renew its tokens.
    func checkRefresh(_ request: LoginRequest, origin name: String?) throws(CacheFailure) {
        guard request.refresh != nil else { return }
        let name = name ?? "default"
        guard let origin = services.settings().origins[name] else {
            throw .invalid("REFRESH: no origin \(name) is configured, so there is nothing to renew a token for")
        }
        guard origin.tokenEndpoint != nil else {
            throw .invalid(
                "REFRESH: origin \(name) has no token endpoint; origins.\(name).token in the configuration would name it"
            )
        }
    }
}

extension UserEntry {
    /// The log-in is over, or about to be: whatever comes of that, nothing is downloaded in the user's name any more (I11).
    func endTokens(_ services: CacheServices) {
        let tokens = state.withLockedValue { state in
            state.login.tokens = LoginTokens()
            defer { state.tokens = AccessTokenService() }
            return state.tokens
        }
        tokens.end(services)
    }
}
