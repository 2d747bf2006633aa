import FoundationEssentials

/// What a logout token says: OpenID Connect Back-Channel Logout 1.0, section 2.4. Read only behind its signature.
struct LogoutClaims: Sendable {
    var issuer: String
    /// One or several, however they are written.
    var audiences: [String]
    /// Seconds since 1970.
    var issuedAt: Double
    var expires: Double
    /// `jti`
    var id: String
    var subject: String?
    /// `sid`
    var session: String?

    static let event = "http://schemas.openid.net/event/backchannel-logout"
    private static let longestID = 255

    init(_ json: [UInt8]) throws(LogoutFailure) {
        do {
            self = try JSONDecoder().decode(Claims.self, from: Data(json)).claims
        } catch let failure as LogoutFailure {
            throw failure
        } catch {
            throw .invalid("the logout token's claims are no JSON object")
        }
    }

    /// Of the members those that there is a rule for; others are nobody's concern.
    private struct Claims: Decodable {
        let claims: LogoutClaims

        init(from decoder: any Decoder) throws {
            claims = try LogoutClaims(try decoder.container(keyedBy: Name.self))
        }
    }

    private init(_ members: KeyedDecodingContainer<Name>) throws {
        issuer = try members.claim("iss", "a text")
        let audience = try members.claim("aud", "a text or a list of texts") as Audience
        audiences = audience.names
        issuedAt = try members.claim("iat", "a time in seconds")
        expires = try members.claim("exp", "a time in seconds")
        id = try members.claim("jti", "a text")
        guard 1...Self.longestID ~= id.utf8.count else {
            throw LogoutFailure.invalid("the logout token's jti has to have 1 to \(Self.longestID) bytes")
        }
        let events = try members.claim("events", "an object") as Members
        guard events.names.contains(Self.event) else {
            throw LogoutFailure.invalid("the logout token's events lack that of a back-channel logout")
        }
        guard events.objects.contains(Self.event) else {
            throw LogoutFailure.invalid("the logout token's event is no object")
        }
        // With one it could be an ID token that somebody has made pass for this.
        guard !members.contains("nonce") else { throw LogoutFailure.invalid("the logout token has a nonce") }
        subject = members.contains("sub") ? try members.claim("sub", "a text") as String : nil
        session = members.contains("sid") ? try members.claim("sid", "a text") as String : nil
        guard subject != nil || session != nil else {
            throw LogoutFailure.invalid("the logout token has neither sub nor sid")
        }
    }

    private struct Audience: Decodable {
        let names: [String]

        init(from decoder: any Decoder) throws {
            let value = try decoder.singleValueContainer()
            do {
                names = [try value.decode(String.self)]
            } catch is DecodingError {
                names = try value.decode([String].self)
            }
        }
    }

    /// The names of an object's members, and which of them are objects.
    private struct Members: Decodable {
        let names: Set<String>
        let objects: Set<String>

        init(from decoder: any Decoder) throws {
            let members = try decoder.container(keyedBy: Name.self)
            var objects: Set<String> = []
            for name in members.allKeys {
                do {
                    _ = try members.nestedContainer(keyedBy: Name.self, forKey: name)
                    objects.insert(name.stringValue)
                } catch is DecodingError {
                    // Something else, of which nothing is to be known.
                }
            }
            (names, self.objects) = (Set(members.allKeys.map(\.stringValue)), objects)
        }
    }
}

private struct Name: CodingKey, ExpressibleByStringLiteral {
    let stringValue: String
    var intValue: Int? { nil }

    init(stringValue: String) { self.stringValue = stringValue }
    init(stringLiteral: String) { stringValue = stringLiteral }
    init?(intValue: Int) { nil }
}

extension KeyedDecodingContainer<Name> {
    fileprivate func claim<Value: Decodable>(_ name: Name, _ what: String) throws -> Value {
        guard contains(name) else { throw LogoutFailure.invalid("the logout token has no \(name.stringValue)") }
        do {
            return try decode(Value.self, forKey: name)
        } catch is DecodingError {
            throw LogoutFailure.invalid("the logout token's \(name.stringValue) is not \(what)")
        }
    }
}
