extension Configuration {
    /// A key that cannot be more than another.
    private struct Relation {
        let lesser: String
        let place: WritableKeyPath<Configuration, Int>
        let greater: String
        let bound: KeyPath<Configuration, Int>
        /// What the lesser must stay below the greater by.
        var margin = 0
        let format: (Int) -> String
    }

    private static var relations: [Relation] {
        let number: (Int) -> String = { "\($0)" }
        return [
            Relation(
                lesser: "storage.user-quota", place: \.storage.userQuota,
                greater: "storage.quota", bound: \.storage.quota, format: ByteSize.format),
            Relation(
                lesser: "limits.image", place: \.limits.image,
                greater: "storage.user-quota", bound: \.storage.userQuota, format: ByteSize.format),
            Relation(
                lesser: "limits.memory-per-uid", place: \.limits.memoryPerUID,
                greater: "limits.memory", bound: \.limits.memory, format: ByteSize.format),
            // Before what has to fit into the input: a request that is allowed finds room, when it is alone.
            Relation(
                lesser: "limits.input", place: \.limits.input,
                greater: "limits.memory-per-uid", bound: \.limits.memoryPerUID, format: ByteSize.format),
            Relation(
                lesser: "limits.image", place: \.limits.image,
                greater: "limits.input", bound: \.limits.input, format: ByteSize.format),
            Relation(
                lesser: "limits.token", place: \.limits.token,
                greater: "limits.input", bound: \.limits.input, format: ByteSize.format),
            Relation(
                lesser: "limits.connections-per-uid", place: \.limits.connectionsPerUID,
                greater: "limits.connections", bound: \.limits.connections, format: number),
            Relation(
                lesser: "limits.admin-connections", place: \.limits.adminConnections,
                greater: "limits.connections", bound: \.limits.connections, margin: 1, format: number),
            Relation(
                lesser: "limits.downloads-per-uid", place: \.limits.downloadsPerUID,
                greater: "limits.downloads", bound: \.limits.downloads, format: number),
        ]
    }

    /// Brings the defaults into line with what is set, and names what is set and contradicts itself.
    ///
    /// A default gives way, so that `quota = "16MiB"` alone is a whole configuration; a value that somebody wrote
    /// is never changed behind their back.
    mutating func settleRelations(found: Set<String>) -> [ConfigurationError.Problem] {
        var problems: [ConfigurationError.Problem] = []
        for relation in Self.relations {
            let most = self[keyPath: relation.bound] - relation.margin
            guard self[keyPath: relation.place] > most else { continue }
            guard found.contains(relation.lesser) else {
                self[keyPath: relation.place] = most
                continue
            }
            let value = relation.format(self[keyPath: relation.place])
            let isDefault = !found.contains(relation.greater) ? ", the default" : ""
            let bound = "\(relation.greater) (\(relation.format(self[keyPath: relation.bound]))\(isDefault))"
            let sentence =
                relation.margin == 0 ? "\(value) is more than \(bound)" : "\(value) is not less than \(bound)"
            problems.append(
                .init(key: relation.lesser, sentence: "\(sentence): lower the one or raise the other"))
        }
        return problems
    }
}
