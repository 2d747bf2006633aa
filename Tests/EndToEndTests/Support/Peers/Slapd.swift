import Foundation
import Glibc

/// OpenLDAP's server on loopback, with TLS, and its log of searches.
final class Slapd {
    static let base = "dc=example,dc=org"
    static let account = "cn=reader,\(base)"
    static let password = "a secret of the directory"

    let port: UInt16
    private let log: String

    /// - Parameters:
    ///   - entries: LDIF of the entries below ``base``.
    ///   - tls: serves ldaps and no ldap.
    init(
        _ machine: Machine, _ entries: String, tls: (authority: String, certificate: String, key: String)? = nil
    ) throws {
        let home = try machine.makeDirectory("slapd-\(machine.nextNumber())")
        log = "\(home)/searches.log"
        port = try freePort()
        mkdir("\(home)/data", 0o700)
        let certificates = tls.map { "TLSCertificateFile \($0.certificate)\nTLSCertificateKeyFile \($0.key)\n" } ?? ""
        try write(
            """
            include /etc/ldap/schema/core.schema
            include /etc/ldap/schema/cosine.schema
            include /etc/ldap/schema/inetorgperson.schema
            pidfile \(home)/pid
            \(certificates)
            database ldif
            suffix "\(Self.base)"
            directory \(home)/data
            access to attrs=userPassword by anonymous auth
            access to * by dn.exact="\(Self.account)" read

            """, to: "\(home)/slapd.conf")
        try write(
            """
            dn: \(Self.base)
            objectClass: dcObject
            objectClass: organization
            o: Example
            dc: example

            dn: \(Self.account)
            objectClass: person
            cn: reader
            sn: reader
            userPassword: \(Self.password)

            \(entries)
            """, to: "\(home)/entries.ldif")
        try machine.runSuccessfully(["slapadd", "-f", "\(home)/slapd.conf", "-l", "\(home)/entries.ldif"])
        let process = try machine.start(
            [
                "slapd", "-f", "\(home)/slapd.conf", "-h", "\(tls == nil ? "ldap" : "ldaps")://127.0.0.1:\(port)/",
                "-d", "stats",
            ], errors: .file(log))
        try eventually("slapd listens on port \(port)") {
            if let status = process.exitStatus() {
                throw Failure("slapd ended with status \(status): \(try readText(log))")
            }
            guard let connection = try? connectTCP(port) else { return false }
            close(connection)
            return true
        }
    }

    /// The filters of all searches so far. slapd logs a search before it responds.
    func filters() throws -> [String] {
        try readText(log).matches(of: /SRCH base=.* filter="(.*)"/).map { String($0.output.1) }
    }

    static func person(_ name: String, _ image: [UInt8]? = nil) -> String {
        let photo = image.map { "jpegPhoto:: \(Data($0).base64EncodedString())\n" } ?? ""
        return """
            dn: cn=\(name),\(base)
            objectClass: inetOrgPerson
            cn: \(name)
            sn: \(name)
            mail: \(name)@example.org
            \(photo)

            """
    }
}
