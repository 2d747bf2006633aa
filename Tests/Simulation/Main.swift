import Glibc

@main struct Main {
    static func main() {
        // Collections would otherwise have another order in each process, and a seed would not replay.
        if getenv("SWIFT_DETERMINISTIC_HASHING") == nil {
            setenv("SWIFT_DETERMINISTIC_HASHING", "1", 1)
            var arguments = CommandLine.arguments.map { strdup($0) }
            arguments.append(nil)
            execv("/proc/self/exe", arguments)
            perror("thumbcached-simulation: execv")
            exit(1)
        }
        exit(Program(arguments: Array(CommandLine.arguments.dropFirst())).run())
    }
}

/// The program's options: `--seed N --steps N` repeats one simulation; `--seconds N` runs fresh seeds.
struct Program {
    private var seed: UInt64?
    private var steps = 20_000
    private var seconds = 60
    private var isTracing = false
    private var sabotage: Sabotage?
    private var isInvalid = false

    init(arguments: [String]) {
        var rest = arguments[...]
        while let option = rest.popFirst() {
            switch option {
            case "--trace": isTracing = true
            case "--seed": seed = rest.popFirst().flatMap { UInt64($0) }
            case "--steps": steps = rest.popFirst().flatMap { Int($0) } ?? 0
            case "--seconds": seconds = rest.popFirst().flatMap { Int($0) } ?? 0
            case "--sabotage": sabotage = rest.popFirst().flatMap { Sabotage(rawValue: $0) }
            default: isInvalid = true
            }
        }
    }

    func run() -> Int32 {
        if isInvalid || steps <= 0 || seconds <= 0 {
            print("usage: thumbcached-simulation [--seed N] [--steps N] [--seconds N] [--trace] [--sabotage NAME]")
            return 2
        }
        var total = Simulation.Report()
        let began = Self.seconds(CLOCK_MONOTONIC)
        var next = seed ?? SystemRandomNumberGenerator().seed()
        repeat {
            // Printed regularly, so that a run that traps can be repeated.
            if seed == nil, total.lives % 50 == 0 {
                print("seeds from \(next)")
                fflush(nil)
            }
            let report = Simulation(seed: next, sabotage: sabotage, trace: isTracing ? { print($0) } : nil)
                .run(steps: steps)
            total.add(report)
            if let violation = report.violation {
                print("violation after \(report.steps) steps of seed \(next): \(violation)")
                print("replay with: make simulate SEED=\(next) STEPS=\(steps)")
                return 1
            }
            if seed != nil { print("seed \(next): hash \(String(report.hash, radix: 16))") }
            next &+= 1
        } while seed == nil && Self.seconds(CLOCK_MONOTONIC) - began < Double(seconds)
        let rate = Int(Double(total.commands) / Self.seconds(CLOCK_PROCESS_CPUTIME_ID))
        print("\(total.summary); \(rate) commands per second of processor time")
        return 0
    }

    private static func seconds(_ clock: clockid_t) -> Double {
        var time = timespec()
        clock_gettime(clock, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }
}

extension SystemRandomNumberGenerator {
    /// A short number, which is easy to copy.
    fileprivate func seed() -> UInt64 {
        var random = self
        return random.next() >> 32
    }
}

extension Simulation.Report {
    fileprivate mutating func add(_ other: Self) {
        steps += other.steps
        commands += other.commands
        images += other.images
        downloads += other.downloads
        faults += other.faults
        crashes += other.crashes
        lives += 1
    }

    fileprivate var summary: String {
        "\(lives) lives, \(steps) steps, \(commands) commands, \(images) images served, \(downloads) downloads, "
            + "\(faults) disk faults, \(crashes) crashes"
    }
}
