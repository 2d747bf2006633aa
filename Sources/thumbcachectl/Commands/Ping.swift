import ArgumentParser
import ThumbcacheProtocol

struct Ping: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Ask whether the daemon answers.",
        discussion: "Prints PONG. Exit status 3 where no daemon answers within 10 seconds.")

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func run(in environment: Environment) async throws(Failure) {
        let reply = try await environment.ask(words("PING"), daemon, within: 10)
        try environment.show(output.json ? .map([.simpleString("reply"), reply]) : reply, output)
    }
}
