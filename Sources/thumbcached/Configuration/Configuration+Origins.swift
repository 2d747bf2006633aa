import CacheCore
import DaemonServer
import LinuxSupport
import NIOCore
import Origins
import ProgramSupport
import ThumbcacheProtocol

extension Configuration {
    /// Reads the sections `[origins.NAME]` and returns their problems.
    mutating func readOrigins(_ node: TOMLNode) -> [ConfigurationError.Problem] {
        guard case .table(let table) = node else { return [Self.noSection("origins", node)] }
        var problems: [ConfigurationError.Problem] = []
        for (name, node) in table.sorted(by: { $0.key < $1.key }) { problems += readOrigin(name, node) }
        return problems
    }

    private static func noSection(_ key: String, _ node: TOMLNode) -> ConfigurationError.Problem {
        let sentence = "is \(node.typeName), but each origin must be a section: write [origins.default]"
        return .init(key: key, sentence: sentence)
    }

    private mutating func readOrigin(_ name: String, _ node: TOMLNode) -> [ConfigurationError.Problem] {
        let key = "origins.\(keyText(name))"
        guard case .table(let table) = node else { return [Self.noSection(key, node)] }
        guard (1...64).contains(name.utf8.count), name.utf8.allSatisfy(isWordByte) else {
            return [.init(key: key, sentence: "an origin's name must have 1 to 64 letters, digits, - or _")]
        }
        var origin = Origin(name: name, url: "")
        var reader = SettingReader(settings: Origin.settings.map(\.setting), prefix: key + ".")
        reader.read(table, into: &origin)
        if !reader.found.contains("url") {
            reader.addProblem(
                "url", "is missing; write a URL, as in \"https://avatars.example.org/{profile}?s={size}\"")
        }
        if reader.found.contains("token") {
            for missing in ["token.endpoint", "token.client-id"] where !reader.found.contains(missing) {
                reader.addProblem(
                    missing,
                    "is missing; a token endpoint has endpoint and client-id, and client-secret-file if the client has "
                        + "a secret")
            }
        }
        reader.reconcile(&origin)
        cautions += reader.warnings
        guard reader.problems.isEmpty else { return reader.problems }
        do throws(OriginError) {
            try OriginRules.validate(origin)
        } catch {
            return [.init(key: "\(key).\(error.key)", sentence: oneLine(error.reason))]
        }
        origins[name] = origin
        return []
    }

    /// Reads the origins' fallback images, after the limits that they must keep.
    mutating func readFallbacks() -> [ConfigurationError.Problem] {
        origins.values.filter { !$0.fallbackFile.isEmpty }.sorted { $0.name < $1.name }.compactMap { origin in
            let (key, path) = ("origins.\(origin.name).fallback", origin.fallbackFile)
            do {
                let bytes = try readPlainFile(path, limit: limits.server.request.image)
                origins[origin.name]?.fallback = try FallbackImage(
                    ByteBuffer(bytes: bytes), maximumDimension: limits.dimension)
                return nil
            } catch let refusal as ImageRefusal {
                return .init(key: key, sentence: "\(quoted(path)) is not a valid image: \(refusal.reason)")
            } catch {
                return .init(key: key, sentence: "\(quoted(path)) \(error)")
            }
        }
    }
}
