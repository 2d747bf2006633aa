import DaemonServer
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

    @Test(arguments: [250, 300, 512, 1_024, 1_250, 1_300, 1_400])
    func
        `F15: with fewer, open directories give way first, then connections; never more than there are`(
            limit: Int
        ) throws
    {
        let budget = try DescriptorBudget(configuration, limit: limit, diskThreads: 13)
        #expect(fixed + budget.directories + budget.connections == limit)
        #expect(budget.connections >= configuration.limits.adminConnections + 8)
        #expect(budget.directories >= 16)
        if budget.directories > 16 { #expect(budget.connections == configuration.limits.connections) }
        let applied = budget.applied(to: configuration).limits
        #expect(applied.connectionsPerUID <= applied.connections)
        #expect(applied.adminConnections == configuration.limits.adminConnections)
    }

    @Test func `what is lowered is named with what it has become`() throws {
        let limit = fixed + 16 + 100
        let budget = try DescriptorBudget(configuration, limit: limit, diskThreads: 13)
        #expect(
            budget.shortfalls(of: configuration) == ["limits.connections: 100 instead of 1024"])
    }

    @Test func `with too few for the least, the error says how many it takes`() throws {
        let least = fixed + 16 + 16 + 8
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
        let budget = try DescriptorBudget(small, limit: fixed + 16 + 4, diskThreads: 13)
        #expect(budget.directories == 16)
        #expect(budget.connections == 4)
    }
}
