import NIOCore

/// Draws default images as SVG, without styles, scripts and references.
struct DefaultDrawing: Equatable, Sendable {
    /// Pixels.
    let size: Int
    /// The hash of the profile, which chooses the color of initials.
    let hash: String

    /// Colors on which white text has a contrast of at least 4.5.
    static let colors = [
        "#b03a2e", "#9c4a1a", "#7a6000", "#3f6f1f", "#1e7145", "#0f6b5c", "#1f618d", "#2e4a9e", "#6c3483", "#8e2f6b",
        "#a0304f", "#4a5568",
    ]

    var color: String {
        let sum = hash.utf8.reduce(0) { ($0 * 31 + Int($1)) % 65_536 }
        return Self.colors[sum % Self.colors.count]
    }

    var person: String {
        svg(
            """
            <rect width="100" height="100" fill="#d7dbe0"/><circle cx="50" cy="38" r="19" fill="#8a93a0"/>\
            <path d="M12 100c0-24 17-38 38-38s38 14 38 38z" fill="#8a93a0"/>
            """)
    }

    var blank: String { svg("") }

    func initials(_ letters: String) -> String {
        let points = letters.count > 1 ? 42 : 50
        return svg(
            """
            <rect width="100" height="100" fill="\(color)"/><text x="50" y="50" dy="0.36em" text-anchor="middle" \
            font-family="system-ui, sans-serif" font-size="\(points)" fill="#ffffff">\(PageText.escaped(letters))</text>
            """)
    }

    private func svg(_ content: String) -> String {
        """
        <svg xmlns="http://www.w3.org/2000/svg" width="\(size)" height="\(size)" viewBox="0 0 100 100">\(content)</svg>

        """
    }
}
