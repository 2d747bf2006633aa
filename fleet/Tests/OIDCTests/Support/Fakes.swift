import Fleet
import Logging
import NIOConcurrencyHelpers

@testable import thumbcached_oidc

let silent = Logger(label: "silent", factory: { _ in SwiftLogNoOpLogHandler() })

/// Rules that accept the valid tokens of ``ForeignTokens``.
extension TokenRules {
    static var ofTests: TokenRules {
        var rules = TokenRules()
        (rules.issuer, rules.clientID) = ("https://id.example.org/realms/staff", "thumbnails")
        rules.otherAudiences = ["mail"]
        return rules
    }
}

extension TokenVerifier {
    /// Both steps of the verification.
    func verify(_ text: some Sequence<UInt8>, at now: Double) async throws(LogoutFailure) -> LogoutToken {
        try check(try await authenticate(text), at: now)
    }
}

/// A clock that changes only when it is set.
final class TestClock: Sendable {
    private let time: NIOLockedValueBox<Int64>

    init(_ time: Int64 = 0) { self.time = NIOLockedValueBox(time) }

    var now: Int64 { time.withLockedValue { $0 } }
    func set(_ now: Int64) { time.withLockedValue { $0 = now } }
}

/// A JWKS endpoint that counts requests and holds responses while its gate is closed.
actor FakeKeySource: KeyDownload {
    private var answers: [Result<[UInt8], KeyFailure>]
    private(set) var requests = 0
    private let isGated: Bool
    private var gate: [CheckedContinuation<Void, Never>] = []
    private var asked: [(requests: Int, CheckedContinuation<Void, Never>)] = []

    /// - Parameter answers: The responses in order; the last one is repeated.
    init(_ answers: Result<[UInt8], KeyFailure>..., gated: Bool = false) {
        (self.answers, isGated) = (answers, gated)
    }

    func download() async throws(KeyFailure) -> [UInt8] {
        requests += 1
        for waiter in asked where waiter.requests <= requests { waiter.1.resume() }
        asked.removeAll { $0.requests <= requests }
        if isGated { await withCheckedContinuation { gate.append($0) } }
        let answer = answers.count > 1 ? answers.removeFirst() : answers[0]
        return try answer.get()
    }

    /// Waits until `count` requests have been received.
    func waitForDownloads(_ count: Int) async {
        if requests >= count { return }
        await withCheckedContinuation { asked.append((count, $0)) }
    }

    func openGate() {
        for waiter in gate { waiter.resume() }
        gate = []
    }
}

/// A stream that records published commands and holds responses while its gate is closed.
actor FakePublisher: CommandPublisher {
    private(set) var commands: [FleetCommand] = []
    private var failure: PublishFailure?
    private var isGated = false
    private var gate: [CheckedContinuation<Void, Never>] = []
    private var asked: [CheckedContinuation<Void, Never>] = []

    func publish(_ command: FleetCommand) async throws(PublishFailure) -> String {
        if isGated {
            for waiter in asked { waiter.resume() }
            asked = []
            await withCheckedContinuation { gate.append($0) }
        }
        if let failure { throw failure }
        commands.append(command)
        return "\(commands.count)-0"
    }

    func fail(_ reason: String?) { failure = reason.map { PublishFailure(description: $0) } }
    func closeGate() { isGated = true }

    func openGate() {
        isGated = false
        for waiter in gate { waiter.resume() }
        gate = []
    }

    /// Waits until a publication is held at the gate.
    func waitForPublish() async {
        if !gate.isEmpty { return }
        await withCheckedContinuation { asked.append($0) }
    }
}

/// Records the metadata of each logged line.
final class LogLines: Sendable {
    private let lines = NIOLockedValueBox<[[String: String]]>([])

    var all: [[String: String]] { lines.withLockedValue { $0 } }
    var logger: Logger { Logger(label: "lines") { [lines] _ in Handler(lines: lines) } }

    private struct Handler: LogHandler {
        let lines: NIOLockedValueBox<[[String: String]]>
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.info

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            lines.withLockedValue { $0.append((event.metadata ?? [:]).mapValues { "\($0)" }) }
        }
    }
}
