import Foundation
import Testing

@testable import thumbcached_http

#if canImport(FoundationXML)
    import FoundationXML
#endif

@Suite struct DefaultImageTests {
    private func image(
        _ query: String, usual: DefaultImage.Word = .notFound, allowed: [String] = []
    ) throws -> DefaultImage {
        DefaultImage(try #require(ImageQuery(query)), usual: usual, allowed: allowed.compactMap { URLPrefix($0) })
    }

    @Test func `d names a default image, and an unknown or missing one is that of the configuration`() throws {
        #expect(try image("d=404", usual: .person) == .notFound)
        for name in ["mp", "mm", "mystery"] { #expect(try image("d=\(name)") == .person) }
        #expect(try image("d=blank") == .blank)
        #expect(try image("d=initials&initials=JD") == .initials("JD"))
        #expect(try image("d=initials") == .person)
        for query in ["", "d=", "d=identicon", "d=robohash", "d=MP", "d=../../etc/passwd"] {
            for usual in [DefaultImage.Word.notFound, .blank] {
                #expect(try image(query, usual: usual) == (usual == .blank ? .blank : .notFound))
            }
        }
        #expect(try image("name=Ada+Lovelace", usual: .initials) == .initials("AL"))
    }

    private static let prefix = "https://static.example.org/avatars/"

    @Test(
        arguments: [
            ("\(prefix)nobody.png", true), (prefix, true), ("\(prefix)a/b.png?v=2#x", true),
            ("\(prefix)a%20b.png", true),
            ("\(prefix)a..b/c.png", true),
            ("https://static.example.org/", false), ("https://static.example.org/avatarsx/a.png", false),
            ("http://static.example.org/avatars/a.png", false), ("HTTPS://static.example.org/avatars/a.png", false),
            ("https://static.example.org.evil.example/avatars/", false), ("https://evil.example/\(prefix)", false),
            ("https://static.example.org@evil.example/avatars/a.png", false),
            ("//static.example.org/avatars/a.png", false), ("javascript:alert(1)", false), ("data:image/png,a", false),
            ("\(prefix)../secret.png", false), ("\(prefix)..", false), ("\(prefix)a/%2E%2e/b", false),
            ("\(prefix)..%2fb", false), ("\(prefix)..;/b", false), ("\(prefix)..\\b", false), ("\(prefix)a%5cb", false),
            ("\(prefix)a b", false), ("\(prefix)a\r\nSet-Cookie: a=b", false), ("\(prefix)\u{f6}", false),
            ("\(prefix)a\0", false), ("\(prefix)<script>", false), ("\(prefix)\"", false),
            ("\(prefix)\(String(repeating: "a", count: 2_048))", false),
        ] as [(String, Bool)])
    func `F88: a URL is a default image only if the configuration covers it`(url: String, isAllowed: Bool) throws {
        let query = try #require(ImageQuery("d=" + Self.encoded(url)))
        let image = DefaultImage(query, usual: .blank, allowed: [try #require(URLPrefix(Self.prefix))])
        #expect(image == (isAllowed ? .url(url) : .blank))
        #expect(DefaultImage(query, usual: .blank, allowed: []) == .blank)
    }

    @Test(arguments: [
        "https://a.example/", "http://127.0.0.1:8000/static/", "https://[::1]/a/b/",
    ])
    func `a prefix has a scheme, a host and a path that ends with a slash`(text: String) {
        #expect(URLPrefix(text)?.text == text)
    }

    @Test(arguments: [
        "", "https://", "https:///", "https://a.example", "https://a.example/b", "ftp://a.example/", "//a.example/",
        "https://a@b.example/", "https://a.example/?b/", "https://a.example/../", "https://a.example/%2e/",
        "https://a.example/ /",
    ])
    func `any other prefix is invalid`(text: String) { #expect(URLPrefix(text) == nil) }

    @Test(
        arguments: [
            ("", "John Doe", "JD"), ("", "john", "J"), ("", "  Ada  King  Lovelace ", "AL"),
            ("", "\u{f6}zil", "\u{d6}"),
            ("ab", "John Doe", "AB"), ("abc", "", "AB"), ("a b", "", "AB"), ("", "", ""), ("", " \t ", ""),
            ("\u{202e}\u{0}\u{ffff}", "", ""), ("", "\u{202e}john", "J"), ("<&", "", "<&"),
            ("\u{5f20}\u{4e09}", "", "\u{5f20}\u{4e09}"),
            ("\u{1f469}\u{1f3fd}", "", "\u{1f469}\u{1f3fd}"),
        ] as [(String, String, String)])
    func `initials are two letters at most`(initials: String, name: String, expected: String) {
        #expect(Initials.letters(initials: initials, name: name) == expected)
    }

    @Test func `initials are bounded`() {
        let combining = "a" + String(repeating: "\u{301}", count: 100)
        #expect(Initials.letters(initials: combining + combining, name: "").unicodeScalars.count <= 8)
        let long = String(repeating: "x", count: 100_000)
        #expect(Initials.letters(initials: "", name: "\(long) y") == "X")
    }

    @Test(arguments: [
        "AB", "<>", "&\"", "']", "]]", "<script>alert(1)</script>", "\" onload=\"alert(1)", "&#60;",
        "\u{1f469}\u{1f3fd}",
        "\u{0}\u{7}\u{1b}",
    ])
    func `F88: every drawing is XML whose elements and attributes are its own`(text: String) throws {
        let drawing = DefaultDrawing(size: 40, hash: "0bc83cb571cd1c50ba6f3e8a78ef1346")
        let letters = Initials.letters(initials: text, name: "")
        for svg in [drawing.initials(letters), drawing.person, drawing.blank] {
            let found = Elements()
            let parser = XMLParser(data: Data(svg.utf8))
            parser.delegate = found
            #expect(parser.parse(), "\(svg)")
            #expect(found.names.isSubset(of: ["svg", "rect", "circle", "path", "text"]))
            let harmless: Set = [
                "xmlns", "width", "height", "viewBox", "fill", "cx", "cy", "r", "d", "x", "y", "dy", "text-anchor",
                "font-family", "font-size",
            ]
            #expect(found.attributes.isSubset(of: harmless), "\(found.attributes)")
            #expect(svg.hasPrefix("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"40\" height=\"40\""))
        }
        let found = Elements()
        let parser = XMLParser(data: Data(drawing.initials(letters).utf8))
        parser.delegate = found
        _ = parser.parse()
        #expect(found.text.trimmingCharacters(in: .newlines) == letters)
    }

    @Test func `the hash chooses the color`() {
        let hashes = (0..<64).map { String(repeating: "0", count: 30) + ($0 < 10 ? "0\($0)" : "\($0)") }
        let colors = Set(hashes.map { DefaultDrawing(size: 1, hash: $0).color })
        #expect(colors.count > 6 && colors.isSubset(of: DefaultDrawing.colors))
        #expect(DefaultDrawing(size: 1, hash: hashes[0]).color == DefaultDrawing(size: 9, hash: hashes[0]).color)
    }

    private static func encoded(_ text: String) -> String {
        text.utf8.map { byte in "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16) }.joined()
    }

    private final class Elements: NSObject, XMLParserDelegate {
        var names: Set<String> = []
        var attributes: Set<String> = []
        var text = ""

        func parser(
            _ parser: XMLParser, didStartElement name: String, namespaceURI: String?, qualifiedName: String?,
            attributes: [String: String]
        ) {
            names.insert(name)
            self.attributes.formUnion(attributes.keys)
        }

        func parser(_ parser: XMLParser, foundCharacters string: String) { text += string }
    }
}
