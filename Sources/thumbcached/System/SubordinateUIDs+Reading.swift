import Logging

extension LiveAccounts {
    /// Reads the machine's file anew. Without one every uid is an account of its own; one that cannot be read changes nothing.
    func read(_ path: String = SubordinateUIDs.file, directory: AccountDirectory = .system, log: Logger) {
        let text: String
        do throws(ConfigurationFileError) {
            text = try readConfigurationFile(path, limit: SubordinateUIDs.longest)
        } catch .missing {
            return replace(by: SubordinateUIDs())
        } catch {
            return log.warning(
                "which uids belong to which account cannot be read; each counts as before",
                metadata: ["file": "\(path)", "error": "\(error)"])
        }
        var (complaints, first): (Int, SubordinateUIDs.BadLine?) = (0, nil)
        replace(
            by: SubordinateUIDs(text) { name in
                do throws(SystemError) {
                    return try directory.uid(name)
                } catch {
                    log.warning("an account cannot be looked up", metadata: ["file": "\(path)", "error": "\(error)"])
                    return nil
                }
            } complain: { complaint in
                complaints += 1
                first = first ?? complaint
            })
        if let first {
            // Each uid of such a range counts for itself.
            log.warning(
                "lines that say which uids belong to an account were passed over",
                metadata: [
                    "file": "\(path)", "lines": "\(complaints)", "first": "\(first.line)", "reason": "\(first.reason)",
                ])
        }
    }
}
