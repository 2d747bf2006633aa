import LinuxSupport
import NIOCore
import ProgramSupport

extension SettingParser<IDTemplate?> {
    static var template: Self {
        SettingParser<String>.text.map { text throws(SettingError) in
            guard let template = IDTemplate(text) else {
                throw SettingError(
                    "\(quoted(text)) is not a template: it must contain {sub} or {sid}, as in \"{sub}@example.org\", and "
                        + "no other braces")
            }
            return template
        }
    }
}

extension SettingParser<SignatureAlgorithm> {
    static var algorithm: Self {
        SettingParser<String>.text.map { text throws(SettingError) in
            guard let algorithm = SignatureAlgorithm(rawValue: text) else {
                let names = SignatureAlgorithm.allCases.map { "\"\($0.rawValue)\"" }.joined(separator: ", ")
                throw SettingError("\(quoted(text)) is not a supported algorithm: write one of \(names)")
            }
            return algorithm
        }
    }
}

extension SettingParser<String> {
    /// Requires https, except for this machine: over plain HTTP an attacker on the network could replace the keys.
    static var keyURL: Self {
        webURL.checked { url in
            let plain = "http://"
            guard url.lowercased().hasPrefix(plain) else { return nil }
            // libcurl does not end the authority at a backslash: http://127.0.0.1\@example.org/ is at example.org.
            let authority = url.dropFirst(plain.count).prefix { !"/?#".contains($0) }
            let host = authority.prefix { $0 != ":" }
            let isHere = host == "localhost" || host.hasPrefix("127.") && ClientAddress.normal(String(host)) != nil
            return isHere && !authority.contains("@")
                ? nil : "begins with http://; use https:// except for an address of this machine"
        }
    }
}

extension SettingParser<Int64> {
    /// Converts milliseconds to whole seconds, the unit of token times.
    var seconds: Self {
        map { value throws(SettingError) in
            guard value % 1_000 == 0 else {
                throw SettingError("\(quoted(Quantity.time.format(Int(value)))) is not a whole number of seconds")
            }
            return value / 1_000
        }
    }
}
