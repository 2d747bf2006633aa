import CacheCore
import LinuxSupport

@testable import ImageFetcher

/// Parses responses of a token endpoint from untrusted bytes. Nothing may trap, and accepted tokens are valid.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    // In a separate allocation, so that reads past the end are detected.
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    let longest = 1_000
    switch TokenResponse.read(bytes, status: 200, host: "h", longestToken: longest) {
    case .success(let grant):
        check(grant.accessToken, 0x21...0x7E, longest)
        if let refreshToken = grant.refreshToken { check(refreshToken, 0x20...0x7E, longest) }
        precondition(grant.lifetime.map { 0...315_360_000 ~= $0 } ?? true, "a lifetime is out of range")
    case .failure(let failure):
        if let refreshToken = failure.refreshToken { check(refreshToken, 0x20...0x7E, longest) }
    }
    _ = TokenResponse.read(bytes, status: 400, host: "h", longestToken: longest)
    return 0
}

private func check(_ token: Secret, _ characters: ClosedRange<UInt8>, _ longest: Int) {
    precondition(1...longest ~= token.count, "a token is empty or too long")
    token.withBytes { precondition($0.allSatisfy(characters.contains), "a token contains an invalid character") }
}
