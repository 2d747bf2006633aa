import CacheCore
import LinuxSupport

@testable import ImageFetcher

/// Feeds the reader of a token endpoint's answers with bytes that anybody may have written. Nothing may trap, and what
/// is taken for a token is one.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    // Its end is the end of the memory: a byte read too far is one that the sanitizer sees.
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    let longest = 1_000
    switch TokenAnswer.read(bytes, status: 200, host: "h", longestToken: longest) {
    case .success(let grant):
        check(grant.accessToken, 0x21...0x7E, longest)
        if let refreshToken = grant.refreshToken { check(refreshToken, 0x20...0x7E, longest) }
        precondition(grant.lifetime.map { 0...315_360_000 ~= $0 } ?? true, "a lifetime is out of its range")
    case .failure(.unusable(_, let refreshToken)):
        check(refreshToken, 0x20...0x7E, longest)
    case .failure:
        break
    }
    _ = TokenAnswer.read(bytes, status: 400, host: "h", longestToken: longest)
    return 0
}

private func check(_ token: Secret, _ characters: ClosedRange<UInt8>, _ longest: Int) {
    precondition(1...longest ~= token.count, "a token is empty or too long")
    token.withBytes { precondition($0.allSatisfy(characters.contains), "a token holds what none can have") }
}
