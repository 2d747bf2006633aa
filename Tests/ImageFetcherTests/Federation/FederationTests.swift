import CacheFakes
import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher
@testable import Origins

/// Downloads from hosts that SRV records name, with a real name server and a real TLS server on loopback.
@Suite(.serialized, .timeLimit(.minutes(5))) struct FederationTests {
    /// The servers and the fetcher of a test.
    private struct World {
        let nginx: Nginx
        let names: TestNameServer
        let fetcher: CurlImageFetcher
        var origin: Origin

        /// The upstream's own URL with that path.
        func central(_ path: String = "/avatar/bob") -> String { "https://localhost:\(nginx.securePort)\(path)?s=80" }
        func federated(_ path: String = "/avatar/bob", host: String = "images.example") -> String {
            "https://\(host):\(nginx.securePort)\(path)?s=80"
        }

        func fetch(
            _ domain: String?, _ path: String = "/avatar/bob", token: Secret? = nil,
            condition: DownloadCondition? = nil
        ) async -> DownloadOutcome {
            let target = DownloadTarget(url: central(path), isNamedByClient: false, federatedDomain: domain)
            return await FederationTests.outcome(target, fetcher, origin, token, condition)
        }
    }

    private static func outcome(
        _ target: DownloadTarget, _ fetcher: CurlImageFetcher, _ origin: Origin, _ token: Secret? = nil,
        _ condition: DownloadCondition? = nil
    ) async -> DownloadOutcome {
        do {
            return try await fetcher.fetch(target, of: origin, token: token, condition: condition)
        } catch let failure as FetchFailure {
            return .failed(failure)
        } catch {
            Issue.record(error)
            return .failed(.shuttingDown)
        }
    }

    /// - Parameters:
    ///   - mayReachLoopback: whether loopback addresses count as public.
    ///   - address: the address of `images.example`.
    private func withWorld(
        mayReachLoopback: Bool = true, imagesAt address: String = "127.0.0.1",
        _ configure: (inout FetcherSetup) -> Void,
        _ script: @escaping @Sendable (String, UInt16) -> TestNameServer.Reply, _ body: (World) async throws -> Void
    ) async throws {
        let locations = """
            location /avatar/ { rewrite ^ /a.png break; default_type image/png; }
            location = /avatar/nobody { return 404; }
            location = /avatar/broken { return 500; }
            location = /avatar/moved { return 302 https://images.example:$server_port/avatar/bob; }
            location = /avatar/outward { return 302 https://localhost:$server_port/avatar/token; }
            location = /avatar/inward { return 302 https://localhost:$server_port/avatar/bob; }
            location = /avatar/other-service { return 302 https://images.example:1023/avatar/bob; }
            location = /avatar/token { if ($http_authorization != "") { return 410; } rewrite ^ /a.png break; }
            """
        let nginx = try Nginx(files: ["a.png": TestImage.png], locations: locations)
        defer { nginx.stop() }
        let port = nginx.securePort
        let names = try TestNameServer { script($0, port) }
        defer { names.stop() }
        let ports = [nginx.securePort, nginx.securePlainPort]
        try await withFetcher {
            $0.nameServers = names.address
            $0.resolverOverrides = {
                ports.flatMap { port in
                    ["expired.example", "localhost"].map { "\($0):\(port):127.0.0.1" }
                        + ["images.example:\(port):\(address)"]
                }
            }
            if mayReachLoopback {
                $0.addressGuard.exceptions = [.v4(0x7F00_0001)]
                $0.addressGuard.ownExceptions = [.v4(0x7F00_0001)]
            }
            configure(&$0)
        } _: { fetcher in
            var origin = Origin.test(url: "https://localhost:\(port)/avatar/{profile_sha256}?s={size}")
            origin.caFile = nginx.caFile
            try await body(World(nginx: nginx, names: names, fetcher: fetcher, origin: origin))
        }
    }

    private func withWorld(
        mayReachLoopback: Bool = true,
        _ script: @escaping @Sendable (String, UInt16) -> TestNameServer.Reply, _ body: (World) async throws -> Void
    ) async throws {
        try await withWorld(mayReachLoopback: mayReachLoopback, { _ in }, script, body)
    }

    // MARK: Named hosts

    @Test func `an image comes from the host that the domain names, with the upstream's path and query`() async throws {
        try await withWorld { name, port in
            .records([.init(port: port, host: "images.example")])
        } _: { world in
            let outcome = await world.fetch("friends.example")
            #expect(outcome.image?.redirectedTo == world.federated(), "\(outcome)")
            #expect(world.names.questions == ["_avatars-sec._tcp.friends.example"])
            // A 404 and a failure of the named host are final.
            #expect(await world.fetch("friends.example", "/avatar/nobody").kind == "missing")
            #expect(await world.fetch("friends.example", "/avatar/broken").kind == "origin")
        }
    }

    @Test(arguments: [.none(), .noName, .records([.init(port: 443, host: ".")])] as [TestNameServer.Reply])
    func `F86: for a domain without SRV records the upstream's own URL is used, and the response is cached`(
        reply: TestNameServer.Reply
    ) async throws {
        try await withWorld { _, _ in
            reply
        } _: { world in
            for _ in 0..<3 {
                let outcome = await world.fetch("friends.example")
                #expect(outcome.kind == "image" && outcome.image?.redirectedTo == nil, "\(outcome)")
            }
            #expect(world.names.questions.count == 1)
        }
    }

    @Test func `a profile that is not a mail address causes no DNS query`() async throws {
        try await withWorld { _, _ in
            .silence
        } _: { world in
            #expect(await world.fetch(nil).kind == "image")
            #expect(world.names.questions.isEmpty)
        }
    }

    @Test func `F86: the next host is tried if one has no address, refuses connections or has an invalid certificate`()
        async throws
    {
        let closed = try TestSocket.freePort()
        try await withWorld { _, port in
            .records([
                .init(priority: 3, port: port, host: "images.example"),
                .init(priority: 2, port: port, host: "expired.example"),
                .init(priority: 1, port: closed, host: "images.example"),
            ])
        } _: { world in
            // The host with the lowest priority works.
            var origin = world.origin
            origin.breaker = BreakerPolicy(failures: 1, backoff: 86_400_000, backoffMax: 86_400_000)
            let another = World(nginx: world.nginx, names: world.names, fetcher: world.fetcher, origin: origin)
            // The second time, open breakers exclude the first two.
            for _ in 0..<2 {
                let outcome = await another.fetch("friends.example")
                #expect(outcome.image?.redirectedTo == world.federated(), "\(outcome)")
            }
            #expect(world.fetcher.statistics.hostsOpen == 2)
        }
    }

    @Test func `F86: if no host can be reached, the upstream fails, and its own URL is not used`()
        async throws
    {
        let closed = try TestSocket.freePort()
        try await withWorld { _, _ in
            .records([.init(port: closed, host: "images.example")])
        } _: { world in
            #expect(await world.fetch("friends.example").kind == "origin")
            let requests = try world.nginx.requests()
            #expect(requests.isEmpty)
        }
    }

    @Test func `F36, F86: no other host is tried after the timeout`() async throws {
        let silent = try TestSocket.listen(address: "127.0.0.1", port: 0, backlog: 8)
        defer { close(silent) }
        let silentPort = try TestSocket.port(of: silent)
        try await withWorld {
            let known = $0.resolverOverrides
            $0.resolverOverrides = { known() + ["silent.example:\(silentPort):127.0.0.1"] }
        } _: { _, port in
            .records([
                .init(priority: 1, port: silentPort, host: "silent.example"),
                .init(priority: 2, port: port, host: "images.example"),
            ])
        } _: { world in
            var world = world
            world.origin.timeout = 3_000
            let outcome = await world.fetch("friends.example")
            #expect(outcome.kind == "timedOut" && outcome.reason.contains("silent.example"), "\(outcome)")
            let requests = try world.nginx.requests()
            #expect(requests.isEmpty)
        }
    }

    // MARK: Failing name servers

    @Test(
        arguments: [
            .code(1), .code(2), .code(5), .referral,
            // A record that is shorter than its length field, and one with an invalid name.
            .altered { $0.dropLast(4) + [] },
            .altered { $0.dropLast(11) + [1, 0x61, 0xC0, 0xFF] },
        ] as [TestNameServer.Reply])
    func `F86: a failing name server or a malformed response is a failure of the upstream`(reply: TestNameServer.Reply)
        async throws
    {
        try await withWorld {
            // Longer than the test, so that the outcome is not a timeout.
            $0.serviceQueryTimeout = 86_400_000
        } _: { _, _ in
            reply
        } _: { world in
            let outcome = await world.fetch("friends.example")
            #expect(outcome.kind == "origin" && outcome.reason.contains("SRV lookup"), "\(outcome)")
            #expect(!outcome.reason.contains("friends") && !outcome.reason.contains("no name server answered"))
            let requests = try world.nginx.requests()
            #expect(requests.isEmpty)
        }
    }

    @Test func `I8, F86: at most three name servers are queried`() async throws {
        let failing = try (0..<3).map { _ in try TestNameServer { _ in .code(2) } }
        defer { for server in failing { server.stop() } }
        try await withWorld {
            $0.serviceQueryTimeout = 86_400_000
            $0.nameServers = (failing.map(\.address) + [$0.nameServers ?? ""]).joined(separator: ",")
        } _: { _, _ in
            .noName
        } _: { world in
            #expect(await world.fetch("friends.example").kind == "origin")
            for server in failing { #expect(!server.questions.isEmpty) }
            #expect(world.names.questions.isEmpty)
        }
    }

    /// A truncated response does not match the query and is ignored, as a forged one would be.
    @Test(arguments: [.silence, .altered { Array($0.prefix(20)) }] as [TestNameServer.Reply])
    func `F86: a name server that never responds causes a timeout, and the circuit breaker opens`(
        reply: TestNameServer.Reply
    ) async throws {
        try await withWorld {
            $0.serviceQueryTimeout = 100
        } _: { _, _ in
            reply
        } _: { world in
            var world = world
            world.origin.breaker = BreakerPolicy(failures: 2, backoff: 86_400_000, backoffMax: 86_400_000)
            for _ in 0..<2 {
                let outcome = await world.fetch("friends.example")
                #expect(outcome.kind == "origin", "\(outcome)")
            }
            let queries = world.names.questions.count
            let rejected = await world.fetch("friends.example")
            #expect(rejected.isRejected && !rejected.reason.contains("friends"), "\(rejected)")
            #expect(world.names.questions.count == queries)
            // Another domain and the upstream's own host are not affected.
            #expect(await world.fetch(nil).kind == "image")
            #expect(await world.fetch("others.example").kind == "origin")
            #expect(world.names.questions.last == "_avatars-sec._tcp.others.example")
        }
    }

    @Test func `F36, F86: the connect timeout limits the wait for a DNS query`() async throws {
        try await withWorld {
            $0.serviceQueryTimeout = 86_400_000
        } _: { _, _ in
            .silence
        } _: { world in
            var world = world
            world.origin.connectTimeout = 50
            #expect(await world.fetch("friends.example").kind == "timedOut")
            world.origin.connectTimeout = 600_000
            world.origin.timeout = 50
            #expect(await world.fetch("friends.example").kind == "timedOut")
            // Each query was sent once and ended with its waiter.
            #expect(
                world.names.questions == ["_avatars-sec._tcp.friends.example", "_avatars-sec._tcp.friends.example"])
        }
    }

    @Test func `a response that is too large for a datagram is read over TCP`() async throws {
        try await withWorld { _, port in
            .records(
                (0..<60 as Range<UInt16>).map { number in
                    // The record with the highest priority comes last.
                    .init(
                        priority: 60 - number, port: port,
                        host: number == 59 ? "images.example" : "host\(number).example")
                })
        } _: { world in
            let outcome = await world.fetch("friends.example")
            #expect(outcome.image?.redirectedTo == world.federated(), "\(outcome)")
            #expect(world.names.overTCP == 1)
        }
    }

    // MARK: Restrictions of named hosts

    @Test func `F31, F86: a named host at a private address is refused, even if the upstream may be private`()
        async throws
    {
        try await withWorld(mayReachLoopback: false) { name, port in
            if name.hasSuffix(".nobody.example") { return .noName }
            // Includes the upstream's own host, which the upstream itself may reach.
            return .records([.init(port: port, host: name.contains("own") ? "images.example" : "expired.example")])
        } _: { world in
            var world = world
            world.origin.allow = ["https://images.example:\(world.nginx.securePort)/"]
            world.origin.then = [Upstream(url: world.federated("/{profile}"))]
            world.origin.then[0].allowPrivateAddresses = true
            for domain in ["own.example", "friends.example"] {
                let outcome = await world.fetch(domain)
                #expect(outcome.kind == "denied" && outcome.reason.contains("SRV records"), "\(outcome)")
            }
            let requests = try world.nginx.requests()
            #expect(requests.isEmpty)
            #expect(await world.fetch("nobody.example").kind == "image")
        }
    }

    @Test func `F31, F86: a redirect of a named host to a private address is refused`() async throws {
        // 127.0.0.2 counts as public; 127.0.0.1, the address of the upstream's own host, as private.
        try await withWorld(mayReachLoopback: false, imagesAt: "127.0.0.2") {
            $0.addressGuard.exceptions = [.v4(0x7F00_0002)]
            $0.addressGuard.ownExceptions = [.v4(0x7F00_0002)]
        } _: { _, port in
            .records([.init(port: port, host: "images.example")])
        } _: { world in
            let outcome = await world.fetch("friends.example", "/avatar/inward")
            #expect(outcome.kind == "denied" && outcome.reason.contains("SRV records"), "\(outcome)")
            #expect(await world.fetch("friends.example").image?.redirectedTo == world.federated())
            #expect(await world.fetch("friends.example", "/avatar/moved").kind == "image")
            #expect(await world.fetch(nil).kind == "image")
        }
    }

    @Test func `F86: a redirect of a named host to another service's port is refused`() async throws {
        try await withWorld { _, port in
            .records([.init(port: port, host: "images.example")])
        } _: { world in
            let outcome = await world.fetch("friends.example", "/avatar/other-service")
            #expect(outcome.kind == "denied" && outcome.reason.contains("port 1023"), "\(outcome)")
            // The upstream's own host may redirect there.
            #expect(await world.fetch(nil, "/avatar/other-service").kind != "denied")
        }
    }

    @Test func `F39, F86: named hosts and their redirects get no token`() async throws {
        try await withWorld { _, port in
            .records([.init(port: port, host: "images.example")])
        } _: { world in
            var world = world
            // The host belongs to another upstream, which gets the token.
            world.origin.then = [Upstream(url: world.federated("/{profile}"))]
            world.origin.then[0].showsToken = true
            for path in ["/avatar/token", "/avatar/outward"] {
                let outcome = await world.fetch("friends.example", path, token: Secret("secret".utf8))
                #expect(outcome.kind == "image", "\(outcome)")
            }
            // The upstream's own host gets the token, so the server checks it.
            #expect(await world.fetch(nil, "/avatar/token", token: Secret("secret".utf8)).kind == "missing")
        }
    }

    // MARK: Concurrent requests

    @Test func `I6, F86: all waiters share one DNS query, and a cancelled waiter does not affect the others`()
        async throws
    {
        let (wait, release) = (Gate(), Gate())
        try await withWorld {
            $0.onWaiting = { if $0 == 21 { wait.open() } }
        } _: { _, port in
            release.pass()
            return .records([.init(port: port, host: "images.example")])
        } _: { world in
            let target = DownloadTarget(
                url: world.central(), isNamedByClient: false, federatedDomain: "friends.example")
            let (fetcher, origin) = (world.fetcher, world.origin)
            let download = Download(account: 1, origin: world.origin, target: target, token: nil, framing: .bare)
            let first = try world.fetcher.start(download) { _ in Issue.record("a cancelled download reports an outcome")
            }
            await release.reached()
            async let others = withTaskGroup(of: DownloadOutcome.self) { group in
                for _ in 0..<20 { group.addTask { await Self.outcome(target, fetcher, origin) } }
                return await group.reduce(into: []) { $0.append($1) }
            }
            await wait.opened()
            first.cancel()
            while fetcher.statistics.inFlight > 20 { await Task.yield() }
            release.open()
            for outcome in await others { #expect(outcome.image?.redirectedTo == world.federated(), "\(outcome)") }
            #expect(world.names.questions.count == 1)
        }
    }

    @Test func `I8, F86: a DNS query is cancelled when no waiter remains`()
        async throws
    {
        let (waiting, most) = (NIOLockedValueBox(Gate()), NIOLockedValueBox(0))
        try await withWorld {
            $0.lookups = 1
            $0.serviceQueryTimeout = 86_400_000
            $0.onWaiting = { count in
                most.withLockedValue { $0 = max($0, count) }
                waiting.withLockedValue { $0 }.open()
            }
        } _: { name, _ in
            name.contains("silent") ? .silence : .noName
        } _: { world in
            let target = DownloadTarget(
                url: world.central(), isNamedByClient: false, federatedDomain: "silent.example")
            let download = Download(account: 1, origin: world.origin, target: target, token: nil, framing: .bare)
            func start() async throws -> any DownloadHandle {
                let gate = Gate()
                waiting.withLockedValue { $0 = gate }
                let handle = try world.fetcher.start(download) { _ in
                    Issue.record("a cancelled download reports an outcome")
                }
                await gate.opened()
                return handle
            }
            let first = try await start()
            for _ in 0..<50 { try await start().cancel() }
            // The remaining waiter, a new one, and possibly one whose cancellation is in progress.
            #expect(most.withLockedValue { $0 } <= 3)
            #expect(world.names.questions.count == 1)
            first.cancel()
            while world.fetcher.statistics.inFlight > 0 { await Task.yield() }
            // The query has made room for another.
            let outcome = await world.fetch("friends.example")
            #expect(outcome.kind == "image", "\(outcome)")
        }
    }

    @Test func `I8, F86: DNS queries count as name lookups, and beyond the limit are BUSY`() async throws {
        try await withWorld {
            $0.lookups = 0
        } _: { _, _ in
            .noName
        } _: { world in
            var world = world
            world.origin.breaker = BreakerPolicy(failures: 1, backoff: 86_400_000, backoffMax: 86_400_000)
            for _ in 0..<2 { #expect(await world.fetch("friends.example").kind == "busy") }
            #expect(world.names.questions.isEmpty)
        }
    }

    @Test func `F86: shutdown fails downloads that wait for a DNS query`() async throws {
        let queried = Gate()
        try await withWorld { _, _ in
            queried.open()
            return .silence
        } _: { world in
            let target = DownloadTarget(
                url: world.central(), isNamedByClient: false, federatedDomain: "friends.example")
            let (fetcher, origin) = (world.fetcher, world.origin)
            async let outcome = Self.outcome(target, fetcher, origin)
            await queried.opened()
            world.fetcher.shutdown()
            #expect(await outcome.kind == "shuttingDown")
        }
    }

    @Test func `a stored image is revalidated at the host that it came from`() async throws {
        try await withWorld { name, port in
            name.contains("friends") ? .records([.init(port: port, host: "images.example")]) : .noName
        } _: { world in
            let etag = await world.fetch("friends.example").image?.headers["etag"]
            let held = DownloadCondition(url: world.federated(), etag: etag, lastModified: nil)
            #expect(await world.fetch("friends.example", condition: held).kind == "not modified")
            // The validators do not apply to another host.
            #expect(await world.fetch("nobody.example", condition: held).kind == "image")
        }
    }
}
