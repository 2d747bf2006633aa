import Logging
import Origins
import ProgramSupport
import ThumbnailCache

extension Configuration {
    /// What can be configured and is hardly meant so: the daemon serves with it, and says so at its start and at each
    /// reload, as `--check-config` does.
    var warnings: [ConfigurationError.Problem] {
        access.observers.unknown.map { .init(key: "access.observers", sentence: "\($0), so that is nobody") }
            + origins.sorted { $0.key < $1.key }.flatMap { name, origin in
                Self.warnings(of: origin).map { .init(key: "origins.\(name).\($0.key)", sentence: $0.reason) }
            }
    }

    private static func warnings(of origin: Origin) -> [OriginError] {
        do throws(OriginError) {
            return try OriginRules.warnings(of: origin)
        } catch {
            // Refused when it was read; said rather than passed over.
            return [error]
        }
    }

    func logWarnings(_ log: Logger) {
        for warning in warnings {
            log.warning(
                "the configuration may not be meant so",
                metadata: ["key": "\(warning.key ?? "")", "reason": "\(warning.sentence)"])
        }
    }
}
