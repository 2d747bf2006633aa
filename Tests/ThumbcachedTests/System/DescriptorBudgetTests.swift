import DaemonServer
import Testing

@testable import thumbcached

/// The division of descriptors (F15, I9).
@Suite struct DescriptorBudgetTests {
    /// Without a memory tier, so that entry files are kept open.
    private let configuration = {
        var configuration = Configuration()
        configuration.memory.tier = 0
        return configuration
    }()
    private let fixed = DescriptorBudget.fixed(threads: 1, diskThreads: 13)

    @Test func `F15: a sufficient limit lowers nothing`() throws {
        let needed = DescriptorBudget.needed(configuration, diskThreads: 13)
        for limit in [needed, 1_000_000] {
            let budget = try DescriptorBudget(configuration, limit: limit, diskThreads: 13)
            #expect(budget.applied(to: configuration) == configuration)
            #expect(budget.directories == 1_024 && budget.entries == 1_024)
            #expect(budget.shortfalls(of: configuration) == [])
        }
        #expect(needed < 4096)
    }

    @Test func `entry files are not kept open if there is a memory tier`() throws {
        let budget = try DescriptorBudget(Configuration(), limit: 1_000_000, diskThreads: 13)
        #expect(budget.entries == 0)
        let saved = DescriptorBudget.needed(configuration, diskThreads: 13) - 1024
        #expect(DescriptorBudget.needed(Configuration(), diskThreads: 13) == saved)
    }

    @Test(arguments: [250, 300, 512, 1_024, 1_300, 1_400, 2_000, 2_500, 3_000])
    func
        `F15: a low limit reduces open entry files first, then directories, then connections`(
            limit: Int
        ) throws
    {
        let budget = try DescriptorBudget(configuration, limit: limit, diskThreads: 13)
        #expect(fixed + budget.entries + budget.directories + budget.connections == limit)
        #expect(budget.connections >= configuration.limits.server.adminConnections + 8)
        #expect(budget.directories >= 16)
        if budget.entries > 0 { #expect(budget.directories == 1_024) }
        if budget.directories > 16 { #expect(budget.connections == configuration.limits.server.connections) }
        let applied = budget.applied(to: configuration).limits.server
        #expect(applied.connectionsPerAccount <= applied.connections)
        #expect(applied.adminConnections == configuration.limits.server.adminConnections)
    }

    @Test func `lowered settings are listed with their new values`() throws {
        let limit = fixed + 16 + 100
        let budget = try DescriptorBudget(configuration, limit: limit, diskThreads: 13)
        #expect(
            budget.shortfalls(of: configuration) == ["limits.connections: 100 instead of 1024"])
    }

    @Test func `a limit below the minimum is an error that states the minimum`() throws {
        let least = fixed + 16 + 16 + 8
        #expect(throws: Never.self) { try DescriptorBudget(configuration, limit: least, diskThreads: 13) }
        let error = #expect(throws: DaemonError.self) {
            try DescriptorBudget(configuration, limit: least - 1, diskThreads: 13)
        }
        #expect(
            error?.description.contains(
                "the limit of open files is \(least - 1); this configuration needs at least \(least)") == true)
    }

    @Test func `a configuration below the minimum gets what it needs`() throws {
        var small = configuration
        small.limits.server.connections = 4
        small.limits.server.adminConnections = 1
        let budget = try DescriptorBudget(small, limit: fixed + 16 + 4, diskThreads: 13)
        #expect(budget.directories == 16)
        #expect(budget.connections == 4)
    }
}
