import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

/// The decisions about tokens as sequences of calls, without clock, thread or network.
@Suite struct AccessTokensTests {
    private static let endpoint = TokenEndpoint(url: "https://id.test/token", clientID: "c")
    private static let origin: Origin = {
        var origin = Origin(name: "default", url: "https://origin.test/{profile}")
        origin.tokenEndpoint = endpoint
        return origin
    }()

    /// A machine, and what it has said: `name=token`, `name=failure`, `request refresh-token`, `keep`, `cancel`.
    private final class Bench {
        var machine: AccessTokens
        var now: Int64 = 1_000
        var origin = AccessTokensTests.origin
        var limit = 1_000
        private(set) var lastRequest: UInt64 = 0
        private var names: [UInt64: String] = [:]

        init(_ tokens: LoginTokens) {
            machine = AccessTokens(tokens, quotaAccount: 1000)
        }

        func ask(_ name: String, refused: String? = nil) -> [String] {
            let number = machine.nextNumber()
            names[number] = name
            let waiter = AccessTokens.Waiter(number: number) { _ in }
            return tell(
                machine.ask(waiter, refused: refused.map { Secret($0.utf8) }, of: origin, limit: limit, now: now))
        }

        func end(_ outcome: Result<TokenGrant, TransferFailure>, of number: UInt64? = nil) -> [String] {
            tell(machine.ended(number ?? lastRequest, outcome, now: now))
        }

        func kept(_ number: UInt64? = nil) -> [String] { tell(machine.kept(number ?? lastRequest)) }

        /// A refresh that succeeds, to its end.
        func grant(_ access: String, lifetime: Int64? = nil, refresh: String? = nil) -> [String] {
            end(.success(.init(access, lifetime: lifetime, refresh: refresh))) + kept()
        }

        func logIn(access: String? = nil, refresh: String? = nil) -> [String] {
            tell(
                machine.logIn(
                    access: access.map { Secret($0.utf8) }, refresh: refresh.map { Secret($0.utf8) }, now: now))
        }

        func forget(_ name: String) {
            for (number, other) in names where other == name { machine.forget(number) }
        }

        func logOut() -> [String] { tell(machine.end()) }

        var held: [String?] { [machine.tokens.access?.text, machine.tokens.refresh?.text] }

        private func tell(_ effects: [AccessTokens.Effect]) -> [String] {
            effects.map { effect in
                switch effect {
                case .answer(let waiter, .success(let token)):
                    return "\(names[waiter.number] ?? "?")=\(token?.text ?? "none")"
                case .answer(let waiter, .failure(let failure)):
                    return "\(names[waiter.number] ?? "?")=\(Self.kind(failure))"
                case .request(let number, let request):
                    lastRequest = number
                    return "request \(request.refreshToken.text)"
                case .keep: return "keep"
                case .cancel: return "cancel"
                }
            }
        }

        private static func kind(_ failure: CacheFailure) -> String {
            switch failure {
            case .unauthorized: "UNAUTHORIZED"
            case .origin: "ORIGIN"
            case .timedOut: "TIMEOUT"
            case .cancelled: "CANCELLED"
            case .busy: "BUSY"
            case .shuttingDown: "SHUTTINGDOWN"
            default: failure.name
            }
        }
    }

    // MARK: Single-flight

    @Test func `with a refresh token alone an access token is got before the first download goes on`() {
        let bench = Bench(.of(nil, "r1"))
        #expect(bench.ask("a") == ["request r1"])
        #expect(bench.end(.success(.init("t1", refresh: "r2"))) == ["keep"])
        // What is not durable is given to nobody, and the old one is not forgotten.
        #expect(bench.ask("b") == [])
        #expect(bench.held == [nil, "r1"])
        #expect(bench.kept() == ["a=t1", "b=t1"])
        #expect(bench.held == ["t1", "r2"])
    }

    @Test func `I6: one refresh answers everybody, in the order they came, whatever made them ask`() {
        let bench = Bench(.of("t1", "r1"))
        #expect(bench.ask("a", refused: "t1") == ["request r1"])
        for name in ["b", "c"] { #expect(bench.ask(name, refused: "t1") == []) }
        #expect(bench.ask("d") == [])
        bench.forget("c")
        #expect(bench.grant("t2") == ["keep", "a=t2", "b=t2", "d=t2"])
        #expect(bench.held == ["t2", "r1"])
        // A 401 that comes late is for a token that was replaced: no other refresh.
        #expect(bench.ask("e", refused: "t1") == ["e=t2"])
    }

    @Test func `I8: no more wait for a refresh than may`() {
        let bench = Bench(.of(nil, "r1"))
        bench.limit = 2
        #expect(bench.ask("a") == ["request r1"])
        #expect(bench.ask("b") == [])
        #expect(bench.ask("c") == ["c=BUSY"])
    }

    // MARK: Time

    @Test(
        arguments: [
            // lifetime, last second at which it is used as it is
            (3_600, 3_539), (600, 539), (100, 89), (10, 8), (5, 4), (1, 0), (0, 0), (nil, 1_000_000),
        ] as [(Int64?, Int64)])
    func `a token is renewed a tenth of its life before its end, a minute at most`(lifetime: Int64?, last: Int64) {
        let bench = Bench(.of(nil, "r1"))
        _ = bench.ask("a")
        _ = bench.grant("t1", lifetime: lifetime)
        bench.now += last
        #expect(bench.ask("b") == ["b=t1"])
        bench.now += 1
        #expect(bench.ask("c") == (lifetime == nil ? ["c=t1"] : ["request r1"]))
    }

    @Test func `a life is counted from when the token was asked for, and from nothing absurd`() {
        let bench = Bench(.of(nil, "r1"))
        _ = bench.ask("a")
        bench.now += 100
        _ = bench.grant("t1", lifetime: 100)
        #expect(bench.ask("b") == ["request r1"])
        for issuedAt in [Int64.min, .max] {
            let odd = Bench(LoginTokens(access: Secret("t".utf8), life: TokenLife(issuedAt: issuedAt, seconds: .max)))
            #expect(odd.ask("a") == ["a=t"])
        }
    }

    @Test func `a token that is due and cannot be renewed is good until its end`() {
        let bench = Bench(.of(nil, "r1"))
        _ = bench.ask("a")
        _ = bench.grant("t1", lifetime: 100)
        bench.now += 90
        #expect(bench.ask("b") == ["request r1"])
        #expect(bench.end(.failure(.origin("down"))) == ["b=t1"])
        bench.now += 10
        #expect(bench.ask("c") == ["request r1"])
        #expect(bench.end(.failure(.timedOut("slow"))) == ["c=TIMEOUT"])
        #expect(bench.held == ["t1", "r1"])
    }

    // MARK: Failures

    @Test func `I8: a refresh token that was refused is not tried again before its pause is over, or a log-in`() {
        let bench = Bench(.of("t1", "r1"))
        #expect(bench.ask("a", refused: "t1") == ["request r1"])
        #expect(bench.ask("b") == [])
        #expect(bench.end(.failure(.refused("invalid_grant"))) == ["a=UNAUTHORIZED", "b=UNAUTHORIZED"])
        for pause in [60, 120, 240, 480, 960, 1_920, 3_600, 3_600] as [Int64] {
            bench.now += pause - 1
            #expect(bench.ask("c") == ["c=UNAUTHORIZED"])
            bench.now += 1
            #expect(bench.ask("d") == ["request r1"])
            #expect(bench.end(.failure(.refused("invalid_grant"))) == ["d=UNAUTHORIZED"])
        }
        #expect(bench.logIn(refresh: "r2") == [])
        #expect(bench.ask("e") == ["request r2"])
        #expect(bench.grant("t2") == ["keep", "e=t2"])
    }

    @Test func `F37: an endpoint that is down is asked rarely, and the refresh token is not lost`() {
        let bench = Bench(.of(nil, "r1"))
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] as [Int64] {
            #expect(bench.ask("a") == ["request r1"])
            #expect(bench.end(.failure(.origin("down"))) == ["a=ORIGIN"])
            bench.now += pause - 1
            #expect(bench.ask("b") == ["b=ORIGIN"])
            bench.now += 1
        }
        #expect(bench.ask("c") == ["request r1"])
        #expect(bench.grant("t1") == ["keep", "c=t1"])
    }

    @Test func `F37: what was not sent fails who waits, and neither begins a pause nor makes one longer`() {
        let bench = Bench(.of(nil, "r1"))
        for name in ["a", "b", "c"] {
            #expect(bench.ask(name) == ["request r1"])
            #expect(bench.end(.failure(.notAsked("open"))) == ["\(name)=ORIGIN"])
        }
        #expect(bench.ask("d") == ["request r1"])
        #expect(bench.end(.failure(.origin("down"))) == ["d=ORIGIN"])
        #expect(bench.ask("e") == ["e=ORIGIN"])
        bench.now += 1
        #expect(bench.ask("f") == ["request r1"])
    }

    @Test
    func `I4: without an access token that can be used the new refresh token is kept, then those who wait are told`() {
        let bench = Bench(.of("t1", "r1"))
        #expect(bench.ask("a", refused: "t1") == ["request r1"])
        #expect(bench.end(.failure(.unusable("no bearer", refreshToken: Secret("r2".utf8)))) == ["keep"])
        #expect(bench.machine.worthKeeping == .of("t1", "r2"))
        #expect(!bench.machine.isIdle)
        #expect(bench.ask("b") == [])
        #expect(bench.kept() == ["a=ORIGIN", "b=ORIGIN"])
        #expect(bench.held == ["t1", "r2"])
        #expect(bench.ask("c") == ["c=ORIGIN"])
        bench.now += 1
        #expect(bench.ask("d") == ["request r2"])
        #expect(bench.grant("t2") == ["keep", "d=t2"])
    }

    @Test func `a pause ends with another endpoint, and when the clock is set back`() {
        for change in [
            { $0.origin.tokenEndpoint?.clientSecret = Secret([1]) }, { $0.now -= 100_000 },
        ] as [(Bench) -> Void] {
            let bench = Bench(.of(nil, "r1"))
            _ = bench.ask("a")
            _ = bench.end(.failure(.refused("invalid_client")))
            #expect(bench.ask("b") == ["b=UNAUTHORIZED"])
            change(bench)
            #expect(bench.ask("c") == ["request r1"])
        }
    }

    @Test func `I8: an origin that refuses every token costs one refresh a minute`() {
        let bench = Bench(.of("t1", "r1"))
        #expect(bench.ask("a", refused: "t1") == ["request r1"])
        #expect(bench.grant("t2") == ["keep", "a=t2"])
        // Neither says anything about what the next refresh would bring.
        bench.machine.wasRefusedToo(Secret("t1".utf8), now: bench.now)
        let other = Bench(.of("t1", "r1"))
        other.machine.wasRefusedToo(Secret("t1".utf8), now: other.now)
        #expect(other.ask("z", refused: "t1") == ["request r1"])
        // This does.
        bench.machine.wasRefusedToo(Secret("t2".utf8), now: bench.now)
        bench.now += 59
        #expect(bench.ask("b", refused: "t2") == ["b=UNAUTHORIZED"])
        // Others are still shown the token: it may be one image only that it is not good for.
        #expect(bench.ask("c") == ["c=t2"])
        bench.now += 1
        #expect(bench.ask("d", refused: "t2") == ["request r1"])
    }

    @Test func `an endpoint that is configured no more is an error only for who needs it`() {
        let bench = Bench(.of("t1", "r1"))
        bench.origin.tokenEndpoint = nil
        #expect(bench.ask("a") == ["a=t1"])
        #expect(bench.ask("b", refused: "t1") == ["b=UNAUTHORIZED"])
    }

    // MARK: Log-in, log-out, stop

    @Test func `a log-in with another refresh token supersedes a refresh under way, whose answer reaches nobody`() {
        let bench = Bench(.of(nil, "r1"))
        #expect(bench.ask("a") == ["request r1"])
        let old = bench.lastRequest
        #expect(bench.logIn(refresh: "r2") == ["cancel", "request r2"])
        #expect(bench.end(.success(.init("stray", refresh: "stray")), of: old) == [])
        #expect(bench.kept(old) == [])
        #expect(bench.grant("t2") == ["keep", "a=t2"])
        #expect(bench.held == ["t2", "r2"])
    }

    @Test func `a log-in with both answers who waits at once`() {
        let bench = Bench(.of(nil, "r1"))
        #expect(bench.ask("a") == ["request r1"])
        #expect(bench.logIn(access: "t2", refresh: "r2") == ["cancel", "a=t2"])
        #expect(bench.held == ["t2", "r2"])
        #expect(bench.machine.isIdle)
    }

    @Test func `a log-in with another access token alone answers who waits, and a rotated refresh token is not lost`() {
        let bench = Bench(.of("t1", "r1"))
        #expect(bench.ask("a", refused: "t1") == ["request r1"])
        #expect(bench.logIn(access: "t2") == ["a=t2"])
        #expect(bench.ask("b") == ["b=t2"])
        #expect(bench.grant("t3", lifetime: 5, refresh: "r2") == ["keep"])
        #expect(bench.held == ["t2", "r2"])
        #expect(bench.ask("c") == ["c=t2"])
    }

    @Test func `an access token from a log-in that is refused meanwhile gives way to the refresh under way`() {
        let bench = Bench(.of("t1", "r1"))
        _ = bench.ask("a", refused: "t1")
        _ = bench.logIn(access: "t2")
        #expect(bench.ask("b", refused: "t2") == [])
        #expect(bench.grant("t3") == ["keep", "b=t3"])
    }

    @Test func `the same tokens once more change nothing, and a log-in with none neither`() {
        let bench = Bench(.of("t1", "r1"))
        _ = bench.ask("a", refused: "t1")
        #expect(bench.logIn(access: "t1", refresh: "r1") == [])
        #expect(bench.logIn() == [])
        #expect(bench.grant("t2") == ["keep", "a=t2"])
    }

    @Test func `I3: a log-out ends the refresh, and neither it nor a late answer leaves a token`() {
        for isAnswered in [false, true] {
            let bench = Bench(.of("t1", "r1"))
            _ = bench.ask("a", refused: "t1")
            if isAnswered { _ = bench.end(.success(.init("t2", refresh: "r2"))) }
            #expect(bench.logOut() == ["cancel", "a=CANCELLED"])
            #expect(bench.machine.worthKeeping == nil)
            #expect(bench.grant("t2", refresh: "r2") == [])
            #expect(bench.held == [nil, nil])
            #expect(bench.ask("b") == ["b=CANCELLED"])
            #expect(bench.logIn(access: "t3", refresh: "r3") == [])
            #expect(bench.held == [nil, nil])
        }
    }

    @Test func `what is worth keeping has what a refresh brought, before anybody is given it`() {
        let bench = Bench(.of("t1", "r1"))
        _ = bench.ask("a", refused: "t1")
        #expect(bench.machine.worthKeeping == .of("t1", "r1"))
        _ = bench.end(.success(.init("t2", lifetime: 7, refresh: "r2")))
        var expected = LoginTokens.of("t2", "r2")
        expected.life = TokenLife(issuedAt: bench.now, seconds: 7)
        #expect(bench.machine.worthKeeping == expected)
        _ = bench.kept()
        #expect(bench.machine.worthKeeping == expected)
    }

    @Test func `a stop lets the refresh under way end and begins no other`() {
        let bench = Bench(.of(nil, "r1"))
        _ = bench.ask("a")
        bench.machine.stop()
        #expect(!bench.machine.isIdle)
        #expect(bench.grant("t1", lifetime: 10) == ["keep", "a=t1"])
        #expect(bench.machine.isIdle)
        bench.now += 10
        #expect(bench.ask("b") == ["b=SHUTTINGDOWN"])
    }
}
