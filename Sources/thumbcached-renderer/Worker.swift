import CLinux
import CRenderer
import Glibc
import HelperProtocol
import ImageOptions
import LinuxSupport
import NIOCore
import ProgramSupport

/// A process that renders images of one uid, one after another. It gives up all other rights before it reads the first.
struct Worker {
    /// In seconds, for one image.
    private static var renderTimeout: Int { 10 }
    /// Seconds after which the worker accepts no further request. libvips ends threads that were idle for 15 seconds
    /// and starts them again, so this bounds the number of threads, and ``RendererProgram`` can detect a worker that
    /// starts more.
    private static var lifetime: Int64 { 60 }
    /// Bytes of address space for each pixel of the largest source. Measured: an animated WebP takes 18.5, an AVIF of
    /// 12 bits 16, an interlaced PNG with 16 bits and alpha 8.
    private static var memoryPerPixel: Int { 24 }
    /// Bytes of address space for stacks, the source, the result, and fixed allocations of the libraries.
    private static var fixedMemory: Int { 192 << 20 }

    private let socket: MessageSocket
    private let limits: WorkerLimits

    /// Serves a connection, then exits. Called in a forked process with one thread.
    /// - Parameter reports: a socket to the parent, which allows threads to start.
    static func run(on connection: CInt, reports: CInt, of parent: pid_t) -> Never {
        do {
            crenderer_lower_priority()
            guard let (fields, _) = try MessageSocket(connection).receive() else { _exit(0) }
            let limits = try WorkerLimits(fields)
            let kept = try confine(keeping: connection, limits, reports: reports, of: parent)
            let worker = Worker(socket: MessageSocket(kept), limits: limits)
            try worker.greet()
            try worker.serve()
            _exit(0)
        } catch {
            // A confined worker has no standard error, and exits silently.
            StandardError().write("thumbcached-renderer: \(error)\n")
            _exit(1)
        }
    }

    /// - Returns: the new descriptor of the connection, the only open one.
    private static func confine(
        keeping connection: CInt, _ limits: WorkerLimits, reports: CInt, of parent: pid_t
    ) throws -> CInt {
        try limit(RLIMIT_AS, memory() + fixedMemory + Int(limits.pixels) * memoryPerPixel)
        try limit(RLIMIT_CPU, Int(2 * lifetime))
        try limit(RLIMIT_FSIZE, 0)
        try limit(RLIMIT_CORE, 0)
        try leaveRoot()
        // After leaveRoot, because a change of the user clears it: PR_SET_PDEATHSIG(2const).
        guard crenderer_end_with(parent) == 0 else { throw SystemError("end with the parent") }
        // If the kernel lacks Landlock, the filter below still refuses to open files.
        _ = try Confinement(readable: [], writable: [], sockets: .unix).apply()
        try reportThreads(to: reports)
        guard dup2(connection, 0) == 0, clinux_close_from(1) == 0 else { throw SystemError("keep one descriptor") }
        try limit(RLIMIT_NOFILE, 1)
        guard clinux_allow_worker_calls() == 0 else { throw SystemError("prctl PR_SET_SECCOMP") }
        return 0
    }

    /// Sends the parent the descriptor through which it allows threads to start.
    private static func reportThreads(to parent: CInt) throws(SystemError) {
        let listener = clinux_report_threads()
        // Before Linux 5.5, and if another filter has a listener already, the number of threads is not bounded.
        guard listener >= 0 else { return }
        guard clinux_send_descriptor(parent, listener, 0) == 0 else { throw SystemError("send a descriptor") }
    }

    private static func limit(_ resource: __rlimit_resource, _ value: Int) throws(SystemError) {
        var limit = rlimit(rlim_cur: rlim_t(value), rlim_max: rlim_t(value))
        guard setrlimit(__rlimit_resource_t(resource.rawValue), &limit) == 0 else { throw SystemError("setrlimit") }
    }

    /// Bytes of address space in use: proc(5), statm.
    private static func memory() throws -> Int {
        let words = try readTextFile("/proc/self/statm", limit: 4096).split(separator: " ")
        guard let pages = words.first.flatMap({ Int($0) }) else {
            throw SystemError("read /proc/self/statm", code: EINVAL)
        }
        return pages * sysconf(Int32(_SC_PAGESIZE))
    }

    private func greet() throws(SystemError) {
        var message = ByteBuffer()
        WorkerGreeting().write(to: &message)
        try socket.send(message)
    }

    /// Returns when the daemon closes the connection, or after a reply once the worker's lifetime is over.
    private func serve() throws {
        let end = Self.seconds() + Self.lifetime
        while Self.seconds() < end {
            guard
                var (fields, source) = try socket.receive(
                    maximumBody: RenderRequest.maximumImage, spareCapacity: ByteBuffer.roomForRepair)
            else { return }
            let request = try RenderRequest(fields)
            fields.clear()
            source.repairImage()
            try reply(to: request, source)
        }
    }

    private static func seconds() -> Int64 { nanoseconds(of: CLOCK_MONOTONIC) / 1_000_000_000 }

    private func reply(to request: RenderRequest, _ source: ByteBuffer) throws {
        var options = crenderer_options(
            side: UInt32(request.side), fit: crenderer_fit(UInt32(request.fit.byte)),
            format: crenderer_format(UInt32(request.output.rawValue)), max_pixels: UInt64(limits.pixels))
        var rendition = crenderer_image()
        var reason: [CChar] = Array(repeating: 0, count: 256)
        // The default action of SIGALRM ends the process.
        setTimer(seconds: Self.renderTimeout)
        let outcome = source.withUnsafeReadableBytes { bytes in
            crenderer_render(bytes.baseAddress, bytes.count, &options, &rendition, &reason, reason.count)
        }
        setTimer(seconds: 0)
        defer { crenderer_free(&rendition) }
        var reply = RenderReply(number: request.number, outcome: Self.outcome(outcome))
        var body = ByteBuffer()
        if reply.outcome == .rendered {
            guard let output = RenderOutput(rawValue: UInt8(rendition.format.rawValue)),
                rendition.length <= RenderRequest.maximumImage
            else { throw SystemError("render an image", code: EOVERFLOW) }
            reply.output = output
            (reply.width, reply.height) = (UInt16(rendition.width), UInt16(rendition.height))
            body.writeBytes(UnsafeRawBufferPointer(start: rendition.bytes, count: rendition.length))
        }
        var message = ByteBuffer()
        reply.write(to: &message, body: body.readableBytes)
        try socket.send(message, body: body)
    }

    private static func outcome(_ outcome: crenderer_outcome) -> RenderReply.Outcome {
        switch outcome {
        case CRENDERER_DONE: .rendered
        case CRENDERER_TOO_MANY_PIXELS: .tooManyPixels
        case CRENDERER_UNKNOWN_FORMAT: .unknownFormat
        default: .broken
        }
    }

    private func setTimer(seconds: Int) {
        var timer = itimerval()
        timer.it_value.tv_sec = seconds
        setitimer(__itimer_which_t(ITIMER_REAL.rawValue), &timer, nil)
    }
}
