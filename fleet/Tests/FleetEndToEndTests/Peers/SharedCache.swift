import Foundation
import Glibc

/// nginx or Varnish in front of an origin, as a farm has it: with the configuration that is shipped, in which nothing but
/// addresses, places and patience is another. (A machine that runs tests is slower than an origin may be.)
final class SharedCache {
    enum Kind: CaseIterable {
        case nginx
        case varnish
    }

    private let machine: Machine
    /// What hosts and anybody else reach it by.
    let url: String
    /// Of its certificate; nil where it speaks no TLS.
    private let authority: String?
    let process: ChildProcess

    init(_ machine: Machine, _ kind: Kind, origin: UInt16) throws {
        self.machine = machine
        let port = try freePort()
        let home = try machine.makeDirectory("shared-cache")
        switch kind {
        case .nginx:
            let files = try makeCertificates(machine)
            (url, authority) = ("https://localhost:\(port)", files.authority)
            let shipped = try Self.shipped(
                "shared-cache.conf",
                [
                    "server avatars.example.org:443;": "server 127.0.0.1:\(origin);",
                    "proxy_pass https://": "proxy_pass http://",
                    "listen 443 ssl;": "listen 127.0.0.1:\(port) ssl;",
                    "/etc/nginx/shared-cache.pem": files.certificate,
                    "/etc/nginx/shared-cache.key": files.key,
                    "/run/nginx-shared-cache": "\(home)/pictures",
                    "proxy_read_timeout 1500ms;": "proxy_read_timeout 60s;",
                    "proxy_cache_lock_age 1s;": "proxy_cache_lock_age 60s;",
                    "proxy_cache_lock_timeout 1s;": "proxy_cache_lock_timeout 60s;",
                ])
            let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map { "\($0)_temp_path \(home)/\($0);\n" }.joined()
            try write(
                """
                daemon off;
                master_process off;
                pid \(home)/pid;
                events { worker_connections 1024; }
                http {
                \(temporary)
                \(shipped)
                }

                """, to: "\(home)/nginx.conf")
            process = try machine.start(
                ["nginx", "-c", "\(home)/nginx.conf", "-e", "\(home)/error.log", "-p", home],
                errors: .file(machine.path("shared-cache.log")))
        case .varnish:
            (url, authority) = ("http://127.0.0.1:\(port)", nil)
            let shipped = try Self.shipped(
                "shared-cache.vcl",
                [
                    #".host = "avatars.example.org""#: #".host = "127.0.0.1""#,
                    #".port = "80""#: ".port = \"\(origin)\"",
                    "first_byte_timeout = 1500ms;": "first_byte_timeout = 60s;",
                    "between_bytes_timeout = 1s;": "between_bytes_timeout = 60s;",
                ])
            try write(shipped, to: "\(home)/shared-cache.vcl")
            // Without a jail: the test's directory is its user's, and that may be anybody.
            process = try machine.start(
                ["varnishd", "-F", "-j", "none", "-n", "\(home)/work", "-f", "\(home)/shared-cache.vcl"]
                    + ["-a", "127.0.0.1:\(port)", "-s", "malloc,64m"],
                errors: .file(machine.path("shared-cache.log")))
        }
        try eventually("the shared cache listens") {
            if let status = process.ending() { throw Failure("the shared cache ended with status \(status)") }
            guard let connection = try? connectTCP(port) else { return false }
            close(connection)
            return true
        }
    }

    /// A file of `fleet/config` with replacements, each of which has to be in it.
    private static func shipped(_ name: String, _ replacements: [String: String]) throws -> String {
        var text = String(decoding: try read("\(Files.repository)/fleet/config/\(name)"), as: UTF8.self)
        for (old, new) in replacements {
            guard text.contains(old) else { throw Failure("\(name) has no \(old)") }
            text = text.replacingOccurrences(of: old, with: new)
        }
        return text
    }

    /// As fleet/docs/fleet.md says it for a host, but for its patience.
    func configure(_ settings: inout Settings) {
        settings.setOrigin("\(url)/{profile}")
        settings["origins.default", "timeout"] = "60s"
        if let authority { settings["origins.default", "ca-file"] = .string(authority) }
    }

    private static let asking = """
        import ssl, sys, urllib.request
        url, authority, *fields = sys.argv[1:]
        context = ssl.create_default_context(cafile=authority) if authority else None
        request = urllib.request.Request(url, headers=dict(field.split(": ", 1) for field in fields))
        # Not by a proxy that the environment may name.
        direct = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
        sys.stdout.buffer.write(urllib.request.build_opener(*direct).open(request).read())
        """

    /// Asks as anybody may who reaches it: what it answers with, which has to be 200.
    func ask(_ path: String, _ fields: String...) throws -> [UInt8] {
        let asked = try machine.run(["python3", "-c", Self.asking, url + path, authority ?? ""] + fields)
        guard asked.status == 0 else { throw Failure("\(path) was not answered by a picture: \(asked.everything)") }
        return asked.output
    }
}
