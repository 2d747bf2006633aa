import DaemonServer
import DiskStore
import ImageFetcher
import ThumbcacheProtocol
import ThumbnailCache

// What each part of the program takes of the configuration.

extension Configuration {
    /// - Parameters:
    ///   - openDirectories: as many as there are descriptors for.
    ///   - openEntries: the same.
    func store(openDirectories: Int, openEntries: Int) -> DiskStoreConfiguration {
        DiskStoreConfiguration(
            cacheDirectory: storage.cache, stateDirectory: storage.state, runtimeDirectory: storage.runtime,
            keys: storage.keys == .disk ? .disk : .runtime,
            pendingLogouts: sessions.pendingLogouts.isEmpty ? nil : sessions.pendingLogouts, quota: storage.quota,
            userQuota: storage.userQuota,
            openDirectories: openDirectories, openEntries: openEntries)
    }

    var cacheSettings: CacheSettings {
        CacheSettings(
            origins: origins, imageLimit: limits.image, dimensionLimit: limits.dimension,
            usersPerUID: limits.usersPerUID, sessionsPerUser: limits.sessionsPerUser,
            negativeEntries: limits.negativeEntries,
            // As many as the fetcher would take of a uid.
            downloadsWaiting: limits.queuePerUID + limits.downloadsPerUID)
    }

    var serverLimits: ServerLimits {
        ServerLimits(
            connections: limits.connections, connectionsPerUID: limits.connectionsPerUID,
            adminConnections: limits.adminConnections, input: limits.input, output: limits.output,
            stall: limits.stall.milliseconds, queuePerUID: limits.queuePerUID,
            arguments: limits.arguments,
            command: CommandLimits(id: limits.id, image: limits.image, token: limits.token))
    }

    var memoryLimits: MemoryBudget.Limits {
        MemoryBudget.Limits(perUID: limits.memoryPerUID, total: limits.memory)
    }

    var adminRule: AdminRule {
        AdminRule(uids: access.admins.uids, gids: access.admins.gids)
    }

    var fetcher: FetcherConfiguration {
        var fetcher = FetcherConfiguration(
            maximumImageBytes: limits.image, maximumDimension: limits.dimension, downloads: limits.downloads,
            downloadsPerUID: limits.downloadsPerUID, queuePerUID: limits.queuePerUID,
            userAgent: "thumbcached/\(Version.current)")
        fetcher.origins = Set(origins.keys)
        // A session file's fields are of 65,535 bytes at most.
        fetcher.maximumTokenBytes = min(limits.token, 65_535)
        return fetcher
    }
}

extension Duration {
    /// Whole milliseconds.
    var milliseconds: Int64 {
        components.seconds * 1_000 + components.attoseconds / 1_000_000_000_000_000
    }
}
