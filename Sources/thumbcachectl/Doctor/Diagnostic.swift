/// The result of examining one item.
struct Diagnostic: Equatable {
    enum Verdict: String {
        case ok
        /// Not a problem, but worth knowing.
        case note
        case wrong
        /// The item could not be examined.
        case unknown
    }

    let verdict: Verdict
    let what: String
    let remedy: String?

    static func ok(_ what: String) -> Diagnostic { Diagnostic(verdict: .ok, what: what, remedy: nil) }

    static func note(_ what: String, _ remedy: String? = nil) -> Diagnostic {
        Diagnostic(verdict: .note, what: what, remedy: remedy)
    }

    static func wrong(_ what: String, _ remedy: String) -> Diagnostic {
        Diagnostic(verdict: .wrong, what: what, remedy: remedy)
    }

    /// Without a remedy, ``with(_:)`` adds how to get access.
    static func unknown(_ what: String, _ remedy: String? = nil) -> Diagnostic {
        Diagnostic(verdict: .unknown, what: what, remedy: remedy)
    }

    /// A copy with this remedy if the verdict is unknown and no remedy is set.
    func with(_ accessAdvice: String) -> Diagnostic {
        verdict == .unknown && remedy == nil ? Diagnostic(verdict: verdict, what: what, remedy: accessAdvice) : self
    }
}

protocol DoctorCheck {
    var name: String { get }
    func diagnose(_ daemon: InstalledDaemon) async -> [Diagnostic]
}

struct Diagnosis {
    let diagnostics: [(check: String, diagnostic: Diagnostic)]

    /// One line per result, and its remedy on a line of its own.
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

    /// The failure for the exit status. Problems take precedence over unknown results.
    var failure: Failure? {
        func count(_ verdict: Diagnostic.Verdict) -> Int { diagnostics.count { $0.diagnostic.verdict == verdict } }
        func counted(_ count: Int, _ noun: String) -> String { "\(count) \(noun)\(count == 1 ? "" : "s")" }
        let (wrong, unknown) = (count(.wrong), count(.unknown))
        let rest = "\(counted(unknown, "item")) could not be examined"
        if wrong > 0 {
            let what = "\(counted(wrong, "problem")) found"
            return Failure(.refused, unknown > 0 ? "\(what); \(rest)" : what)
        }
        return unknown > 0 ? Failure(.unreachable, "no problem found, but \(rest)") : nil
    }

    private static func style(_ verdict: Diagnostic.Verdict) -> Terminal.Style {
        switch verdict {
        case .ok: .green
        case .note, .unknown: .yellow
        case .wrong: .red
        }
    }
}
