import Fleet

/// Publishes to the stream, each time on a new connection; ``HTTPLimits`` bounds their number.
struct StreamPublisher: CommandPublisher {
    let connector: RedisConnector
    let settings: StreamSettings

    func publish(_ command: FleetCommand) async throws(PublishFailure) -> String {
        do throws(RedisError) {
            let connection = try await connector.connect()
            defer { connection.close() }
            let publication = try await FleetStream(connection: connection, name: settings.stream).publish(
                command, keep: settings.keep, replicas: settings.replicas, within: .milliseconds(settings.wait))
            if let loss = publication.loss { throw RedisError(loss) }
            return "\(publication.id)"
        } catch {
            throw PublishFailure(description: error.description)
        }
    }
}

struct StreamSettings: Equatable, Sendable {
    var stream = "thumbcached:fleet"
    /// Minimum retention of an entry in milliseconds.
    var keep: Int64 = 7 * 86_400_000
    /// Replicas that must have the entry; nil for one if the server has any.
    var replicas: Int?
    /// Limit of the wait for replicas in milliseconds.
    var wait: Int64 = 5_000
}
