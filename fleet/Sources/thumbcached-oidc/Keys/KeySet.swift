import JSONReader
import JWTKit

/// The provider's public keys, as one answer of its JWKS endpoint has them: RFC 7517.
struct KeySet: Sendable {
    struct Key: Sendable {
        let id: String?
        /// What checks a signature, for each algorithm that the key is for and that is allowed.
        let verifiers: [SignatureAlgorithm: any JWTAlgorithm]
    }

    let keys: [Key]
    /// Those that are of no use here: of another kind, for encryption, too short.
    let skipped: Int

    /// Of one answer. Providers have two or three.
    private static let mostKeys = 64

    /// - Throws: where there is not one key that can be used.
    init(_ json: [UInt8], algorithms: [SignatureAlgorithm]) async throws(KeyFailure) {
        guard let listed = JSONValue(json)?.members?["keys"]?.elements else {
            throw KeyFailure("the answer is no JSON Web Key Set (RFC 7517)")
        }
        guard listed.count <= Self.mostKeys else {
            throw KeyFailure("the answer has \(listed.count) keys: at most \(Self.mostKeys) are taken")
        }
        var keys: [Key] = []
        for key in listed {
            if let key = await JSONKey(key)?.usable(for: algorithms) { keys.append(key) }
        }
        guard !keys.isEmpty else { throw KeyFailure("the answer has no key for any of oidc.algorithms") }
        self.keys = keys
        skipped = listed.count - keys.count
    }

    enum Choice: Sendable {
        case key(any JWTAlgorithm)
        /// No key has that name. A newer set may have it.
        case unknown
        /// Such a key is there, and is not for this algorithm; or no name was given, and several could be meant.
        case unfit
    }

    /// - Parameter id: a token's `kid`. Without one there has to be one key alone that could be meant: OpenID Connect
    ///   Core 1.0, section 10.1.
    func choose(id: String?, for algorithm: SignatureAlgorithm) -> Choice {
        if let id {
            let named = keys.filter { $0.id.map { $0.utf8.elementsEqual(id.utf8) } ?? false }
            guard !named.isEmpty else { return .unknown }
            // RFC 7517, section 4.5: keys of different kinds may share a name.
            let fit = named.compactMap { $0.verifiers[algorithm] }
            return fit.count == 1 ? .key(fit[0]) : .unfit
        }
        let fit = keys.compactMap { $0.verifiers[algorithm] }
        return fit.count == 1 ? .key(fit[0]) : .unfit
    }
}

/// Why there are no keys.
struct KeyFailure: Error, Equatable, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}

/// A public key for signatures, as a JWK describes it. Keys that are not understood are ignored: RFC 7517, section 5.
private struct JSONKey {
    private let kind: KeyKind
    private let id: String?
    /// The only algorithm that the key is for; nil for any of its kind.
    private let algorithm: String?
    private let key: JWK

    private struct Unusable: Error {}

    init?(_ json: JSONValue) {
        guard let members = json.members else { return nil }
        func text(_ name: String) throws(Unusable) -> String? {
            guard let member = members[name], !member.isNull else { return nil }
            guard let text = member.text else { throw Unusable() }
            return text
        }
        do throws(Unusable) {
            let operations = members["key_ops"].flatMap { $0.isNull ? nil : $0.texts ?? [] } ?? ["verify"]
            guard let kind = KeyKind(type: try text("kty") ?? "", curve: try text("crv")),
                (try text("use") ?? "sig") == "sig", operations.contains("verify")
            else { return nil }
            (self.kind, id, algorithm) = (kind, try text("kid"), try text("alg"))
            // Only public members are read. The library requires a name, which it is given one key at a time.
            let (name, x, y): (JWKIdentifier, String?, String?) = ("key", try text("x"), try text("y"))
            key =
                switch kind {
                case .rsa: .rsa(nil, identifier: name, modulus: try text("n"), exponent: try text("e"))
                case .p256: .ecdsa(nil, identifier: name, x: x, y: y, curve: .p256)
                case .p384: .ecdsa(nil, identifier: name, x: x, y: y, curve: .p384)
                case .p521: .ecdsa(nil, identifier: name, x: x, y: y, curve: .p521)
                case .ed25519: .octetKeyPair(nil, identifier: name, x: x, y: nil, curve: .ed25519)
                }
        } catch {
            return nil
        }
    }

    func usable(for allowed: [SignatureAlgorithm]) async -> KeySet.Key? {
        var key = key
        var verifiers: [SignatureAlgorithm: any JWTAlgorithm] = [:]
        for candidate in allowed
        where candidate.keyKind == kind && (algorithm ?? candidate.rawValue) == candidate.rawValue {
            key.algorithm = JWK.Algorithm(rawValue: candidate.rawValue)
            do {
                verifiers[candidate] = try await JWTKeyCollection().add(jwk: key).getKey(for: "key")
            } catch {
                // Not a point on the curve, or an RSA key of fewer than 2,048 bits.
                return nil
            }
        }
        return verifiers.isEmpty ? nil : KeySet.Key(id: id, verifiers: verifiers)
    }
}
