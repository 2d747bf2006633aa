import Logging
import Thumbcache

/// Logs in the user of `/avatar/HASH` once, at the start of the program. A later logout is not undone.
struct SiteLogin: Sendable {
    let user: ThumbcacheID
    let origin: String?
    let client: ThumbcacheClient
    let log: Logger

    /// The session's name.
    static let session: ThumbcacheID = "thumbcached-http"

    /// Retries until the daemon has replied.
    func run(pause: Duration = .seconds(2)) async {
        while true {
            do throws(ThumbcacheError) {
                try await client.logIn(user, session: Self.session, origin: origin)
                log.notice("logged in")
                return
            } catch {
                log.warning("login failed, will retry", metadata: ["reason": "\(error)"])
            }
            do {
                try await Task.sleep(for: pause)
            } catch {
                return
            }
        }
    }
}
