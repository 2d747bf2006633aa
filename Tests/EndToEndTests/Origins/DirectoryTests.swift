import Foundation
import Glibc
import Testing

extension EndToEnd.Origins {
    /// An origin with LDAP, and a real directory.
    struct DirectoryTests {
        /// Larger than libcurl's and libldap's buffers.
        private static let image = TestImage.gif("bob", size: 200_000)

        private func daemon(
            _ machine: Machine, _ authority: String, filter: String = "(mail={profile})",
            password: String = Slapd.password, more: (Daemon) -> Void = { _ in }
        ) throws -> Daemon {
            let file = machine.path("password")
            try write(password + "\n", to: file)
            chmod(file, 0o600)
            return try machine.daemon("daemon-\(machine.nextNumber())") { daemon in
                daemon.settings.setOrigin("\(authority)/\(Slapd.base)?jpegPhoto?sub?\(filter)")
                daemon.settings["origins.default", "bind"] = .table([
                    "name": .string(Slapd.account), "password-file": .string(file),
                ])
                more(daemon)
            }
        }

        @Test func `an image comes from the directory, and a missing entry or attribute is remembered`() throws {
            try withMachine { machine in
                let listener = try listenTCP(backlog: 8)
                defer { close(listener.descriptor) }
                let elsewhere = """
                    dn: ou=away,\(Slapd.base)
                    objectClass: referral
                    objectClass: extensibleObject
                    ou: away
                    ref: ldap://127.0.0.1:\(listener.port)/ou=away,\(Slapd.base)

                    """
                let slapd = try Slapd(
                    machine, Slapd.person("bob", Self.image) + Slapd.person("carol") + elsewhere)
                let daemon = try daemon(machine, "ldap://127.0.0.1:\(slapd.port)")
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob@example.org") == .bulk(Self.image))
                #expect(try client.call("GET", "alice", "carol@example.org") == .null)
                #expect(try client.call("GET", "alice", "nobody@example.org") == .null)
                // In the filter, these characters are part of the value.
                for profile in ["*", "*)(mail=*", "b*b@example.org", "bob@example.org)(cn=*", "\\2a"] {
                    #expect(try client.call("GET", "alice", profile) == .null)
                }
                let filters = try slapd.filters()
                #expect(filters.count == 8 && filters.contains("(mail=\\2A\\29\\28mail=\\2A)"), "\(filters)")
                for profile in ["bob@example.org", "carol@example.org", "nobody@example.org"] {
                    _ = try client.call("GET", "alice", profile)
                }
                #expect(try slapd.filters().count == 8)
                // The referral was not followed: no connection waits.
                _ = fcntl(listener.descriptor, F_SETFL, O_NONBLOCK)
                #expect(accept(listener.descriptor, nil, nil) < 0)
                #expect(!daemon.log.contains(Slapd.password))
            }
        }

        @Test func `a directory may reply to the bind late`() throws {
            try withMachine { machine in
                let slapd = try Slapd(machine, Slapd.person("bob", Self.image))
                let listener = try listenTCP(backlog: 8)
                defer { close(listener.descriptor) }
                let daemon = try daemon(machine, "ldap://127.0.0.1:\(listener.port)") {
                    $0.settings["origins.default", "timeout"] = "1h"
                    $0.settings["origins.default", "connect-timeout"] = "1h"
                }
                let client = try daemon.connect(loggedInAs: "alice")
                try client.send(["GET", "alice", "bob@example.org"])
                let connection = accept(listener.descriptor, nil, nil)
                defer { close(connection) }
                // The bind request has arrived. Only now a connection to the directory is made.
                var byte: UInt8 = 0
                #expect(recv(connection, &byte, 1, CInt(MSG_PEEK)) == 1)
                let directory = try connectTCP(slapd.port)
                defer { close(directory) }
                Self.forward(between: connection, directory)
                #expect(try client.receive() == .bulk(Self.image))
            }
        }

        /// Forwards bytes in both directions until one side closes its connection.
        private static func forward(between one: CInt, _ other: CInt) {
            var buffer = [UInt8](repeating: 0, count: 1 << 16)
            var sides = [one, other].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
            while poll(&sides, 2, -1) > 0 {
                for (from, to) in [(0, other), (1, one)] where sides[from].revents != 0 {
                    let count = recv(sides[from].fd, &buffer, buffer.count, 0)
                    guard count > 0 else { return }
                    var sent = 0
                    while sent < count {
                        let more = buffer.withUnsafeBytes {
                            send(to, $0.baseAddress.map { $0 + sent }, count - sent, CInt(MSG_NOSIGNAL))
                        }
                        guard more > 0 else { return }
                        sent += more
                    }
                }
            }
        }

        @Test func `a certificate is verified for the name in the URL`() throws {
            try withMachine { machine in
                let tls = try makeCertificates(machine)
                let slapd = try Slapd(machine, Slapd.person("bob", Self.image), tls: tls)
                func reply(_ host: String, _ authority: String) throws -> Reply {
                    let daemon = try daemon(machine, "ldaps://\(host):\(slapd.port)") {
                        $0.settings["origins.default", "ca-file"] = .string(authority)
                    }
                    return try daemon.connect(loggedInAs: "alice").call("GET", "alice", "bob@example.org")
                }
                #expect(try reply("localhost", tls.authority) == .bulk(Self.image))
                for (host, authority) in [("127.0.0.1", tls.authority), ("localhost", "")] {
                    let reply = try reply(host, authority)
                    guard case .error("ORIGIN", let reason) = reply else { Issue.record("\(reply.brief)"); continue }
                    #expect(reason.contains("certificate"), "\(reason)")
                }
                #expect(try slapd.filters().count == 1)
            }
        }

        @Test func `a wrong password, base or server is an error without the password`() throws {
            try withMachine { machine in
                let slapd = try Slapd(machine, Slapd.person("bob", Self.image))
                func reason(
                    _ port: UInt16, password: String = Slapd.password, more: (Daemon) -> Void = { _ in }
                ) throws -> String {
                    let daemon = try daemon(machine, "ldap://127.0.0.1:\(port)", password: password, more: more)
                    let reply = try daemon.connect(loggedInAs: "alice").call("GET", "alice", "bob@example.org")
                    guard case .error(let code, let reason) = reply else { return reply.brief }
                    #expect(!reason.contains(password) && !daemon.log.contains(password))
                    return "\(code) \(reason)"
                }
                #expect(try reason(slapd.port, password: "a wrong secret").contains("refuses the LDAP bind"))
                #expect(try reason(freePort()).hasPrefix("ORIGIN "))
                let elsewhere = "ldap://127.0.0.1:\(slapd.port)/dc=other?jpegPhoto?sub?(mail={profile})"
                let base = try reason(slapd.port) { $0.settings["origins.default", "url"] = .string(elsewhere) }
                #expect(base.hasPrefix("ORIGIN ") && base.contains("no entry with the base name"), "\(base)")
                let refused = try reason(slapd.port) {
                    $0.settings["origins.default", "allow-private-addresses"] = false
                    $0.settings["origins.default", "url"] = .string(elsewhere.replacing("ldap:", with: "ldaps:"))
                }
                #expect(refused.hasPrefix("DENIED ") && refused.contains("a loopback address"), "\(refused)")
            }
        }

        @Test func `a directory that does not respond delays no other origin`() throws {
            try withMachine { machine in
                // Its backlog accepts connections; no program reads.
                let listener = try listenTCP(backlog: 8)
                defer { close(listener.descriptor) }
                let web = try GatedOrigin.images { _ in TestImage.gif("web") }
                defer { web.end() }
                let daemon = try daemon(machine, "ldap://127.0.0.1:\(listener.port)") {
                    $0.settings["origins.default", "timeout"] = "1h"
                    $0.settings["origins.default", "connect-timeout"] = "1h"
                    $0.settings.setOrigin("\(web.url)/{profile}", name: "web")
                }
                let waiting = try daemon.connect(loggedInAs: "alice")
                try waiting.send(["GET", "alice", "bob"])
                let connection = accept(listener.descriptor, nil, nil)
                defer { close(connection) }
                // The bind request has arrived, so libcurl waits for its reply.
                var byte: UInt8 = 0
                #expect(recv(connection, &byte, 1, 0) == 1)
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "carol", "ORIGIN", "web") == .ok)
                for number in 0..<20 {
                    #expect(try client.call("GET", "carol", "p\(number)") == .bulk(TestImage.gif("web")))
                }
                // Ends the connection in the middle of the bind.
                _ = try client.call("LOGOUT", "alice")
                guard case .error("CANCELLED", _) = try waiting.receive() else { Issue.record("not cancelled"); return }
                while recv(connection, &byte, 1, 0) > 0 {}
                #expect(try client.call("GET", "carol", "last") == .bulk(TestImage.gif("web")))
            }
        }
    }
}
