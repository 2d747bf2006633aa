/// What a look at one thing came to.
struct Diagnostic: Equatable {
    enum Verdict: String {
        case ok
        /// As it should be, and still worth knowing.
        case note
        case wrong
        /// Nobody knows: it could not be looked at.
        case unknown
    }

    let verdict: Verdict
    let what: String
    /// What to do.
    let remedy: String?

    static func ok(_ what: String) -> Diagnostic { Diagnostic(verdict: .ok, what: what, remedy: nil) }

    static func note(_ what: String, _ remedy: String? = nil) -> Diagnostic {
        Diagnostic(verdict: .note, what: what, remedy: remedy)
    }

    static func wrong(_ what: String, _ remedy: String) -> Diagnostic {
        Diagnostic(verdict: .wrong, what: what, remedy: remedy)
    }

    /// Without a remedy, the examined daemon says as whom everything can be examined.
    static func unknown(_ what: String, _ remedy: String? = nil) -> Diagnostic {
        Diagnostic(verdict: .unknown, what: what, remedy: remedy)
    }

    /// The same, with this remedy if it is unknown and has none.
    func with(_ accessAdvice: String) -> Diagnostic {
        verdict == .unknown && remedy == nil ? Diagnostic(verdict: verdict, what: what, remedy: accessAdvice) : self
    }
}

/// One subject that is looked at.
protocol DoctorCheck {
    var name: String { get }
    func look(at daemon: InstalledDaemon) async -> [Diagnostic]
}

/// What was found of all.
struct Diagnosis {
    let diagnostics: [(check: String, diagnostic: Diagnostic)]

    /// For people: a line each, and what to do in a line of its own.
    func lines(on terminal: Terminal) -> [String] {
        let indent = String(repeating: " ", count: 9 + 15)
        return diagnostics.flatMap { check, diagnostic in
            let verdict = terminal.paint(padded(diagnostic.verdict.rawValue, 9), Self.style(diagnostic.verdict))
            let line = verdict + padded(check, 15) + PlainText.escape(diagnostic.what)
            return [line] + (diagnostic.remedy.map { [indent + "-> " + PlainText.escape($0)] } ?? [])
        }
    }

    var json: String {
        JSON.array(
            diagnostics.map { check, diagnostic in
                .object([
                    ("check", .string(check)), ("verdict", .string(diagnostic.verdict.rawValue)),
                    ("what", .string(diagnostic.what)), ("remedy", diagnostic.remedy.map(JSON.string) ?? .null),
                ])
            }
        ).text
    }

    /// What is wrong decides, then what nobody knows.
    var failure: Failure? {
        func count(_ verdict: Diagnostic.Verdict) -> Int { diagnostics.count { $0.diagnostic.verdict == verdict } }
        func things(_ count: Int) -> String { count == 1 ? "1 thing" : "\(count) things" }
        let (wrong, unknown) = (count(.wrong), count(.unknown))
        let rest = "\(things(unknown)) could not be looked at"
        if wrong > 0 {
            let what = "\(things(wrong)) \(wrong == 1 ? "is" : "are") wrong"
            return Failure(.refused, unknown > 0 ? "\(what), and \(rest)" : what)
        }
        return unknown > 0 ? Failure(.unreachable, "nothing that was looked at is wrong, but \(rest)") : nil
    }

    private static func style(_ verdict: Diagnostic.Verdict) -> Terminal.Style {
        switch verdict {
        case .ok: .green
        case .note, .unknown: .yellow
        case .wrong: .red
        }
    }

    private func padded(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.count))
    }
}
