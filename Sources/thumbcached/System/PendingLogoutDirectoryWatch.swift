import CLinux
import CacheCore
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import SocketLoops

/// Watches the directory of pending-logout files with inotify(7).
///
/// While the directory does not exist, its nearest existing ancestor is watched. inotify does not report changes on
/// another machine, so a directory on a network or FUSE file system counts as not watched.
final class PendingLogoutDirectoryWatch: PendingLogoutWatch {
    private struct State {
        var inotify: CInt?
        /// The number of the watch in `inotify`.
        var watch: CInt?
        /// Whether the failure to watch the directory was logged.
        var isReported = false
        var isEnded = false
    }

    /// Attempts to watch a path while parts of it appear or disappear.
    private static var attempts: Int { 8 }

    private let path: String
    private let loop: SocketLoop
    private let log: Logger
    private let state = NIOLockedValueBox(State())

    init(path: String, loop: SocketLoop, log: Logger) { (self.path, self.loop, self.log) = (path, loop, log) }

    func renew(_ changed: @escaping @Sendable () -> Void) -> Bool {
        let (isWatched, failure) = state.withLockedValue { state -> (Bool, SystemError?) in
            if state.isEnded { return (false, nil) }
            do throws(SystemError) {
                let inotify = if let inotify = state.inotify { inotify } else { try open(changed) }
                state.inotify = inotify
                let watch = try add(to: inotify)
                // The directory was replaced by another one.
                if let old = state.watch, old != watch { _ = clinux_stop_watching_directory(inotify, old) }
                state.watch = watch
                state.isReported = false
                return (true, nil)
            } catch {
                defer { state.isReported = true }
                return (false, state.isReported ? nil : error)
            }
        }
        if let failure {
            log.notice(
                "cannot watch the directory of pending logouts; it is listed every second",
                metadata: ["directory": "\(path)", "reason": "\(failure)"])
        }
        return isWatched
    }

    func end() {
        let inotify = state.withLockedValue { state in
            state.isEnded = true
            return state.inotify.take()
        }
        guard let inotify else { return }
        loop.execute { [loop] in
            loop.stopWatching(inotify)
            close(inotify)
        }
    }

    private func open(_ changed: @escaping @Sendable () -> Void) throws(SystemError) -> CInt {
        let inotify = clinux_inotify()
        guard inotify >= 0 else { throw SystemError("inotify_init1") }
        loop.execute { [self] in
            do {
                try loop.watch(inotify, for: .readable) { _ in
                    Self.discardEvents(inotify)
                    changed()
                }
            } catch {
                // The next renewal opens another one and lists the directory.
                state.withLockedValue { state in
                    guard state.inotify == inotify else { return }
                    (state.inotify, state.watch) = (nil, nil)
                    close(inotify)
                }
                changed()
            }
        }
        return inotify
    }

    /// Discards the events: each listing reads the whole directory.
    private static func discardEvents(_ inotify: CInt) {
        withUnsafeTemporaryAllocation(byteCount: 4 << 10, alignment: 8) { buffer in
            while read(inotify, buffer.baseAddress, buffer.count) > 0 {}
        }
    }

    /// Watches the directory, or its nearest existing ancestor. Returns the watch's number.
    private func add(to inotify: CInt) throws(SystemError) -> CInt {
        let names = path.split(separator: "/")
        var missing = 0
        for _ in 0..<Self.attempts * (names.count + 1) {
            let found = "/" + names.dropLast(missing).joined(separator: "/")
            // Ancestors may be symbolic links, the directory itself may not.
            let watch = clinux_watch_directory(inotify, missing == 0 ? found : found + "/.")
            if watch < 0 {
                let code = errno
                guard code == ENOENT, missing < names.count else { throw SystemError("watch \(found)", code: code) }
                missing += 1
                continue
            }
            if isRemote(found) { throw SystemError("watch \(found) on a network file system", code: EREMOTE) }
            if missing == 0 { return watch }
            // The next part may have appeared before the watch existed.
            let next = "/" + names.dropLast(missing - 1).joined(separator: "/")
            if access(next, F_OK) != 0 { return watch }
            missing -= 1
        }
        throw SystemError("watch \(path), which changes too often", code: EAGAIN)
    }

    private func isRemote(_ path: String) -> Bool {
        do throws(SystemError) {
            let directory = try File(path, CLINUX_O_PATH)
            return clinux_is_remote(directory.descriptor) != 0
        } catch {
            return true
        }
    }
}
