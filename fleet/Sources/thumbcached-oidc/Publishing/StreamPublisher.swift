import Fleet

/// Publishes as `thumbcachectl fleet logout` does: to the stream, and to a replica where there is one.
///
/// Each on a connection of its own, of which there are no more than HTTP has.
struct StreamPublisher: OrderPublisher {
    let connector: RedisConnector
    let settings: StreamSettings

    func publish(_ order: FleetCommand) async throws(PublishFailure) -> String {
        do throws(RedisError) {
            let connection = try await connector.connect()
            defer { connection.close() }
            let publication = try await FleetStream(connection: connection, name: settings.stream).publish(
                order, keep: settings.keep, replicas: settings.replicas, within: .milliseconds(settings.wait))
            if let loss = publication.loss { throw RedisError(loss) }
            return "\(publication.id)"
        } catch {
            throw PublishFailure(description: error.description)
        }
    }
}

struct StreamSettings: Equatable, Sendable {
    var stream = "thumbcached:fleet"
    /// Milliseconds for which an entry stays in the stream, at least.
    var keep: Int64 = 7 * 86_400_000
    /// That have to have it; nil for one, where the server has any.
    var replicas: Int?
    /// Milliseconds that they may take.
    var wait: Int64 = 5_000
}
