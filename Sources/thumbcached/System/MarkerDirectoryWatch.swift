import CLinux
import CacheCore
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import SocketLoops

/// Watches the directory of markers with inotify(7).
///
/// While the directory does not exist, its nearest existing ancestor is watched instead. Changes on another machine
/// are not reported: a directory on a network file system, or in one that a process serves, counts as not watched. A
/// file system that is mounted over the directory later is not noticed either, until the next listing.
final class MarkerDirectoryWatch: LogoutMarkerWatch {
    private struct State {
        var inotify: CInt?
        /// The number of the watch in `inotify`.
        var watch: CInt?
        /// Whether the user was told that the directory cannot be watched.
        var isReported = false
        var isEnded = false
    }

    /// Attempts to watch a path of which a part appears or goes meanwhile.
    private static var attempts: Int { 8 }

    private let path: String
    private let loop: SocketLoop
    private let log: Logger
    private let state = NIOLockedValueBox(State())

    /// - Parameters:
    ///   - path: absolute.
    ///   - loop: reads the changes.
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
                "the directory of pending log-outs cannot be watched; it is listed every second",
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
                // The next renewal opens another one, and the listing before that finds what is there.
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

    /// What changed does not matter: each listing reads the whole directory.
    private static func discardEvents(_ inotify: CInt) {
        withUnsafeTemporaryAllocation(byteCount: 4 << 10, alignment: 8) { buffer in
            while read(inotify, buffer.baseAddress, buffer.count) > 0 {}
        }
    }

    /// The number of the watch for the directory, or for its nearest ancestor that exists.
    private func add(to inotify: CInt) throws(SystemError) -> CInt {
        let names = path.split(separator: "/")
        var missing = 0
        for _ in 0..<Self.attempts * (names.count + 1) {
            let found = "/" + names.dropLast(missing).joined(separator: "/")
            // An ancestor may be a link, the directory itself may not.
            let watch = clinux_watch_directory(inotify, missing == 0 ? found : found + "/.")
            if watch < 0 {
                let code = errno
                guard code == ENOENT, missing < names.count else { throw SystemError("watch \(found)", code: code) }
                missing += 1
                continue
            }
            if isRemote(found) { throw SystemError("watch \(found) on a network file system", code: EREMOTE) }
            if missing == 0 { return watch }
            // The next part may have appeared before the watch was there.
            let next = "/" + names.dropLast(missing - 1).joined(separator: "/")
            if access(next, F_OK) != 0 { return watch }
            missing -= 1
        }
        throw SystemError("watch \(path), parts of which come and go", code: EAGAIN)
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
