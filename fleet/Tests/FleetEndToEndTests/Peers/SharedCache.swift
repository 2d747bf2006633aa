import Foundation
import Glibc

/// nginx or Varnish in front of an origin, with the configuration from `fleet/config`. Only addresses, paths and
/// timeouts are changed; timeouts are longer because test machines may be slow.
final class SharedCache {
    enum Kind: CaseIterable {
        case nginx
        case varnish
    }

    private let machine: Machine
    /// The URL for hosts and other clients.
    let url: String
    /// Path of the CA certificate; nil without TLS.
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
                    "/run/nginx-shared-cache": "\(home)/images",
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
            // Without a jail, because the test may run as any user.
            process = try machine.start(
                ["varnishd", "-F", "-j", "none", "-n", "\(home)/work", "-f", "\(home)/shared-cache.vcl"]
                    + ["-a", "127.0.0.1:\(port)", "-s", "malloc,64m"],
                errors: .file(machine.path("shared-cache.log")))
        }
        try eventually("the shared cache listens") {
            if let status = process.exitStatus() { throw Failure("the shared cache ended with status \(status)") }
            guard let connection = try? connectTCP(port) else { return false }
            close(connection)
            return true
        }
    }

    /// Returns a file of `fleet/config` after replacing texts, each of which must occur in it.
    private static func shipped(_ name: String, _ replacements: [String: String]) throws -> String {
        var text = try readText("\(Files.repository)/fleet/config/\(name)")
        for (old, new) in replacements {
            guard text.contains(old) else { throw Failure("\(name) does not contain \(old)") }
            text = text.replacingOccurrences(of: old, with: new)
        }
        return text
    }

    /// Configures an origin as fleet/docs/fleet.md does, except for the timeout.
    func configure(_ settings: inout Settings) {
        settings.setOrigin("\(url)/{profile}")
        settings["origins.default", "timeout"] = "60s"
        if let authority { settings["origins.default", "ca-file"] = .string(authority) }
    }

    private static let script = """
        import ssl, sys, urllib.request
        url, authority, *fields = sys.argv[1:]
        context = ssl.create_default_context(cafile=authority) if authority else None
        request = urllib.request.Request(url, headers=dict(field.split(": ", 1) for field in fields))
        # Ignores a proxy from the environment.
        direct = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
        sys.stdout.buffer.write(urllib.request.build_opener(*direct).open(request).read())
        """

    /// Requests an image as any client can. Returns the body of the response, which must have status 200.
    func get(_ path: String, _ fields: String...) throws -> [UInt8] {
        let finished = try machine.run(["python3", "-c", Self.script, url + path, authority ?? ""] + fields)
        guard finished.status == 0 else { throw Failure("GET \(path) failed: \(finished.summary)") }
        return finished.output
    }
}
