/// The letters of a default image.
enum Initials {
    /// Maximum length of the input in bytes; longer text is truncated.
    static let longest = 256
    /// Maximum number of scalars of a letter, with its combining characters.
    private static let mostScalars = 4

    /// Returns at most two letters: the given initials, else the first letters of the first and last word of the name.
    /// Empty if neither has a visible character.
    static func letters(initials: String, name: String) -> String {
        let given = visible(initials).filter { !$0.isWhitespace }
        if !given.isEmpty { return given.prefix(2).map(letter).joined() }
        let words = visible(name).split(whereSeparator: \.isWhitespace)
        let ends = [words.first, words.count > 1 ? words.last : nil].compactMap { $0?.first }
        return ends.map(letter).joined()
    }

    /// Keeps letters, digits, signs and blanks. Without the characters that XML forbids, that change the text direction
    /// or that are not assigned.
    private static func visible(_ text: String) -> String {
        let scalars = String(decoding: text.utf8.prefix(longest), as: UTF8.self).unicodeScalars.filter { scalar in
            switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .surrogate, .unassigned: false
            default: scalar != "\u{fffd}"
            }
        }
        return String(scalars)
    }

    private static func letter(_ character: Character) -> String {
        String(String.UnicodeScalarView(String(character).unicodeScalars.prefix(mostScalars))).uppercased()
    }
}
