import Dispatch
import Fleet
import JSONReader
import JWTKit
import LinuxSupport
import NIOConcurrencyHelpers
import Thumbcache

@testable import thumbcached_oidc

/// F84: what anyone may send to thumbcached-oidc, and the keys of the provider. Nothing may trap, only tokens of the
/// provider pass as signed, and an accepted token leads to a valid command. The first byte selects what the rest is: a
/// form with a token, a key set, the claims of a token, or its header.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = Array(UnsafeRawBufferPointer(start: start, count: count))
    guard let first = bytes.first else { return 0 }
    let rest = Array(bytes.dropFirst())
    switch first & 3 {
    case 0: form(rest)
    case 1: keySet(rest)
    case 2: claims(rest)
    default:
        if let members = JSONValue(rest)?.members, let header = TokenHeader(members) { _ = try? rules.check(header) }
    }
    return 0
}

private let now = 1_700_000_000.0
private let issuer = "https://id.example.org"

private let rules: TokenRules = {
    var rules = TokenRules()
    (rules.issuer, rules.clientID) = (issuer, "thumbnails")
    (rules.otherAudiences, rules.requiresExpiry) = (["mail"], false)
    return rules
}()

/// The public keys of the tokens among the seeds, whose private keys were discarded.
private let providerKeys: KeySet = {
    do {
        let seed = try readTextFile("Tests/FuzzCorpora/LogoutTokenFuzzer/key-set", limit: 1 << 16)
        guard let keys = waiting(for: { try? await KeySet(Array(seed.utf8.dropFirst()), algorithms: rules.algorithms) })
        else { fatalError("no key set") }
        return keys
    } catch {
        fatalError("\(error)")
    }
}()

private func waiting<Value: Sendable>(for body: @escaping @Sendable () async -> Value?) -> Value? {
    let done = DispatchSemaphore(value: 0)
    let result = NIOLockedValueBox<Value?>(nil)
    Task {
        let value = await body()
        result.withLockedValue { $0 = value }
        done.signal()
    }
    done.wait()
    return result.withLockedValue { $0 }
}

private func form(_ body: [UInt8]) {
    let address = String(decoding: body.prefix(64), as: UTF8.self)
    if let normal = ClientAddress.normal(address) {
        check(ClientAddress.normal(normal.text)?.text == normal.text, "an address has two spellings")
    }
    guard let text = try? LogoutForm.token(body), let token = try? CompactToken(text) else { return }
    claims(token.payload)
    guard let algorithm = try? rules.check(token.header),
        case .key(let key) = providerKeys.choose(id: token.header.keyID, for: algorithm),
        (try? key.verify(token.signature, signs: token.signed)) == true
    else { return }
    let signed = try? LogoutClaims(token.payload)
    check(signed?.issuer == issuer, "another token passes as signed")
}

private func keySet(_ json: [UInt8]) {
    guard let keys = waiting(for: { try? await KeySet(json, algorithms: rules.algorithms) }) else { return }
    check(!keys.keys.isEmpty && keys.skipped >= 0, "a key set has no key")
    for key in keys.keys {
        for (algorithm, verifier) in key.verifiers {
            let signature = [UInt8](repeating: 1, count: algorithm.keyKind == .rsa ? 256 : 64)
            check((try? verifier.verify(signature, signs: [1])) != true, "a key accepts any signature")
            _ = keys.choose(id: key.id, for: algorithm)
        }
    }
}

private func claims(_ json: [UInt8]) {
    guard let claims = try? LogoutClaims(json), let end = try? rules.check(claims, at: now) else { return }
    check(end >= Int64(now) && end <= Int64(now) + rules.longestAge + 2 * rules.skew + 1, "a token is valid too long")
    var memory = ReplayMemory(limit: 4)
    check(memory.reserve(claims.id, until: end, at: Int64(now)) == .reserved, "a new token is not reserved")
    memory.confirm(claims.id)
    check(memory.reserve(claims.id, until: end, at: Int64(now)) == .seen, "a token can be replayed")
    let token = LogoutToken(id: claims.id, subject: claims.subject, session: claims.session, end: end)
    guard let user = try? IDTemplate("{sub}@example.org")?.id(token) else { return }
    let command = FleetCommand.logOut(user, session: try? IDTemplate("{sid}")?.id(token))
    guard (try? FleetEntry.check(command)) != nil else { return }
    check(user.description.hasSuffix("@example.org"), "a token names another user")
}

private func check(_ isTrue: Bool, _ claim: StaticString) {
    if !isTrue { fatalError("\(claim)") }
}
