import NIOCore
import Testing

@testable import ThumbcacheProtocol

@Suite struct RequestPropertyTests {
    @Test(arguments: 0..<50)
    func `Requests written and read again are the same, however they are cut`(seed: UInt64) {
        var random = SplitMix(seed: seed)
        let requests = (0..<8).map { _ in randomRequest(&random) }
        let bytes = requests.flatMap(encode)
        #expect(decodeRequests(randomPieces(of: bytes, &random)) == Outcome(messages: requests))
    }

    @Test(arguments: 0..<50)
    func `F22: mutated requests are read or refused, the same however they are cut`(seed: UInt64) {
        var random = SplitMix(seed: 1000 + seed)
        let limits = RequestLimits(arguments: 64, argumentBytes: 400, frameBytes: 2000)
        for _ in 0..<40 {
            var bytes = (0..<2).flatMap { _ in encode(randomRequest(&random)) }
            for _ in 0..<Int.random(in: 1...4, using: &random) { mutate(&bytes, &random) }
            let whole = decodeRequests([bytes[...]], limits: limits)
            #expect(decodeRequests(randomPieces(of: bytes, &random), limits: limits) == whole)
            #expect(decodeRequests(bytes.indices.map { bytes[$0...$0] }, limits: limits) == whole)
        }
    }

    private func randomPieces(of bytes: [UInt8], _ random: inout SplitMix) -> [ArraySlice<UInt8>] {
        var pieces: [ArraySlice<UInt8>] = []
        var start = 0
        while start < bytes.count {
            let end = min(bytes.count, start + Int.random(in: 0...60, using: &random))
            pieces.append(bytes[start..<end])
            start = end
        }
        return pieces
    }

    /// Most mutations go where the structure is.
    private func mutate(_ bytes: inout [UInt8], _ random: inout SplitMix) {
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
