/// What a look at one thing came to.
struct Finding: Equatable {
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

    static func ok(_ what: String) -> Finding { Finding(verdict: .ok, what: what, remedy: nil) }

    static func note(_ what: String, _ remedy: String? = nil) -> Finding {
        Finding(verdict: .note, what: what, remedy: remedy)
    }

    static func wrong(_ what: String, _ remedy: String) -> Finding {
        Finding(verdict: .wrong, what: what, remedy: remedy)
    }

    /// Without a remedy, the examined daemon says as whom everything can be examined.
    static func unknown(_ what: String, _ remedy: String? = nil) -> Finding {
        Finding(verdict: .unknown, what: what, remedy: remedy)
    }

    /// The same, with this remedy if it is unknown and has none.
    func with(_ accessAdvice: String) -> Finding {
        verdict == .unknown && remedy == nil ? Finding(verdict: verdict, what: what, remedy: accessAdvice) : self
    }
}

/// One subject that is looked at.
protocol DoctorCheck {
    var name: String { get }
    func look(at daemon: InstalledDaemon) async -> [Finding]
}

/// What was found of all.
struct Diagnosis {
    let findings: [(check: String, finding: Finding)]

    /// For people: a line each, and what to do in a line of its own.
    func lines(on terminal: Terminal) -> [String] {
        let indent = String(repeating: " ", count: 9 + 15)
        return findings.flatMap { check, finding in
            let verdict = terminal.paint(padded(finding.verdict.rawValue, 9), Self.style(finding.verdict))
            let line = verdict + padded(check, 15) + PlainText.escape(finding.what)
            return [line] + (finding.remedy.map { [indent + "-> " + PlainText.escape($0)] } ?? [])
        }
    }

    var json: String {
        JSON.array(
            findings.map { check, finding in
                .object([
                    ("check", .string(check)), ("verdict", .string(finding.verdict.rawValue)),
                    ("what", .string(finding.what)), ("remedy", finding.remedy.map(JSON.string) ?? .null),
                ])
            }
        ).text
    }

    /// What is wrong decides, then what nobody knows.
    var failure: Failure? {
        func count(_ verdict: Finding.Verdict) -> Int { findings.count { $0.finding.verdict == verdict } }
        func things(_ count: Int) -> String { count == 1 ? "1 thing" : "\(count) things" }
        let (wrong, unknown) = (count(.wrong), count(.unknown))
        let rest = "\(things(unknown)) could not be looked at"
        if wrong > 0 {
            let what = "\(things(wrong)) \(wrong == 1 ? "is" : "are") wrong"
            return Failure(.refused, unknown > 0 ? "\(what), and \(rest)" : what)
        }
        return unknown > 0 ? Failure(.unreachable, "nothing that was looked at is wrong, but \(rest)") : nil
    }

    private static func style(_ verdict: Finding.Verdict) -> Terminal.Style {
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
