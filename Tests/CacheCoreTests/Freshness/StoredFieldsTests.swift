import Testing

@testable import CacheCore

/// RFC 9111 sections 3.2 and 4.3, RFC 9110 sections 8.8 and 13.1.
@Suite struct StoredFieldsTests {
    private static let june = "Mon, 01 Jun 2026 00:00:00 GMT"
    private static let obsoleteJune = "Monday, 01-Jun-26 00:00:00 GMT"
    private static let may = "Fri, 01 May 2026 00:00:00 GMT"
    private static let now: Int64 = 1_795_219_200

    @Test func `section 4.3.4: a 304 replaces the fields that it names and leaves the others`() {
        let stored = StoredFields(
            cacheControl: "max-age=60", expires: Self.june, pragma: "no-cache", vary: "accept", etag: "\"a\"",
            lastModified: Self.may)
        #expect(stored.updated(by: StoredFields()) == stored)
        let newer = StoredFields(
            cacheControl: "max-age=5", expires: Self.may, pragma: "x", vary: "*", etag: "W/\"a\"",
            lastModified: Self.june)
        #expect(stored.updated(by: newer) == newer)
        #expect(stored.updated(by: StoredFields(expires: "0")).cacheControl == "max-age=60")
        #expect(stored.updated(by: StoredFields(expires: "0")).expires == "0")
    }

    struct Case: Sendable, CustomTestStringConvertible {
        let rule: String
        let stored: StoredFields
        let answer: StoredFields
        let isConfirmed: Bool
        var testDescription: String { rule }
    }

    @Test(arguments: [
        Case(
            rule: "no validator: confirms the stored image", stored: .init(etag: "\"a\""), answer: .init(),
            isConfirmed: true),
        Case(
            rule: "the same strong tag", stored: .init(etag: "\"a\""), answer: .init(etag: "\"a\""), isConfirmed: true),
        Case(
            rule: "another strong tag", stored: .init(etag: "\"a\""), answer: .init(etag: "\"b\""), isConfirmed: false),
        Case(
            rule: "the same weak tag", stored: .init(etag: "W/\"a\""), answer: .init(etag: "W/\"a\""), isConfirmed: true
        ),
        Case(
            rule: "weakened by an intermediary", stored: .init(etag: "\"a\""), answer: .init(etag: "W/\"a\""),
            isConfirmed: true
        ),
        Case(
            rule: "another weak tag", stored: .init(etag: "W/\"a\""), answer: .init(etag: "W/\"b\""), isConfirmed: false
        ),
        Case(
            rule: "the same tag without quotes", stored: .init(etag: "a"), answer: .init(etag: "a"), isConfirmed: true),
        Case(
            rule: "another tag with the same date", stored: .init(etag: "\"a\"", lastModified: june),
            answer: .init(etag: "\"b\"", lastModified: june), isConfirmed: false),
        Case(
            rule: "the same tag with another date", stored: .init(etag: "\"a\"", lastModified: june),
            answer: .init(etag: "\"a\"", lastModified: may), isConfirmed: true),
        Case(
            rule: "the same date", stored: .init(lastModified: june), answer: .init(lastModified: june),
            isConfirmed: true),
        Case(
            rule: "the same date in another form", stored: .init(lastModified: june),
            answer: .init(lastModified: obsoleteJune), isConfirmed: true),
        Case(
            rule: "an earlier date: an older image was restored", stored: .init(lastModified: june),
            answer: .init(lastModified: may), isConfirmed: false),
        Case(
            rule: "a tag and the same date, with only a date stored", stored: .init(lastModified: june),
            answer: .init(etag: "\"a\"", lastModified: june), isConfirmed: true),
        Case(
            rule: "a tag, with only a date stored", stored: .init(lastModified: june),
            answer: .init(etag: "\"a\""), isConfirmed: false),
    ])
    func `section 4.3.4: a 304 confirms the stored image if its validators match`(given: Case) {
        #expect(given.stored.areConfirmed(by: given.answer, now: Self.now) == given.isConfirmed)
    }

    @Test func `RFC 9110 section 13.1.3: an invalid Last-Modified is not sent as a condition`() {
        #expect(StoredFields(lastModified: Self.june).modifiedSince(now: Self.now) == Self.june)
        #expect(StoredFields(lastModified: Self.obsoleteJune).modifiedSince(now: Self.now) == Self.obsoleteJune)
        #expect(StoredFields(lastModified: "Sun").modifiedSince(now: Self.now) == nil)
        #expect(!StoredFields(lastModified: "Sun").hasValidator(now: Self.now))
        #expect(StoredFields(etag: "x", lastModified: "Sun").hasValidator(now: Self.now))
        #expect(!StoredFields(cacheControl: "max-age=1").hasValidator(now: Self.now))
    }

    @Test func `lists are joined in order; of single-valued fields the first line is stored`() {
        let fields = StoredFields(
            ResponseHeaders([
                "cache-control": ["max-age=5", "private"], "expires": ["a", "b"], "etag": ["W/\"x\"", "\"y\""],
                "last-modified": ["Sun"], "vary": ["a", "b"], "pragma": ["p"], "date": ["d"], "age": ["1"],
            ]))
        #expect(
            fields
                == StoredFields(
                    cacheControl: "max-age=5, private", expires: "a", pragma: "p", vary: "a, b", etag: "W/\"x\"",
                    lastModified: "Sun"))
    }

    @Test func `I8: an overlong field is replaced by its most restrictive value`() {
        let long = String(repeating: "x", count: 1_025)
        let fields = StoredFields(
            ResponseHeaders([
                "cache-control": [long], "expires": [long], "pragma": [long], "vary": [long], "etag": [long],
                "last-modified": [long],
            ]))
        #expect(fields == StoredFields(cacheControl: "no-store", expires: "", vary: "*"))
        let longest = String(repeating: "x", count: 1_024)
        #expect(StoredFields(ResponseHeaders(["etag": [longest]])).etag == longest)
        #expect(StoredFields(ResponseHeaders(["etag": [""]])).etag == nil)
    }
}
