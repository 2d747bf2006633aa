import CLinux
import Glibc

/// Runs `body` on a new thread, which ends with it.
/// - Parameter name: what the system's tools show; 15 characters at most.
/// - Returns: 0, or an error number: pthread_create(3).
func startThread(named name: String, _ body: @escaping @Sendable () -> Void) -> CInt {
    final class Box: Sendable {
        let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
    let box = Unmanaged.passRetained(
        Box {
            clinux_name_thread(name)
            body()
        })
    var thread = pthread_t()
    let code = pthread_create(
        &thread, nil,
        { context in
            if let context { Unmanaged<Box>.fromOpaque(context).takeRetainedValue().body() }
            return nil
        }, box.toOpaque())
    guard code == 0 else {
        box.release()
        return code
    }
    pthread_detach(thread)
    return 0
}
