import JWTKit
import Logging

/// Where keys come from.
protocol KeyDownload: Sendable {
    /// The bytes of a JWK set.
    func download() async throws(KeyFailure) -> [UInt8]
}

/// When keys are asked for. Times are milliseconds of a clock that nobody sets.
struct KeyTimes: Equatable, Sendable {
    /// Between two questions, whoever has asked for what: so many unknown names of keys, and no more, are looked for.
    var pause: Int64 = 10_000
    /// How old keys get before they are asked for again: so long one that was withdrawn is still taken.
    var lifetime: Int64 = 3_600_000
}

/// The provider's keys, and when there are newer ones.
///
/// One question at a time, for however many tokens, and ``KeyTimes/pause`` between two. When one has no answer, the
/// keys that are known stay.
actor KeyStore {
    private let source: any KeyDownload
    private let algorithms: [SignatureAlgorithm]
    private let times: KeyTimes
    private let log: Logger
    private let now: @Sendable () -> Int64

    private var keys: KeySet?
    private var lastAnswer: Int64?
    private var lastQuestion: Int64?
    private var question: Task<Void, Never>?

    init(
        _ source: any KeyDownload, algorithms: [SignatureAlgorithm], times: KeyTimes, log: Logger,
        now: @escaping @Sendable () -> Int64
    ) {
        (self.source, self.algorithms, self.times) = (source, algorithms, times)
        (self.log, self.now) = (log, now)
    }

    /// What checks a token's signature.
    func verifier(id: String?, for algorithm: SignatureAlgorithm) async throws(LogoutFailure) -> any JWTAlgorithm {
        if isOld { await refresh() }
        if case .key(let key)? = keys?.choose(id: id, for: algorithm) { return key }
        await refresh()
        switch keys?.choose(id: id, for: algorithm) {
        case .key(let key)?: return key
        case .unknown?: throw .invalid("the logout token's kid is none of the provider's keys")
        case .unfit?:
            throw .invalid(
                id == nil
                    ? "the logout token has no kid, and not exactly one key could be meant"
                    : "the logout token's alg is not that of its key")
        case nil: throw .unavailable("the provider's keys are not known: its JWKS endpoint has not answered")
        }
    }

    private var isOld: Bool { lastAnswer.map { now() - $0 >= times.lifetime } ?? true }

    /// Asks, unless somebody has just done so. Returns when what was asked has been answered.
    func refresh() async {
        if let question { return await question.value }
        if let lastQuestion, now() - lastQuestion < times.pause { return }
        lastQuestion = now()
        let question = Task { await ask() }
        self.question = question
        await question.value
    }

    private func ask() async {
        defer { question = nil }
        do throws(KeyFailure) {
            let set = try await KeySet(try await source.download(), algorithms: algorithms)
            (keys, lastAnswer) = (set, now())
            log.info("the provider's keys", metadata: ["keys": "\(set.keys.count)", "skipped": "\(set.skipped)"])
        } catch {
            log.warning(
                keys == nil ? "the provider's keys cannot be had" : "the provider's keys stay as they were",
                metadata: ["reason": "\(error)"])
        }
    }
}
