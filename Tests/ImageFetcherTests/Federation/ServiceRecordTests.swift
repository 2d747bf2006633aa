import NIOCore
import Testing

@testable import ImageFetcher
@testable import Origins

/// Whom SRV records name, in which order, and for how long that is believed.
@Suite struct ServiceRecordTests {
    private func record(_ host: String, _ priority: UInt16 = 0, weight: UInt16 = 0, port: UInt16 = 443) -> ServiceRecord
    {
        ServiceRecord(priority: priority, weight: weight, port: port, host: host)
    }

    @Test func `hosts of a lower priority come first, whatever their weights`() {
        let records = [
            record("c", 30, weight: 65_535), record("a", 10), record("b", 20, weight: 1), record("d", 65_535),
        ]
        for draw in [{ $0.lowerBound }, { $0.upperBound }] as [(ClosedRange<Int64>) -> Int64] {
            #expect(records.inOrder(draw: draw).map(\.host) == ["a", "b", "c", "d"])
        }
    }

    @Test func `among equals each is first as often as its weight says`() {
        let records = [record("a", weight: 3), record("b", weight: 1), record("zero"), record("c", weight: 6)]
        var firsts: [String: Int] = [:]
        // 0 to the sum of the weights, each once; 0 is for those without a weight.
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

    @Test func `who has been drawn is out of the sum for the next`() {
        var ranges: [ClosedRange<Int64>] = []
        let order = [record("a", weight: 5), record("b", weight: 7)].inOrder { range in
            ranges.append(range)
            return 6
        }
        #expect(order.map(\.host) == ["b", "a"] && ranges == [0...12, 0...5])
    }

    // MARK: URLs

    @Test(arguments: [
        ("pictures.example", 443, "https://pictures.example/avatar/00ff?s=80&d=404"),
        ("Pictures.Example", 443, "https://pictures.example/avatar/00ff?s=80&d=404"),
        ("pictures.example", 8443, "https://pictures.example:8443/avatar/00ff?s=80&d=404"),
        ("pictures.example", 1024, "https://pictures.example:1024/avatar/00ff?s=80&d=404"),
        // Other services.
        ("pictures.example", 0, nil), ("pictures.example", 25, nil), ("pictures.example", 80, nil),
        ("pictures.example", 1023, nil),
        // No names of hosts.
        ("", 443, nil), ("localhost", 443, nil), ("127.0.0.1", 443, nil), ("2130706433", 443, nil),
        ("0x7f.1", 443, nil), ("a.example/x", 443, nil), ("a.example:1@b.example", 443, nil),
        ("a\\.b.example", 443, nil), ("a b.example", 443, nil), ("\u{e4}.example", 443, nil), ("a.example#x", 443, nil),
        ("a.example?x", 443, nil),
        // In no DNS.
        ("printer.local", 443, nil), ("a.localhost", 443, nil), ("A.Onion", 443, nil), ("a.invalid", 8443, nil),
    ])
    func `F86: a host that a domain names takes the place of the link's, or is none`(
        host: String, port: UInt16, expected: String?
    ) throws {
        let link = try WebURL("https://central.example/avatar/00ff?s=80&d=404")
        let urls = [record(host, port: port)].urls(for: link) { $0.lowerBound }
        #expect(urls.map(\.string) == (expected.map { [$0] } ?? []))
    }

    @Test func `I8: three hosts are tried at most`() throws {
        let records = (0..<16 as Range<UInt16>).map { record("host\($0).example", $0, port: $0 == 1 ? 25 : 443) }
        let link = try WebURL("https://central.example:444/avatar/a")
        let urls = records.urls(for: link) { $0.lowerBound }
        #expect(urls.map(\.host) == ["host0.example", "host2.example", "host3.example"])
    }

    // MARK: What is kept

    private let start = NIODeadline.uptimeNanoseconds(0)

    @Test(arguments: [
        (1, -1, 60), (1, 0, 60), (1, 59, 60), (1, 300, 300), (1, 86_400, 86_400), (1, 2_147_483_647, 86_400),
        (0, -1, 60), (0, 0, 60), (0, 300, 300), (0, 3_600, 3_600), (0, 86_400, 3_600),
    ])
    func `F86: an answer is good for as long as it says, within bounds`(count: Int, says seconds: Int, kept: Int64) {
        var answers = ServiceAnswers()
        let records = (0..<count).map { _ in record("a.example") }
        answers.keep(records, of: "d.example", for: seconds, uid: 1, at: start)
        #expect(answers.records(of: "d.example", at: start + .seconds(kept) - .nanoseconds(1)) == records)
        #expect(answers.records(of: "d.example", at: start + .seconds(kept)) == nil)
        #expect(answers.records(of: "e.example", at: start) == nil)
    }

    @Test func `F86, I8: one uid's domains take the place of others' answers only while it has fewer`() {
        var answers = ServiceAnswers()
        for number in 0..<10 { answers.keep([], of: "mine\(number)", for: 300, uid: 1, at: start) }
        for number in 0..<5_000 { answers.keep([], of: "other\(number)", for: 300, uid: 2, at: start) }
        #expect(answers.count == ServiceAnswers.most)
        for number in 0..<10 { #expect(answers.records(of: "mine\(number)", at: start) != nil) }
        // What is known is renewed without making room.
        answers.keep([], of: "mine0", for: 600, uid: 1, at: start)
        #expect(answers.records(of: "mine0", at: start + .seconds(599)) != nil && answers.count == ServiceAnswers.most)
        // What is out of date goes first.
        answers.keep([], of: "new", for: 300, uid: 1, at: start + .seconds(301))
        #expect(answers.count == 2)
    }

    // MARK: What is read

    /// Two records and one of another kind, with a name that points back.
    private static let message: [UInt8] =
        [0, 1, 0x81, 0x80, 0, 1, 0, 3, 0, 0, 0, 0] + [1, 0x61, 7] + Array("example".utf8) + [0, 0, 33, 0, 1]
        + [0xC0, 12, 0, 33, 0, 1, 0, 0, 1, 44, 0, 12, 0, 10, 0, 5, 1, 0xBB, 3, 0x77, 0x77, 0x77, 0xC0, 14]
        + [0xC0, 12, 0, 16, 0, 1, 0, 0, 0, 200, 0, 2, 1, 0x78]
        + [0xC0, 12, 0, 33, 0, 1, 0, 0, 2, 0, 0, 7, 0, 20, 0, 0, 0, 80, 0]

    private func read(_ bytes: [UInt8]) -> ServiceAnswer { ServiceQuery.read(bytes, CInt(bytes.count)) }

    @Test func `records are read with the least lifetime of the answer, and without those that name nobody`() {
        let expected = ServiceRecord(priority: 10, weight: 5, port: 443, host: "www.example")
        #expect(read(Self.message) == .records([expected], seconds: 200))
        #expect(ServiceQuery.read(nil, 0) == .failed("what a name server said is no answer"))
    }

    @Test func `F86: an answer that is cut off or altered is read as far as it is one, and traps nothing`() {
        for count in 0..<Self.message.count {
            #expect(read(Array(Self.message.prefix(count))) == .failed("what a name server said is no answer"))
        }
        #expect(read(Self.message + [0]) == .failed("what a name server said is no answer"))
        for index in Self.message.indices {
            for byte in 0...255 as ClosedRange<UInt8> {
                var message = Self.message
                message[index] = byte
                guard case .records(let records, _) = read(message) else { continue }
                #expect(records.allSatisfy { $0.host.utf8.count < 1_025 })
            }
        }
    }

    @Test func `I8: of a huge answer some records are read`() {
        let one = Self.message[27..<51]
        var message = Array(Self.message.prefix(27))
        message.replaceSubrange(6..<8, with: [0x03, 0xE8])
        for _ in 0..<1_000 { message += one }
        guard case .records(let records, 300) = read(message) else {
            _ = Issue.record("it was not read")
            return
        }
        #expect(records.count == ServiceQuery.mostRecords)
    }
}
