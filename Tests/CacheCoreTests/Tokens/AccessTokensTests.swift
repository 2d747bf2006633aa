import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

/// Decisions about tokens as sequences of calls, without clock, threads or network.
@Suite struct AccessTokensTests {
    private static let endpoint = TokenEndpoint(url: "https://id.test/token", clientID: "c")
    private static let origin: Origin = {
        var origin = Origin(name: "default", url: "https://origin.test/{profile}")
        origin.tokenEndpoint = endpoint
        return origin
    }()

    /// A state machine whose effects are returned as `name=token`, `name=failure`, `request TOKEN`, `store` or
    /// `cancel`.
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

        func request(_ name: String, rejected: String? = nil) -> [String] {
            let number = machine.nextNumber()
            names[number] = name
            let waiter = AccessTokens.Waiter(number: number) { _ in }
            return describe(
                machine.request(waiter, rejected: rejected.map { Secret($0.utf8) }, of: origin, limit: limit, now: now))
        }

        func end(_ outcome: Result<TokenGrant, FetchFailure>, of number: UInt64? = nil) -> [String] {
            describe(machine.ended(number ?? lastRequest, outcome, now: now))
        }

        func stored(_ number: UInt64? = nil) -> [String] { describe(machine.stored(number ?? lastRequest)) }

        /// Completes a refresh successfully.
        func grant(_ access: String, lifetime: Int64? = nil, refresh: String? = nil) -> [String] {
            end(.success(.init(access, lifetime: lifetime, refresh: refresh))) + stored()
        }

        func logIn(access: String? = nil, refresh: String? = nil) -> [String] {
            describe(
                machine.logIn(
                    access: access.map { Secret($0.utf8) }, refresh: refresh.map { Secret($0.utf8) }, now: now))
        }

        func leave(_ name: String) {
            for (number, other) in names where other == name { machine.removeWaiter(number) }
        }

        func logOut() -> [String] { describe(machine.end()) }

        var held: [String?] { [machine.tokens.access?.text, machine.tokens.refresh?.text] }

        private func describe(_ effects: [AccessTokens.Effect]) -> [String] {
            effects.map { effect in
                switch effect {
                case .resolve(let waiter, .success(let token)):
                    return "\(names[waiter.number] ?? "?")=\(token?.text ?? "none")"
                case .resolve(let waiter, .failure(let failure)):
                    return "\(names[waiter.number] ?? "?")=\(Self.kind(failure))"
                case .request(let number, let request):
                    lastRequest = number
                    return "request \(request.refreshToken.text)"
                case .store: return "store"
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

    @Test func `with a refresh token alone, the first download waits for an access token`() {
        let bench = Bench(.of(nil, "r1"))
        #expect(bench.request("a") == ["request r1"])
        #expect(bench.end(.success(.init("t1", refresh: "r2"))) == ["store"])
        // A token that is not yet durable is not used, and the old refresh token is kept.
        #expect(bench.request("b") == [])
        #expect(bench.held == [nil, "r1"])
        #expect(bench.stored() == ["a=t1", "b=t1"])
        #expect(bench.held == ["t1", "r2"])
    }

    @Test func `I6: one refresh answers all waiters in order, whatever caused their requests`() {
        let bench = Bench(.of("t1", "r1"))
        #expect(bench.request("a", rejected: "t1") == ["request r1"])
        for name in ["b", "c"] { #expect(bench.request(name, rejected: "t1") == []) }
        #expect(bench.request("d") == [])
        bench.leave("c")
        #expect(bench.grant("t2") == ["store", "a=t2", "b=t2", "d=t2"])
        #expect(bench.held == ["t2", "r1"])
        // A late 401 for a replaced token causes no refresh.
        #expect(bench.request("e", rejected: "t1") == ["e=t2"])
    }

    @Test func `I8: the number of waiters of a refresh is limited`() {
        let bench = Bench(.of(nil, "r1"))
        bench.limit = 2
        #expect(bench.request("a") == ["request r1"])
        #expect(bench.request("b") == [])
        #expect(bench.request("c") == ["c=BUSY"])
    }

    // MARK: Time

    @Test(
        arguments: [
            // lifetime, last second at which it is used without a refresh
            (3_600, 3_539), (600, 539), (100, 89), (10, 8), (5, 4), (1, 0), (0, 0), (nil, 1_000_000),
        ] as [(Int64?, Int64)])
    func `a token is refreshed a tenth of its lifetime before its end, at most a minute before`(
        lifetime: Int64?, last: Int64
    ) {
        let bench = Bench(.of(nil, "r1"))
        _ = bench.request("a")
        _ = bench.grant("t1", lifetime: lifetime)
        bench.now += last
        #expect(bench.request("b") == ["b=t1"])
        bench.now += 1
        #expect(bench.request("c") == (lifetime == nil ? ["c=t1"] : ["request r1"]))
    }

    @Test func `a lifetime counts from the token request, and extreme values do not overflow`() {
        let bench = Bench(.of(nil, "r1"))
        _ = bench.request("a")
        bench.now += 100
        _ = bench.grant("t1", lifetime: 100)
        #expect(bench.request("b") == ["request r1"])
        for issuedAt in [Int64.min, .max] {
            let extreme = Bench(
                LoginTokens(access: Secret("t".utf8), life: TokenLife(issuedAt: issuedAt, seconds: .max)))
            #expect(extreme.request("a") == ["a=t"])
        }
    }

    @Test func `a token that cannot be refreshed is used until it expires`() {
        let bench = Bench(.of(nil, "r1"))
        _ = bench.request("a")
        _ = bench.grant("t1", lifetime: 100)
        bench.now += 90
        #expect(bench.request("b") == ["request r1"])
        #expect(bench.end(.failure(.origin("down"))) == ["b=t1"])
        bench.now += 10
        #expect(bench.request("c") == ["request r1"])
        #expect(bench.end(.failure(.timedOut("slow"))) == ["c=TIMEOUT"])
        #expect(bench.held == ["t1", "r1"])
    }

    // MARK: Failures

    @Test func `I8: a rejected refresh token is retried only after a pause or a login`() {
        let bench = Bench(.of("t1", "r1"))
        #expect(bench.request("a", rejected: "t1") == ["request r1"])
        #expect(bench.request("b") == [])
        #expect(bench.end(.failure(.unauthorized("invalid_grant"))) == ["a=UNAUTHORIZED", "b=UNAUTHORIZED"])
        for pause in [60, 120, 240, 480, 960, 1_920, 3_600, 3_600] as [Int64] {
            bench.now += pause - 1
            #expect(bench.request("c") == ["c=UNAUTHORIZED"])
            bench.now += 1
            #expect(bench.request("d") == ["request r1"])
            #expect(bench.end(.failure(.unauthorized("invalid_grant"))) == ["d=UNAUTHORIZED"])
        }
        #expect(bench.logIn(refresh: "r2") == [])
        #expect(bench.request("e") == ["request r2"])
        #expect(bench.grant("t2") == ["store", "e=t2"])
    }

    @Test func `F37: an endpoint that is down is retried rarely, and the refresh token is kept`() {
        let bench = Bench(.of(nil, "r1"))
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] as [Int64] {
            #expect(bench.request("a") == ["request r1"])
            #expect(bench.end(.failure(.origin("down"))) == ["a=ORIGIN"])
            bench.now += pause - 1
            #expect(bench.request("b") == ["b=ORIGIN"])
            bench.now += 1
        }
        #expect(bench.request("c") == ["request r1"])
        #expect(bench.grant("t1") == ["store", "c=t1"])
    }

    @Test func `F37: a request that was not sent fails its waiters and neither starts nor extends a pause`() {
        let bench = Bench(.of(nil, "r1"))
        for name in ["a", "b", "c"] {
            #expect(bench.request(name) == ["request r1"])
            #expect(bench.end(.failure(.circuitOpen("open"))) == ["\(name)=ORIGIN"])
        }
        #expect(bench.request("d") == ["request r1"])
        #expect(bench.end(.failure(.origin("down"))) == ["d=ORIGIN"])
        #expect(bench.request("e") == ["e=ORIGIN"])
        bench.now += 1
        #expect(bench.request("f") == ["request r1"])
    }

    @Test
    func `I4: a new refresh token without a usable access token is stored before the waiters get the failure`() {
        let bench = Bench(.of("t1", "r1"))
        #expect(bench.request("a", rejected: "t1") == ["request r1"])
        #expect(bench.end(.failure(.origin("no bearer", refreshToken: Secret("r2".utf8)))) == ["store"])
        #expect(bench.machine.durableTokens == .of("t1", "r2"))
        #expect(!bench.machine.isIdle)
        #expect(bench.request("b") == [])
        #expect(bench.stored() == ["a=ORIGIN", "b=ORIGIN"])
        #expect(bench.held == ["t1", "r2"])
        #expect(bench.request("c") == ["c=ORIGIN"])
        bench.now += 1
        #expect(bench.request("d") == ["request r2"])
        #expect(bench.grant("t2") == ["store", "d=t2"])
    }

    @Test func `a pause ends when the endpoint changes or the clock is set back`() {
        for change in [
            { $0.origin.tokenEndpoint?.clientSecret = Secret([1]) }, { $0.now -= 100_000 },
        ] as [(Bench) -> Void] {
            let bench = Bench(.of(nil, "r1"))
            _ = bench.request("a")
            _ = bench.end(.failure(.unauthorized("invalid_client")))
            #expect(bench.request("b") == ["b=UNAUTHORIZED"])
            change(bench)
            #expect(bench.request("c") == ["request r1"])
        }
    }

    @Test func `I8: an origin that rejects every token causes one refresh a minute`() {
        let bench = Bench(.of("t1", "r1"))
        #expect(bench.request("a", rejected: "t1") == ["request r1"])
        #expect(bench.grant("t2") == ["store", "a=t2"])
        // A rejection of a token that is already replaced starts no pause.
        bench.machine.wasRejectedAgain(Secret("t1".utf8), now: bench.now)
        let other = Bench(.of("t1", "r1"))
        other.machine.wasRejectedAgain(Secret("t1".utf8), now: other.now)
        #expect(other.request("z", rejected: "t1") == ["request r1"])
        // A rejection of the refreshed token does.
        bench.machine.wasRejectedAgain(Secret("t2".utf8), now: bench.now)
        bench.now += 59
        #expect(bench.request("b", rejected: "t2") == ["b=UNAUTHORIZED"])
        // Other downloads still use the token: it may be rejected for one image only.
        #expect(bench.request("c") == ["c=t2"])
        bench.now += 1
        #expect(bench.request("d", rejected: "t2") == ["request r1"])
    }

    @Test func `a token endpoint that was removed from the configuration is an error only if it is needed`() {
        let bench = Bench(.of("t1", "r1"))
        bench.origin.tokenEndpoint = nil
        #expect(bench.request("a") == ["a=t1"])
        #expect(bench.request("b", rejected: "t1") == ["b=UNAUTHORIZED"])
    }

    // MARK: Login, logout, stop

    @Test func `a login with another refresh token supersedes a refresh in flight, whose response is discarded`() {
        let bench = Bench(.of(nil, "r1"))
        #expect(bench.request("a") == ["request r1"])
        let old = bench.lastRequest
        #expect(bench.logIn(refresh: "r2") == ["cancel", "request r2"])
        #expect(bench.end(.success(.init("stray", refresh: "stray")), of: old) == [])
        #expect(bench.stored(old) == [])
        #expect(bench.grant("t2") == ["store", "a=t2"])
        #expect(bench.held == ["t2", "r2"])
    }

    @Test func `a login with both tokens answers the waiters at once`() {
        let bench = Bench(.of(nil, "r1"))
        #expect(bench.request("a") == ["request r1"])
        #expect(bench.logIn(access: "t2", refresh: "r2") == ["cancel", "a=t2"])
        #expect(bench.held == ["t2", "r2"])
        #expect(bench.machine.isIdle)
    }

    @Test func `a login with another access token answers the waiters, and a rotated refresh token is not lost`() {
        let bench = Bench(.of("t1", "r1"))
        #expect(bench.request("a", rejected: "t1") == ["request r1"])
        #expect(bench.logIn(access: "t2") == ["a=t2"])
        #expect(bench.request("b") == ["b=t2"])
        #expect(bench.grant("t3", lifetime: 5, refresh: "r2") == ["store"])
        #expect(bench.held == ["t2", "r2"])
        #expect(bench.request("c") == ["c=t2"])
    }

    @Test func `if the access token of a login is rejected, its waiters join the refresh in flight`() {
        let bench = Bench(.of("t1", "r1"))
        _ = bench.request("a", rejected: "t1")
        _ = bench.logIn(access: "t2")
        #expect(bench.request("b", rejected: "t2") == [])
        #expect(bench.grant("t3") == ["store", "b=t3"])
    }

    @Test func `a login with the same tokens or with none changes nothing`() {
        let bench = Bench(.of("t1", "r1"))
        _ = bench.request("a", rejected: "t1")
        #expect(bench.logIn(access: "t1", refresh: "r1") == [])
        #expect(bench.logIn() == [])
        #expect(bench.grant("t2") == ["store", "a=t2"])
    }

    @Test func `I3: a logout cancels the refresh, and neither it nor a late response leaves a token`() {
        for isAnswered in [false, true] {
            let bench = Bench(.of("t1", "r1"))
            _ = bench.request("a", rejected: "t1")
            if isAnswered { _ = bench.end(.success(.init("t2", refresh: "r2"))) }
            #expect(bench.logOut() == ["cancel", "a=CANCELLED"])
            #expect(bench.machine.durableTokens == nil)
            #expect(bench.grant("t2", refresh: "r2") == [])
            #expect(bench.held == [nil, nil])
            #expect(bench.request("b") == ["b=CANCELLED"])
            #expect(bench.logIn(access: "t3", refresh: "r3") == [])
            #expect(bench.held == [nil, nil])
        }
    }

    @Test func `durableTokens contains refreshed tokens before any waiter gets them`() {
        let bench = Bench(.of("t1", "r1"))
        _ = bench.request("a", rejected: "t1")
        #expect(bench.machine.durableTokens == .of("t1", "r1"))
        _ = bench.end(.success(.init("t2", lifetime: 7, refresh: "r2")))
        var expected = LoginTokens.of("t2", "r2")
        expected.life = TokenLife(issuedAt: bench.now, seconds: 7)
        #expect(bench.machine.durableTokens == expected)
        _ = bench.stored()
        #expect(bench.machine.durableTokens == expected)
    }

    @Test func `a stop lets the refresh in flight complete and starts no other`() {
        let bench = Bench(.of(nil, "r1"))
        _ = bench.request("a")
        bench.machine.stop()
        #expect(!bench.machine.isIdle)
        #expect(bench.grant("t1", lifetime: 10) == ["store", "a=t1"])
        #expect(bench.machine.isIdle)
        bench.now += 10
        #expect(bench.request("b") == ["b=SHUTTINGDOWN"])
    }
}
