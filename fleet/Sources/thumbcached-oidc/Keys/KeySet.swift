import FoundationEssentials
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
        let listed: [JSONKey]
        do {
            listed = try JSONDecoder().decode(JSONKeys.self, from: Data(json)).keys
        } catch {
            throw KeyFailure("the answer is no JSON Web Key Set (RFC 7517)")
        }
        guard listed.count <= Self.mostKeys else {
            throw KeyFailure("the answer has \(listed.count) keys: at most \(Self.mostKeys) are taken")
        }
        var keys: [Key] = []
        for key in listed {
            if let key = await key.usable(for: algorithms) { keys.append(key) }
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

private struct JSONKeys: Decodable {
    let keys: [JSONKey]
}

/// One key. It is never an error of the whole set: RFC 7517, section 5, has keys ignored that are not understood.
private struct JSONKey: Decodable {
    private var key: JWK?
    private var kind: KeyKind?
    private var isForSignatures = false
    private var algorithm: String?

    private enum Member: String, CodingKey {
        case kty, crv, use, alg
        case operations = "key_ops"
    }

    init(from decoder: any Decoder) throws {
        do {
            let members = try decoder.container(keyedBy: Member.self)
            kind = KeyKind(
                type: try members.decode(String.self, forKey: .kty),
                curve: try members.decodeIfPresent(String.self, forKey: .crv))
            let use = try members.decodeIfPresent(String.self, forKey: .use)
            let operations = try members.decodeIfPresent([String].self, forKey: .operations)
            isForSignatures = (use ?? "sig") == "sig" && (operations ?? ["verify"]).contains("verify")
            algorithm = try members.decodeIfPresent(String.self, forKey: .alg)
            key = try JWK(from: decoder)
        } catch is DecodingError {
            key = nil
        }
    }

    func usable(for allowed: [SignatureAlgorithm]) async -> KeySet.Key? {
        guard var key, let kind, isForSignatures else { return nil }
        let id = key.keyIdentifier?.string
        // Whoever publishes them publishes his secret; here nothing is ever signed.
        (key.privateExponent, key.prime1, key.prime2) = (nil, nil, nil)
        // The library wants a name, and chooses by names; here it has one key at a time, and nothing to choose.
        key.keyIdentifier = "key"
        var verifiers: [SignatureAlgorithm: any JWTAlgorithm] = [:]
        for candidate in allowed
        where candidate.keyKind == kind && (algorithm ?? candidate.rawValue) == candidate.rawValue {
            key.algorithm = JWK.Algorithm(rawValue: candidate.rawValue)
            do {
                verifiers[candidate] = try await JWTKeyCollection().add(jwk: key).getKey(for: "key")
            } catch {
                // No point of the curve, an RSA key of fewer than 2,048 bits.
                return nil
            }
        }
        return verifiers.isEmpty ? nil : KeySet.Key(id: id, verifiers: verifiers)
    }
}
