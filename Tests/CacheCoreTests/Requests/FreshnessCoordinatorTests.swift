import Foundation
import Testing

@testable import CacheCore

/// The result of a GET by the age of the stored image. The image is fresh for an hour, then served during revalidation
/// for ten minutes, and on errors until two hours after it was stored.
@Suite struct FreshnessCoordinatorTests {
    private static let download = "download \(CoordinatorBench.usual)"

    struct Case: Sendable, CustomTestStringConvertible {
        let age: Int64
        let download: ImageQuery.Download
        let effects: [String]
        var testDescription: String { "\(age) s old, download \(download)" }

        init(_ age: Int64, download: ImageQuery.Download = .awaited, _ effects: [String]) {
            self.age = age
            self.download = download
            self.effects = effects
        }
    }

    static let cases = [
        Case(0, ["a: held from disk"]),
        Case(3_599, ["a: held from disk"]),
        Case(3_600, ["a: held from disk, stale", download]),
        Case(4_199, ["a: held from disk, stale", download]),
        Case(4_200, [download]),
        Case(7_199, [download]),
        Case(7_200, [download]),
        Case(3_599, download: .never, ["a: held from disk"]),
        Case(3_600, download: .never, ["a: held from disk, stale"]),
        Case(4_200, download: .never, ["a: held from disk, stale"]),
        Case(1_000_000, download: .never, ["a: held from disk, stale"]),
        Case(3_599, download: .inBackground, ["a: held from disk"]),
        Case(3_600, download: .inBackground, ["a: held from disk, stale", download]),
        Case(4_200, download: .inBackground, ["a: held from disk, stale", download]),
        Case(1_000_000, download: .inBackground, ["a: held from disk, stale", download]),
    ]

    @Test(arguments: cases)
    func `the age of an image on disk decides whether it is served or downloaded`(given: Case) {
        var bench = CoordinatorBench()
        bench.now += given.age
        #expect(bench.get("a", download: given.download) == ["read"])
        #expect(bench.readEnds(.sample("held")) == given.effects)
    }

    @Test(arguments: cases)
    func `the age of an image in memory decides whether it is served or downloaded`(given: Case) {
        var bench = CoordinatorBench()
        bench.now += given.age
        bench.memory = .sample("held")
        #expect(
            bench.get("a", download: given.download)
                == given.effects.map { $0.replacingOccurrences(of: "disk", with: "memory") })
    }

    @Test func `a stale image is revalidated by one background download, however many requests come`() {
        var bench = CoordinatorBench()
        bench.now += 3_700
        bench.memory = .sample("held")
        #expect(bench.get("a") == ["a: held from memory, stale", Self.download])
        #expect(bench.get("b") == ["b: held from memory, stale"])
        #expect(bench.get("c") == ["c: held from memory, stale"])
        #expect(bench.finishes(.image(.sample("new"), storable: true)) == ["store new"])
    }

    @Test func `I6: a background download continues when its only waiter leaves`() {
        var bench = CoordinatorBench()
        bench.now += 4_199
        bench.memory = .sample("held")
        _ = bench.get("a")
        bench.now += 10
        #expect(bench.get("b") == [])
        #expect(bench.leaves("b") == [])
    }

    @Test func `if the origin fails, a stale image is served within its window and not after it`() {
        for (age, answer) in [(4_200, "held from disk, stale"), (7_199, "held from disk, stale"), (7_200, "timeout")] {
            var bench = CoordinatorBench()
            bench.now += Int64(age)
            _ = bench.get("a")
            _ = bench.readEnds(.sample("held"))
            #expect(bench.finishes(.failed(.timedOut("late"))) == ["a: \(answer)"])
        }
    }

    @Test(
        arguments: [
            (.timedOut("late"), true), (.origin("HTTP status 503"), true), (.badImage("HTML"), true),
            (.tooLarge("6 MiB"), true), (.busy("64 wait"), true), (.unauthorized("HTTP status 401"), false),
            (.forbidden("HTTP status 403"), false), (.denied("a private address"), false), (.shuttingDown, false),
        ] as [(CacheFailure, Bool)])
    func `RFC 5861 section 4: a stale image is served after a failure, but not after a refusal`(
        failure: CacheFailure, isServed: Bool
    ) {
        var bench = CoordinatorBench()
        bench.now += 4_200
        bench.memory = .sample("held")
        _ = bench.get("a")
        let answer = bench.finishes(.failed(failure))
        #expect((answer == ["a: held from memory, stale"]) == isServed)
    }

    @Test func `F36: a waiter that times out gets the stale image`() {
        var bench = CoordinatorBench()
        bench.now += 4_200
        bench.memory = .sample("held")
        _ = bench.get("a")
        #expect(bench.expires("a") == ["a: held from memory, stale", "grace \(CoordinatorBench.usual)"])
    }

    @Test func `CACHED waits for no download and starts none`() {
        var bench = CoordinatorBench()
        #expect(bench.get("a", download: .never) == ["read"])
        #expect(bench.readEnds() == ["a: null"])
        #expect(bench.coordinator.isIdle)
    }

    @Test func `NOWAIT waits for no download, and starts one`() {
        var bench = CoordinatorBench()
        #expect(bench.get("a", download: .inBackground) == ["read"])
        #expect(bench.readEnds() == ["a: null", Self.download])
        #expect(bench.get("b", download: .inBackground) == ["read"])
        #expect(bench.readEnds() == ["b: null"])
        #expect(bench.finishes(.image(.sample("new"), storable: true)) == ["store new"])
    }

    @Test func `NOWAIT starts no download after a recent failure or 404`() {
        for result in [.failed(.timedOut("late")), .missing(until: CoordinatorBench.start + 60, family: 0)]
            as [RequestCoordinator.DownloadResult]
        {
            var bench = CoordinatorBench()
            _ = bench.get("a", download: .inBackground)
            _ = bench.readEnds()
            _ = bench.finishes(result)
            _ = bench.get("b", download: .inBackground)
            #expect(bench.readEnds().map { $0.contains(Self.download) } != true)
        }
    }

    @Test func `a waiter that joins a NOWAIT download does not get an image past its stale windows`() {
        var bench = CoordinatorBench()
        bench.now += 7_200
        bench.memory = .sample("held")
        #expect(bench.get("a", download: .inBackground) == ["a: held from memory, stale", Self.download])
        #expect(bench.get("b") == [])
        #expect(bench.finishes(.failed(.timedOut("late"))) == ["b: timeout"])
    }

    @Test func `without an origin the result is the stored image or null`() {
        var bench = CoordinatorBench()
        bench.route = .success(nil)
        _ = bench.get("a")
        #expect(bench.readEnds() == ["a: null"])
        bench.now += 3_700
        _ = bench.get("b")
        #expect(bench.readEnds(.sample("held")) == ["b: held from disk, stale"])
        bench.now += 600
        _ = bench.get("c")
        #expect(bench.readEnds(.sample("held")) == ["c: null"])
    }

    @Test func `ids that cannot form a URL are an error only if the origin is needed`() {
        var bench = CoordinatorBench()
        bench.route = .failure(.invalid("a segment .."))
        _ = bench.get("a")
        #expect(bench.readEnds(.sample("held")) == ["a: held from disk"])
        _ = bench.get("b")
        #expect(bench.readEnds()?.first?.hasPrefix("b: invalid") == true)
        _ = bench.get("c", download: .never)
        #expect(bench.readEnds() == ["c: null"])
    }

    @Test func `an image that was PUT without TTL stays fresh`() {
        var bench = CoordinatorBench()
        bench.memory = .sample("mine", from: nil, lifetime: nil)
        bench.now += 1_000_000_000
        #expect(bench.get("a") == ["a: mine from memory"])
    }
}
