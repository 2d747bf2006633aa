import ArgumentParser
import CLinux
import Glibc
import LinuxSupport

/// Where everything is made: the world that the commands see is handed to them from here.
@main
enum Main {
    static func main() async {
        // Lest the connection take the place of an output that nobody wants, and a receipt be sent to the daemon.
        guard clinux_fill_standard_descriptors() == 0 else { Glibc.exit(ExitStatus.refused.rawValue) }
        // libdispatch raises the priority of threads, and tells the system log of each that it may not raise: a log-out
        // that is done would not be silent (F45).
        setenv("LIBDISPATCH_LOG", "NO", 0)
        var arguments: [String] = []
        do {
            arguments = try decodedArguments(CommandLine.argc, CommandLine.unsafeArgv)
            let command = try Thumbcachectl.parseAsRoot(arguments)
            if let command = command as? any DaemonCommand {
                try await command.run(in: world)
            } else if command is Thumbcachectl {
                // No subcommand was named: the help, but not as a success.
                exit(.usage, complaining: Thumbcachectl.helpMessage())
            } else {
                // ArgumentParser's own, such as help.
                var command = command
                try command.run()
            }
        } catch let failure as Failure {
            exit(failure.status, complaining: "thumbcachectl: \(failure.message)")
        } catch {
            // --help and --version arrive here, too, and are no errors.
            let isError = Thumbcachectl.exitCode(for: error) != .success
            if isError, let unknown = Thumbcachectl.unknownCommand(arguments) {
                exit(.usage, complaining: "thumbcachectl: \(unknown)")
            }
            let message = Thumbcachectl.fullMessage(for: error)
            if isError { exit(.usage, complaining: Thumbcachectl.errorText(message)) }
            print(message)
        }
    }

    private static var world: Environment {
        Environment(variable: { name in getenv(name).map { String(cString: $0) } })
    }

    private static func exit(_ status: ExitStatus, complaining message: String) -> Never {
        world.complain(message, .error)
        Glibc.exit(status.rawValue)
    }

    /// The arguments behind the program's name. Ids are opaque bytes, but Swift's strings are not: rather than ask for
    /// another user than was named, what is not UTF-8 is refused.
    private static func decodedArguments(
        _ count: Int32, _ vector: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
    ) throws(Failure) -> [String] {
        var arguments: [String] = []
        for index in 1..<max(1, Int(count)) {
            guard let pointer = vector[index] else { break }
            guard let argument = String(validatingCString: pointer) else {
                let way = "for ids of other bytes use redis-cli --quoted-input, which reads them as '\"\\xff\"'"
                throw Failure(.usage, "argument \(index) is not UTF-8; \(way)")
            }
            arguments.append(argument)
        }
        return arguments
    }
}
