import ArgumentParser
import Glibc
import LinuxSupport

/// Logouts for many machines. The relay's program provides them, because it links TLS, which this one does not need.
struct Fleet: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Log out or purge on every host of a fleet, and list which hosts completed it.",
        discussion: """
            Requires thumbcached-relay and its configuration on this machine; see fleet/docs/fleet.md. The commands \
            are logout, purge, status and forget; each has --help.

            Examples:
              thumbcachectl fleet logout alice --wait 5
              thumbcachectl fleet status
            """)

    @Argument(parsing: .captureForPassthrough, help: "The fleet command, with its options.")
    var arguments: [String] = []

    func run(in environment: Environment) async throws(Failure) {
        let places: [String]
        do throws(SystemError) {
            places = Programs.places("thumbcached-relay", beside: try Programs.ownDirectory())
        } catch {
            throw Failure(.unreachable, "cannot \(error)")
        }
        guard let program = places.first(where: { access($0, X_OK) == 0 }) else {
            throw Failure(
                .unreachable, "thumbcached-relay not found at \(places.joined(separator: " or ")); install it")
        }
        // The program's name tells the relay to act as this command.
        var vector = (["thumbcachectl fleet"] + (arguments.isEmpty ? ["--help"] : arguments)).map { strdup($0) } + [nil]
        execv(program, &vector)
        let error = SystemError("start \(program)")
        for text in vector { free(text) }
        throw Failure(.unreachable, "cannot \(error)")
    }
}
