import JSONReader
import JWTKit

/// The provider's public keys: a JWK set (RFC 7517).
struct KeySet: Sendable {
    struct Key: Sendable {
        let id: String?
        /// Signature verifiers for each allowed algorithm of the key.
        let verifiers: [SignatureAlgorithm: any JWTAlgorithm]
    }

    let keys: [Key]
    /// Number of unusable keys: unsupported type, for encryption, too short.
    let skipped: Int

    /// Providers publish two or three.
    private static let mostKeys = 64

    /// - Throws: if no key is usable.
    init(_ json: [UInt8], algorithms: [SignatureAlgorithm]) async throws(KeyFailure) {
        guard let listed = JSONValue(json)?.members?["keys"]?.elements else {
            throw KeyFailure("the response is not a JSON Web Key Set (RFC 7517)")
        }
        guard listed.count <= Self.mostKeys else {
            throw KeyFailure("the response has \(listed.count) keys; at most \(Self.mostKeys) are allowed")
        }
        var keys: [Key] = []
        for key in listed {
            if let key = await JSONKey(key)?.usable(for: algorithms) { keys.append(key) }
        }
        guard !keys.isEmpty else { throw KeyFailure("the response has no key for any of oidc.algorithms") }
        self.keys = keys
        skipped = listed.count - keys.count
    }

    enum Choice: Sendable {
        case key(any JWTAlgorithm)
        /// No key has this id; a newer set may.
        case unknown
        /// The key does not support the algorithm; or no id was given and several keys match.
        case unfit
    }

    /// - Parameter id: a token's `kid`. Without it exactly one key must match: OpenID Connect Core 1.0,
    ///   section 10.1.
    func choose(id: String?, for algorithm: SignatureAlgorithm) -> Choice {
        if let id {
            let named = keys.filter { $0.id.map { $0.utf8.elementsEqual(id.utf8) } ?? false }
            guard !named.isEmpty else { return .unknown }
            // RFC 7517, section 4.5: keys of different types may share an id.
            let fit = named.compactMap { $0.verifiers[algorithm] }
            return fit.count == 1 ? .key(fit[0]) : .unfit
        }
        let fit = keys.compactMap { $0.verifiers[algorithm] }
        return fit.count == 1 ? .key(fit[0]) : .unfit
    }
}

/// A failed key download.
struct KeyFailure: Error, Equatable, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}

/// A public key for signatures, as a JWK describes it. Unsupported keys are ignored: RFC 7517, section 5.
private struct JSONKey {
    private let kind: KeyKind
    private let id: String?
    /// The key's `alg`; nil for any algorithm of its type.
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
            // Only public members are read. The library requires an identifier.
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
