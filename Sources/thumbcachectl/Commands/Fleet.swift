import ArgumentParser
import Glibc
import LinuxSupport

/// Logouts for many machines. The relay's program provides them, because it links TLS, which this program does not need.
struct Fleet: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Log out or purge on every host of a fleet, and see which have done it.",
        discussion: """
            Needs thumbcached-relay and its configuration on this machine: see fleet/docs/fleet.md. The commands are \
            logout, purge, status and forget; each has --help.

            Examples:
              thumbcachectl fleet logout alice --wait 5
              thumbcachectl fleet status
            """)

    @Argument(parsing: .captureForPassthrough, help: "The fleet command, with its options.")
    var arguments: [String] = []

    func run(in environment: Environment) async throws(Failure) {
        let places = try Self.places(for: Self.ownDirectory())
        guard let program = places.first(where: { access($0, X_OK) == 0 }) else {
            throw Failure(
                .unreachable, "no thumbcached-relay at \(places.joined(separator: " or ")); install it there")
        }
        // The program's name tells the relay to speak as this command.
        var vector = (["thumbcachectl fleet"] + (arguments.isEmpty ? ["--help"] : arguments)).map { strdup($0) } + [nil]
        execv(program, &vector)
        let error = SystemError("start \(program)")
        for text in vector { free(text) }
        throw Failure(.unreachable, "cannot \(error)")
    }

    /// Where it was built, and where it is installed, below any prefix.
    private static func places(for directory: String) -> [String] {
        let parent = directory.lastIndex(of: "/").map { directory[..<$0] } ?? ""
        return [directory, "\(parent)/libexec"].map { "\($0)/thumbcached-relay" }
    }

    private static func ownDirectory() throws(Failure) -> String {
        var path = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/exe", &path, path.count)
        guard count > 0 else { throw Failure(.unreachable, "cannot \(SystemError("read /proc/self/exe"))") }
        let bytes = path.prefix(count).map { UInt8(bitPattern: $0) }
        return String(decoding: bytes.prefix(bytes.lastIndex(of: UInt8(ascii: "/")) ?? 0), as: UTF8.self)
    }
}
