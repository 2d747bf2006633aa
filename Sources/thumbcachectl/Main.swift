import ArgumentParser
import CLinux
import Glibc
import LinuxSupport

/// The entry point. It creates the ``Environment`` that is passed to the commands.
@main
enum Main {
    static func main() async {
        // Otherwise the connection could get the number of a closed standard descriptor, and receive output.
        guard clinux_fill_standard_descriptors() == 0 else { Glibc.exit(ExitStatus.refused.rawValue) }
        // libdispatch logs threads whose priority it may not raise. A successful logout must log nothing (F45).
        setenv("LIBDISPATCH_LOG", "NO", 0)
        var arguments: [String] = []
        do {
            arguments = try decodedArguments(CommandLine.argc, CommandLine.unsafeArgv)
            let command = try Thumbcachectl.parseAsRoot(arguments)
            if let command = command as? any DaemonCommand {
                try await command.run(in: environment)
            } else if command is Thumbcachectl {
                // Without a subcommand, the help is printed and the exit status is 2.
                exit(.usage, message: Thumbcachectl.helpMessage())
            } else {
                // A command of ArgumentParser, such as help.
                var command = command
                try command.run()
            }
        } catch let failure as Failure {
            exit(failure.status, message: "thumbcachectl: \(failure.message)")
        } catch {
            // --help and --version are thrown as well, but are not errors.
            let isError = Thumbcachectl.exitCode(for: error) != .success
            if isError, let unknown = Thumbcachectl.unknownCommand(arguments) {
                exit(.usage, message: "thumbcachectl: \(unknown)")
            }
            let message = Thumbcachectl.fullMessage(for: error)
            if isError { exit(.usage, message: Thumbcachectl.errorText(message)) }
            print(message)
        }
    }

    private static var environment: Environment {
        Environment(variable: { name in getenv(name).map { String(cString: $0) } })
    }

    private static func exit(_ status: ExitStatus, message: String) -> Never {
        environment.report(message, .error)
        Glibc.exit(status.rawValue)
    }

    /// The arguments after the program's name. Rejects those that are not UTF-8: decoding them with replacement
    /// characters could name another user.
    private static func decodedArguments(
        _ count: Int32, _ vector: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
    ) throws(Failure) -> [String] {
        var arguments: [String] = []
        for index in 1..<max(1, Int(count)) {
            guard let pointer = vector[index] else { break }
            guard let argument = String(validatingCString: pointer) else {
                let advice = "for ids of other bytes use redis-cli --quoted-input with '\"\\xff\"'"
                throw Failure(.usage, "argument \(index) is not UTF-8; \(advice)")
            }
            arguments.append(argument)
        }
        return arguments
    }
}
