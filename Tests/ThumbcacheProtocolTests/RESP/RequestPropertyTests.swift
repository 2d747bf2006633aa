import NIOCore
import TestSupport
import Testing

@testable import ThumbcacheProtocol

@Suite struct RequestPropertyTests {
    @Test(arguments: 0..<50)
    func `Encoded requests are decoded unchanged, however they are split`(seed: UInt64) {
        var random = SeededRandom(seed: seed)
        let requests = (0..<8).map { _ in randomRequest(&random) }
        let bytes = requests.flatMap(encode)
        #expect(decodeRequests(randomPieces(of: bytes, &random)) == Outcome(messages: requests))
    }

    @Test(arguments: 0..<50)
    func `F22: the result for mutated requests does not depend on how they are split`(seed: UInt64) {
        var random = SeededRandom(seed: 1000 + seed)
        let limits = RequestLimits(arguments: 64, payloadBytes: 2000, argument: 400)
        for _ in 0..<40 {
            var bytes = (0..<2).flatMap { _ in encode(randomRequest(&random)) }
            for _ in 0..<Int.random(in: 1...4, using: &random) { mutate(&bytes, &random) }
            let whole = decodeRequests([bytes[...]], limits: limits)
            #expect(decodeRequests(randomPieces(of: bytes, &random), limits: limits) == whole)
            #expect(decodeRequests(bytes.indices.map { bytes[$0...$0] }, limits: limits) == whole)
        }
    }

    private func randomPieces(of bytes: [UInt8], _ random: inout SeededRandom) -> [ArraySlice<UInt8>] {
        var pieces: [ArraySlice<UInt8>] = []
        var start = 0
        while start < bytes.count {
            let end = min(bytes.count, start + Int.random(in: 0...60, using: &random))
            pieces.append(bytes[start..<end])
            start = end
        }
        return pieces
    }

    /// Most mutations affect the structure.
    private func mutate(_ bytes: inout [UInt8], _ random: inout SeededRandom) {
        guard let index = bytes.indices.randomElement(using: &random) else { return }
        let structure = "*$\r\n0123456789-+ ".bytes
        switch Int.random(in: 0...4, using: &random) {
        case 0: bytes[index] = UInt8.random(in: 0...255, using: &random)
        case 1: bytes[index] = structure.randomElement(using: &random) ?? 0
        case 2: bytes.insert(structure.randomElement(using: &random) ?? 0, at: index)
        case 3: bytes.remove(at: index)
        default: bytes.removeSubrange(index...)
        }
    }
}
