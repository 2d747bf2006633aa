import DaemonServer
import ImageFetcher
import Testing

@testable import thumbcached

/// How descriptors are shared out (F15, I9).
@Suite struct DescriptorBudgetTests {
    private let configuration = Configuration()
    private let fixed = DescriptorBudget.fixed(threads: 1, diskThreads: 13)

    @Test func `F15: with as many as are needed, nothing is lowered`() throws {
        let needed = DescriptorBudget.needed(configuration, diskThreads: 13)
        for limit in [needed, 1_000_000] {
            let budget = try DescriptorBudget(configuration, limit: limit, diskThreads: 13)
            #expect(budget.applied(to: configuration) == configuration)
            #expect(budget.directories == 256)
            #expect(budget.shortfalls(of: configuration) == [])
        }
        #expect(needed < 4096)
    }

    @Test(arguments: [300, 350, 400, 512, 1_024, 1_300, 1_400, 1_500])
    func
        `F15: with fewer, open directories give way first, then downloads, connections; never more than there are`(
            limit: Int
        ) throws
    {
        let budget = try DescriptorBudget(configuration, limit: limit, diskThreads: 13)
        let used = fixed + budget.directories + 2 * budget.downloads + budget.connections
        #expect(used <= limit)
        #expect(used >= limit - 1)
        #expect(budget.connections >= configuration.limits.adminConnections + 8)
        #expect(budget.downloads >= 8)
        #expect(budget.directories >= 16)
        // A download takes two, so one may be left over.
        if budget.directories > 17 { #expect(budget.downloads == configuration.limits.downloads) }
        if budget.downloads > 8 { #expect(budget.connections == configuration.limits.connections) }
        let applied = budget.applied(to: configuration).limits
        #expect(applied.connectionsPerUID <= applied.connections)
        #expect(applied.downloadsPerUID <= applied.downloads)
        #expect(applied.adminConnections == configuration.limits.adminConnections)
    }

    @Test func `F15: token requests have descriptors of their own, a socket and what its host is resolved with`() {
        let others = 64 + 4 * 2 + 3 * 13 + DaemonServer.refusedAtOnce
        #expect(CurlImageFetcher.tokenRequestsAtOnce > 0)
        #expect(fixed == others + 2 * CurlImageFetcher.tokenRequestsAtOnce)
    }

    @Test func `what is lowered is named with what it has become`() throws {
        let limit = fixed + 16 + 2 * 8 + 100
        let budget = try DescriptorBudget(configuration, limit: limit, diskThreads: 13)
        #expect(
            budget.shortfalls(of: configuration)
                == ["limits.connections: 100 instead of 1024", "limits.downloads: 8 instead of 256"])
    }

    @Test func `with too few for the least, the error says how many it takes`() throws {
        let least = fixed + 16 + 2 * 8 + 16 + 8
        #expect(throws: Never.self) { try DescriptorBudget(configuration, limit: least, diskThreads: 13) }
        let error = #expect(throws: DaemonError.self) {
            try DescriptorBudget(configuration, limit: least - 1, diskThreads: 13)
        }
        #expect(
            error?.description.contains(
                "only \(least - 1) open files; with this configuration it needs at least \(least)") == true)
    }

    @Test func `a configuration that wants less than the least gets what it wants`() throws {
        var small = configuration
        small.limits.connections = 4
        small.limits.adminConnections = 1
        small.limits.downloads = 2
        let budget = try DescriptorBudget(small, limit: fixed + 16 + 4 + 4, diskThreads: 13)
        #expect(budget.directories == 16)
        #expect(budget.downloads == 2)
        #expect(budget.connections == 4)
    }
}
