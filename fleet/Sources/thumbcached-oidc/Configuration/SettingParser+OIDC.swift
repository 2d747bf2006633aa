import LinuxSupport
import NIOCore
import ProgramSupport

extension SettingParser<IDTemplate?> {
    static var template: Self {
        SettingParser<String>.text.map { text throws(SettingError) in
            guard let template = IDTemplate(text) else {
                throw SettingError(
                    "\(quoted(text)) is no template: it has to have {sub} or {sid}, as in \"{sub}@example.org\", and "
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
                throw SettingError("\(quoted(text)) is not among those that public keys can check: \(names)")
            }
            return algorithm
        }
    }
}

extension SettingParser<String> {
    /// Keys that came by plain HTTP would be whose the network is. From this machine there is no network.
    static var keyURL: Self {
        webURL.checked { url in
            let plain = "http://"
            guard url.lowercased().hasPrefix(plain) else { return nil }
            let authority = url.dropFirst(plain.count).prefix { !"/?#\\".contains($0) }
            let host = authority.prefix { $0 != ":" }
            let isHere = host == "localhost" || host.hasPrefix("127.") && ClientAddress.normal(String(host)) != nil
            return isHere && !authority.contains("@")
                ? nil : "begins with http://: keys are taken by https:// from other machines than this"
        }
    }
}

extension SettingParser<Int64> {
    /// Tokens count in seconds: milliseconds as whole ones.
    var seconds: Self {
        map { value throws(SettingError) in
            guard value % 1_000 == 0 else {
                throw SettingError("\(quoted(Quantity.time.format(Int(value)))) is not a whole number of seconds")
            }
            return value / 1_000
        }
    }
}
