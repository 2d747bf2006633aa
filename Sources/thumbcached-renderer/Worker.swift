import CLinux
import CRenderer
import Glibc
import HelperProtocol
import LinuxSupport
import NIOCore
import ProgramSupport

/// A process that makes renditions of one user's pictures, one after another, and has given up everything else before
/// the first byte of one arrives.
struct Worker {
    /// Seconds that one picture may take.
    private static var longestPicture: Int { 10 }
    /// Seconds after which the worker ends instead of waiting for another request. This bounds how many threads libvips
    /// starts again after they were idle for 15 seconds, and so ``RendererProgram`` can tell a worker that starts
    /// threads for other purposes.
    private static var longestLife: Int64 { 60 }
    /// Bytes of address space for each pixel of the largest source. Measured: an animated WebP takes 18.5, an AVIF of 12
    /// bits 16, an interlaced PNG with 16 bits and opacity 8.
    private static var memoryPerPixel: Int { 24 }
    /// Bytes of address space for stacks, the source, the result, and what libraries allocate for every source.
    private static var memoryForEach: Int { 192 << 20 }

    private let connection: CInt
    private let limits: WorkerLimits

    /// Serves a connection, and ends the process. The caller is a copy of the parent, and has one thread.
    /// - Parameter reports: leads to the parent, which decides whether a thread may start.
    static func run(on connection: CInt, reports: CInt, of parent: pid_t) -> Never {
        do {
            crenderer_give_way()
            guard var first = try read(WorkerLimits.length, from: connection), let limits = WorkerLimits(&first) else {
                _exit(0)
            }
            let kept = try confine(keeping: connection, limits, reports: reports, of: parent)
            let worker = Worker(connection: kept, limits: limits)
            try worker.greet()
            try worker.serve()
            _exit(0)
        } catch {
            // Once confined, the worker has no standard error any more.
            StandardError().write("thumbcached-renderer: \(error)\n")
            _exit(1)
        }
    }

    // MARK: Giving up

    /// - Returns: the connection, the only descriptor that is left.
    private static func confine(
        keeping connection: CInt, _ limits: WorkerLimits, reports: CInt, of parent: pid_t
    ) throws -> CInt {
        try limit(RLIMIT_AS, memory() + memoryForEach + Int(limits.pixels) * memoryPerPixel)
        try limit(RLIMIT_CPU, Int(2 * longestLife))
        try limit(RLIMIT_FSIZE, 0)
        try limit(RLIMIT_CORE, 0)
        try leaveRoot()
        // Whoever becomes another user outlives its parent again: PR_SET_PDEATHSIG(2const).
        guard crenderer_end_with(parent) == 0 else { throw SystemError("end with the parent") }
        // Without Landlock, which a kernel may lack, the filter still lets nothing be opened.
        _ = try Confinement(readable: [], writable: [], sockets: .unix).apply()
        try reportThreads(to: reports)
        guard dup2(connection, 0) == 0, clinux_close_from(1) == 0 else { throw SystemError("keep one descriptor") }
        try limit(RLIMIT_NOFILE, 1)
        let code = crenderer_confine()
        guard code == 0 else { throw SystemError("seccomp_load", code: code) }
        return 0
    }

    /// Sends the parent the descriptor through which it allows threads to start.
    private static func reportThreads(to parent: CInt) throws(SystemError) {
        let listener = crenderer_report_threads()
        // Before Linux 5.5, and where another filter has a listener already, the number of threads has no bound.
        guard listener >= 0 else { return }
        guard clinux_send_descriptor(parent, listener, 0) == 0 else { throw SystemError("send a descriptor") }
    }

    private static func limit(_ resource: __rlimit_resource, _ value: Int) throws(SystemError) {
        var limit = rlimit(rlim_cur: rlim_t(value), rlim_max: rlim_t(value))
        guard setrlimit(__rlimit_resource_t(resource.rawValue), &limit) == 0 else { throw SystemError("setrlimit") }
    }

    /// Bytes of address space that the process takes: proc(5), statm.
    private static func memory() throws -> Int {
        let words = try readTextFile("/proc/self/statm", limit: 4096).split(separator: " ")
        guard let pages = words.first.flatMap({ Int($0) }) else {
            throw SystemError("read /proc/self/statm", code: EINVAL)
        }
        return pages * sysconf(Int32(_SC_PAGESIZE))
    }

    // MARK: Serving

    private func greet() throws(SystemError) {
        let byte = WorkerGreeting.byte
        try withUnsafeBytes(of: byte) { (bytes) throws(SystemError) in try write(bytes) }
    }

    /// Returns when the daemon has closed the connection, or after the answer to a request if the worker is old.
    private func serve() throws {
        let end = Self.seconds() + Self.longestLife
        while Self.seconds() < end {
            guard var head = try Self.read(RenderRequest.headLength, from: connection) else { return }
            guard let request = RenderRequest(&head) else {
                throw SystemError("understand a request", code: EPROTO)
            }
            guard var source = try Self.read(request.length, from: connection) else { return }
            source.repairPicture()
            try answer(request, source)
        }
    }

    private static func seconds() -> Int64 { nanoseconds(of: CLOCK_MONOTONIC) / 1_000_000_000 }

    private func answer(_ request: RenderRequest, _ source: ByteBuffer) throws {
        var wish = crenderer_wish(
            side: UInt32(request.side), fit: crenderer_fit(UInt32(request.fit.rawValue)),
            format: crenderer_format(UInt32(request.format.rawValue)), most_pixels: UInt64(limits.pixels))
        var picture = crenderer_picture()
        var why: [CChar] = Array(repeating: 0, count: 256)
        // A picture that takes longer ends the process: the default action of SIGALRM.
        setTimer(seconds: Self.longestPicture)
        let outcome = source.withUnsafeReadableBytes { bytes in
            crenderer_render(bytes.baseAddress, bytes.count, &wish, &picture, &why, why.count)
        }
        setTimer(seconds: 0)
        defer { crenderer_free(&picture) }
        var answer = RenderAnswer(number: request.number, outcome: Self.outcome(outcome))
        if answer.outcome == .rendered {
            guard let format = PictureFormat(rawValue: UInt8(picture.format.rawValue)),
                picture.length <= RenderRequest.longestPicture
            else { throw SystemError("render a picture", code: EOVERFLOW) }
            (answer.length, answer.format) = (picture.length, format)
            (answer.width, answer.height) = (UInt16(picture.width), UInt16(picture.height))
        }
        var head = ByteBuffer()
        answer.write(to: &head)
        try head.withUnsafeReadableBytes { try write($0) }
        try write(UnsafeRawBufferPointer(start: picture.bytes, count: answer.length))
    }

    private static func outcome(_ outcome: crenderer_outcome) -> RenderAnswer.Outcome {
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

    // MARK: Bytes

    /// - Returns: nil when the daemon has closed the connection.
    private static func read(_ count: Int, from connection: CInt) throws(SystemError) -> ByteBuffer? {
        var buffer = ByteBuffer()
        buffer.reserveCapacity(count + ByteBuffer.roomForRepair)
        while buffer.readableBytes < count {
            let missing = count - buffer.readableBytes
            var got = 0
            buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: missing) { room in
                got = Glibc.read(connection, room.baseAddress, missing)
                return max(0, got)
            }
            if got == 0 { return nil }
            if got < 0 && errno != EINTR { throw SystemError("read from the daemon") }
        }
        return buffer
    }

    private func write(_ bytes: UnsafeRawBufferPointer) throws(SystemError) {
        var rest = bytes
        while !rest.isEmpty {
            let sent = Glibc.write(connection, rest.baseAddress, rest.count)
            if sent < 0 {
                guard errno == EINTR else { throw SystemError("write to the daemon") }
                continue
            }
            rest = UnsafeRawBufferPointer(rebasing: rest[sent...])
        }
    }
}
