import NIOCore
import Testing

@testable import ImageFetcher
@testable import Origins

/// Selection of hosts from SRV records, and caching of the records.
@Suite struct ServiceRecordTests {
    private func record(_ host: String, _ priority: UInt16 = 0, weight: UInt16 = 0, port: UInt16 = 443) -> ServiceRecord
    {
        ServiceRecord(priority: priority, weight: weight, port: port, host: host)
    }

    @Test func `records with lower priority values come first, whatever their weights`() {
        let records = [
            record("c", 30, weight: 65_535), record("a", 10), record("b", 20, weight: 1), record("d", 65_535),
        ]
        for draw in [{ $0.lowerBound }, { $0.upperBound }] as [(ClosedRange<Int64>) -> Int64] {
            #expect(records.inOrder(draw: draw).map(\.host) == ["a", "b", "c", "d"])
        }
    }

    @Test func `among equal priorities the order is random by weight`() {
        let records = [record("a", weight: 3), record("b", weight: 1), record("zero"), record("c", weight: 6)]
        var firsts: [String: Int] = [:]
        // Each value from 0 to the sum of the weights; 0 selects a record without weight.
        for number in 0...10 as ClosedRange<Int64> {
            var isFirst = true
            let order = records.inOrder { range in
                defer { isFirst = false }
                if isFirst { #expect(range == 0...10) }
                return isFirst ? number : range.upperBound
            }
            #expect(Set(order) == Set(records) && order.count == 4)
            firsts[order.first?.host ?? "", default: 0] += 1
        }
        #expect(firsts == ["a": 3, "b": 1, "c": 6, "zero": 1])
    }

    @Test func `a selected record is removed from the sum of weights`() {
        var ranges: [ClosedRange<Int64>] = []
        let order = [record("a", weight: 5), record("b", weight: 7)].inOrder { range in
            ranges.append(range)
            return 6
        }
        #expect(order.map(\.host) == ["b", "a"] && ranges == [0...12, 0...5])
    }

    // MARK: URLs

    @Test(arguments: [
        ("images.example", 443, "https://images.example/avatar/00ff?s=80&d=404"),
        ("Images.Example", 443, "https://images.example/avatar/00ff?s=80&d=404"),
        ("images.example", 8443, "https://images.example:8443/avatar/00ff?s=80&d=404"),
        ("images.example", 1024, "https://images.example:1024/avatar/00ff?s=80&d=404"),
        // Ports of other services.
        ("images.example", 0, nil), ("images.example", 25, nil), ("images.example", 80, nil),
        ("images.example", 1023, nil),
        // Not host names.
        ("", 443, nil), ("localhost", 443, nil), ("127.0.0.1", 443, nil), ("2130706433", 443, nil),
        ("0x7f.1", 443, nil), ("a.example/x", 443, nil), ("a.example:1@b.example", 443, nil),
        ("a\\.b.example", 443, nil), ("a b.example", 443, nil), ("\u{e4}.example", 443, nil), ("a.example#x", 443, nil),
        ("a.example?x", 443, nil),
        // Not valid in DNS.
        ("printer.local", 443, nil), ("a.localhost", 443, nil), ("A.Onion", 443, nil), ("a.invalid", 8443, nil),
    ])
    func `F86: a named host replaces that of the upstream, unless it is invalid`(
        host: String, port: UInt16, expected: String?
    ) throws {
        let link = try WebURL("https://central.example/avatar/00ff?s=80&d=404")
        let urls = [record(host, port: port)].urls(for: link) { $0.lowerBound }
        #expect(urls.map(\.string) == (expected.map { [$0] } ?? []))
    }

    @Test func `I8: at most three hosts are tried`() throws {
        let records = (0..<16 as Range<UInt16>).map { record("host\($0).example", $0, port: $0 == 1 ? 25 : 443) }
        let link = try WebURL("https://central.example:444/avatar/a")
        let urls = records.urls(for: link) { $0.lowerBound }
        #expect(urls.map(\.host) == ["host0.example", "host2.example", "host3.example"])
    }

    // MARK: Caching

    private let start = NIODeadline.uptimeNanoseconds(0)

    @Test(arguments: [
        (1, -1, 60), (1, 0, 60), (1, 59, 60), (1, 300, 300), (1, 86_400, 86_400), (1, 2_147_483_647, 86_400),
        (0, -1, 60), (0, 0, 60), (0, 300, 300), (0, 3_600, 3_600), (0, 86_400, 3_600),
    ])
    func `F86: a response is cached for its time to live, within bounds`(count: Int, ttl seconds: Int, cached: Int64) {
        var cache = ServiceCache()
        let records = (0..<count).map { _ in record("a.example") }
        cache.insert(records, of: "d.example", for: seconds, account: 1, at: start)
        #expect(cache.records(of: "d.example", at: start + .seconds(cached) - .nanoseconds(1)) == records)
        #expect(cache.records(of: "d.example", at: start + .seconds(cached)) == nil)
        #expect(cache.records(of: "e.example", at: start) == nil)
    }

    @Test func `F86, I8: a full cache evicts responses of the account with the most`() {
        var cache = ServiceCache()
        for number in 0..<10 { cache.insert([], of: "mine\(number)", for: 300, account: 1, at: start) }
        for number in 0..<5_000 { cache.insert([], of: "other\(number)", for: 300, account: 2, at: start) }
        #expect(cache.count == ServiceCache.maximumEntries)
        for number in 0..<10 { #expect(cache.records(of: "mine\(number)", at: start) != nil) }
        // Replacing a cached response evicts nothing.
        cache.insert([], of: "mine0", for: 600, account: 1, at: start)
        #expect(cache.records(of: "mine0", at: start + .seconds(599)) != nil)
        #expect(cache.count == ServiceCache.maximumEntries)
        // Expired responses are evicted first.
        cache.insert([], of: "new", for: 300, account: 1, at: start + .seconds(301))
        #expect(cache.count == 2)
    }

    // MARK: Parsing

    /// Two SRV records and a TXT record, with compressed names.
    private static let message: [UInt8] =
        [0, 1, 0x81, 0x80, 0, 1, 0, 3, 0, 0, 0, 0] + [1, 0x61, 7] + Array("example".utf8) + [0, 0, 33, 0, 1]
        + [0xC0, 12, 0, 33, 0, 1, 0, 0, 1, 44, 0, 12, 0, 10, 0, 5, 1, 0xBB, 3, 0x77, 0x77, 0x77, 0xC0, 14]
        + [0xC0, 12, 0, 16, 0, 1, 0, 0, 0, 200, 0, 2, 1, 0x78]
        + [0xC0, 12, 0, 33, 0, 1, 0, 0, 2, 0, 0, 7, 0, 20, 0, 0, 0, 80, 0]

    private func read(_ bytes: [UInt8]) -> ServiceResponse { ServiceQuery.read(bytes, CInt(bytes.count)) }

    @Test func `records are read with the shortest time to live, and without records that name no host`() {
        let expected = ServiceRecord(priority: 10, weight: 5, port: 443, host: "www.example")
        #expect(read(Self.message) == .records([expected], seconds: 200))
        #expect(ServiceQuery.read(nil, 0) == .failed("malformed response from the name server"))
    }

    @Test func `F86: truncated and altered responses do not trap`() {
        for count in 0..<Self.message.count {
            #expect(read(Array(Self.message.prefix(count))) == .failed("malformed response from the name server"))
        }
        #expect(read(Self.message + [0]) == .failed("malformed response from the name server"))
        for index in Self.message.indices {
            for byte in 0...255 as ClosedRange<UInt8> {
                var message = Self.message
                message[index] = byte
                guard case .records(let records, _) = read(message) else { continue }
                #expect(records.allSatisfy { $0.host.utf8.count < 1_025 })
            }
        }
    }

    @Test func `I8: the number of records read is limited`() {
        let one = Self.message[27..<51]
        var message = Array(Self.message.prefix(27))
        message.replaceSubrange(6..<8, with: [0x03, 0xE8])
        for _ in 0..<1_000 { message += one }
        guard case .records(let records, 300) = read(message) else {
            Issue.record("the response is not parsed")
            return
        }
        #expect(records.count == ServiceQuery.maximumRecords)
    }
}
