// swift-tools-version: 6.2

import Foundation
import PackageDescription

// Settings of every Swift target: warnings are errors, and each file imports the modules that it uses.
let swiftRules: [SwiftSetting] = [
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("ExistentialAny"),
]

// With THUMBCACHED_FUZZ set, targets are built for libFuzzer (`make fuzz`). Only then, because SwiftPM rejects
// dependencies with unsafe flags.
let isFuzzing = Context.environment["THUMBCACHED_FUZZ"] != nil
let fuzzRules: [SwiftSetting] =
    isFuzzing ? [.unsafeFlags(["-sanitize=fuzzer,address", "-parse-as-library"])] : []

let cRules: [CSetting] = [
    .enableWarning("all"),
    .enableWarning("extra"),
    .treatAllWarnings(as: .error),
]
/// For C that parses foreign bytes.
let cFuzzRules: [CSetting] = isFuzzing ? [.unsafeFlags(["-fsanitize=fuzzer-no-link,address"])] : []

// Optional parts and the header that each needs. THUMBCACHED_PARTS, which `make` sets, lists the parts to build,
// separated by commas. Without it, a part is built if its header is installed.
let optionalParts = ["renderer": "vips/vips.h", "federation": "ares.h"]
func isBuilt(_ part: String) -> Bool {
    if let parts = Context.environment["THUMBCACHED_PARTS"] {
        return parts.split(separator: ",").contains { $0 == part }
    }
    guard let header = optionalParts[part] else { return false }
    return ["/usr/include", "/usr/local/include"].contains {
        FileManager.default.fileExists(atPath: "\($0)/\(header)")
    }
}
let hasRenderer = isBuilt("renderer")
let hasFederation = isBuilt("federation")

// Directories of the glib headers, which libvips needs. Not from pkg-config, whose flag -pthread causes a warning of
// SwiftPM in each build.
let glibHeaders: [CSetting] = [
    .unsafeFlags(
        ["x86_64-linux-gnu/", "aarch64-linux-gnu/", ""].map { "-I/usr/lib/\($0)glib-2.0/include" }
            + ["-isystem", "/usr/include/glib-2.0", "-I/usr/lib64/glib-2.0/include"])
]

let nioCore = Target.Dependency.product(name: "NIOCore", package: "swift-nio")
let nioPosix = Target.Dependency.product(name: "NIOPosix", package: "swift-nio")
let nioHTTP1 = Target.Dependency.product(name: "NIOHTTP1", package: "swift-nio")
let nioLocks = Target.Dependency.product(name: "NIOConcurrencyHelpers", package: "swift-nio")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let deque = Target.Dependency.product(name: "DequeModule", package: "swift-collections")
let heap = Target.Dependency.product(name: "HeapModule", package: "swift-collections")
let arguments = Target.Dependency.product(name: "ArgumentParser", package: "swift-argument-parser")

// Listed by layer: a target imports only targets above it.
let package = Package(
    name: "thumbcached",
    products: [
        .executable(name: "thumbcached", targets: ["thumbcached"]),
        .executable(name: "thumbcached-fetcher", targets: ["thumbcached-fetcher"]),
        .executable(name: "thumbcached-renderer", targets: ["thumbcached-renderer"]),
        .executable(name: "thumbcachectl", targets: ["thumbcachectl"]),
        .executable(name: "thumbcached-http", targets: ["thumbcached-http"]),
        .library(name: "Thumbcache", targets: ["Thumbcache"]),
        // Logging, settings and confinement of programs, for the package in `fleet`.
        .library(
            name: "ProgramSupport",
            targets: ["ProgramSupport", "LinuxSupport", "JSONReader", "CLinux", "ThumbcacheProtocol"]),
        // libcurl, for thumbcached-oidc in `fleet`.
        .library(name: "CCurl", targets: ["CCurl"]),
        // For tests only: loaded into daemons to simulate peers of other accounts.
        .library(name: "ForeignPeers", type: .dynamic, targets: ["CForeignPeers"]),
        // For tests only: loaded into a fetcher to simulate an attacker.
        .library(name: "HostileFetcher", type: .dynamic, targets: ["CHostileFetcher"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
        .package(url: "https://github.com/LebJe/TOMLKit", from: "0.6.0"),
    ],
    targets: [
        // C that Swift cannot call directly.
        .target(
            name: "CCurl", cSettings: cRules, linkerSettings: [.linkedLibrary("curl"), .linkedLibrary("ssl")]),
        .target(name: "COpenSSL", cSettings: cRules, linkerSettings: [.linkedLibrary("crypto")]),
        .target(
            name: "CDNS", cSettings: cRules + cFuzzRules + (hasFederation ? [.define("CDNS_HAS_CARES")] : []),
            linkerSettings: (hasFederation ? [.linkedLibrary("cares")] : []) + [.linkedLibrary("resolv")]),
        .target(name: "CLinux", cSettings: cRules),
        .target(
            name: "LinuxSupport", dependencies: ["CLinux", nioCore, nioLocks, logging, deque],
            swiftSettings: swiftRules + fuzzRules),

        // Parses untrusted JSON: no recursion, bounded depth, no traps.
        .target(name: "JSONReader", dependencies: ["LinuxSupport"], swiftSettings: swiftRules + fuzzRules),

        // Event loops for the socket and for downloads.
        .target(
            name: "SocketLoops", dependencies: ["LinuxSupport", "CLinux", nioCore, nioLocks, logging, deque, heap],
            swiftSettings: swiftRules + fuzzRules),

        // SIZE, FIT and FORMAT, shared by the client, the cache and the renderer.
        .target(name: "ImageOptions", swiftSettings: swiftRules + fuzzRules),

        // The protocol of the socket.
        .target(
            name: "ThumbcacheProtocol", dependencies: ["ImageOptions", "LinuxSupport", nioCore],
            swiftSettings: swiftRules + fuzzRules),

        // The client library for other packages.
        .target(
            name: "Thumbcache",
            dependencies: ["ThumbcacheProtocol", "ImageOptions", "LinuxSupport", nioCore, nioPosix, nioLocks, logging],
            swiftSettings: swiftRules + fuzzRules),

        // The cache's logic, without input and output.
        .target(
            name: "CacheCore", dependencies: ["ImageOptions", "LinuxSupport", nioCore, nioLocks, logging, deque],
            swiftSettings: swiftRules + fuzzRules),

        // Logging and settings of programs.
        .target(
            name: "ProgramSupport",
            dependencies: [
                "ThumbcacheProtocol", "LinuxSupport", nioLocks, logging, .product(name: "TOMLKit", package: "TOMLKit"),
            ],
            swiftSettings: swiftRules + fuzzRules),

        // The services that the cache uses: disk, fetcher and renderer.
        .target(
            name: "DiskStore",
            dependencies: ["CacheCore", "LinuxSupport", "COpenSSL", "CLinux", nioCore, nioLocks, logging],
            swiftSettings: swiftRules + fuzzRules),
        .target(
            name: "HelperProtocol",
            dependencies: ["ThumbcacheProtocol", "CacheCore", "ImageOptions", "LinuxSupport", nioCore],
            swiftSettings: swiftRules + fuzzRules),

        // Settings of origins: URL templates, URLs that clients may name, permitted addresses.
        .target(
            name: "Origins",
            dependencies: [
                "HelperProtocol", "ProgramSupport", "CacheCore", "LinuxSupport", "COpenSSL", nioCore, nioLocks,
            ],
            swiftSettings: swiftRules + fuzzRules + (hasFederation ? [.define("FEDERATION")] : [])),
        .target(
            name: "HelperClient",
            dependencies: [
                "HelperProtocol", "Origins", "CacheCore", "ImageOptions", "SocketLoops", "LinuxSupport", "CLinux",
                nioCore,
                nioLocks, logging, deque,
            ],
            swiftSettings: swiftRules + fuzzRules),
        .target(
            name: "ImageFetcher",
            dependencies: [
                "HelperProtocol", "Origins", "CacheCore", "SocketLoops", "JSONReader", "LinuxSupport", "CCurl", "CDNS",
                "COpenSSL", nioCore, nioLocks, logging, deque,
            ],
            swiftSettings: swiftRules + fuzzRules),

        // The server on the socket.
        .target(
            name: "DaemonServer",
            dependencies: [
                "ThumbcacheProtocol", "CacheCore", "SocketLoops", "LinuxSupport", "CLinux", nioCore, nioLocks, logging,
                deque,
            ],
            swiftSettings: swiftRules),

        // The programs.
        .executableTarget(
            name: "thumbcached",
            dependencies: [
                "ThumbcacheProtocol", "CacheCore", "DiskStore", "Origins", "HelperProtocol", "HelperClient",
                "SocketLoops", "DaemonServer", "ProgramSupport", "LinuxSupport", "CLinux", nioCore, nioLocks, logging,
                arguments,
            ],
            swiftSettings: swiftRules),
        .executableTarget(
            name: "thumbcached-fetcher",
            dependencies: [
                "ThumbcacheProtocol", "CacheCore", "HelperProtocol", "Origins", "ImageFetcher", "SocketLoops",
                "ProgramSupport", "LinuxSupport", "CLinux", nioCore, nioLocks, logging, arguments,
            ],
            swiftSettings: swiftRules),

        // The process that decodes images, without keys, store and network, and with one worker per user.
        .target(
            name: "CRenderer", cSettings: cRules + glibHeaders,
            linkerSettings: ["vips", "gobject-2.0", "glib-2.0"].map { .linkedLibrary($0) }),
        .executableTarget(
            name: "thumbcached-renderer",
            dependencies: [
                "CRenderer", "HelperProtocol", "ImageOptions", "ThumbcacheProtocol", "ProgramSupport", "LinuxSupport",
                "CLinux",
                nioCore, arguments,
            ],
            swiftSettings: swiftRules),

        .executableTarget(
            name: "thumbcachectl",
            dependencies: [
                "ThumbcacheProtocol", "Thumbcache", "CacheCore", "DiskStore", "HelperProtocol", "ImageOptions",
                "LinuxSupport", "CLinux", nioCore, arguments,
            ],
            swiftSettings: swiftRules),

        .executableTarget(
            name: "thumbcached-http",
            dependencies: [
                "ThumbcacheProtocol", "Thumbcache", "ProgramSupport", "LinuxSupport", "CLinux", "COpenSSL", nioCore,
                nioPosix, nioHTTP1, nioLocks, logging, arguments,
            ],
            swiftSettings: swiftRules),

        // Helpers for all tests.
        .target(name: "TestSupport", path: "Tests/TestSupport", swiftSettings: swiftRules),
        // Fakes for disk, network and clock, which force an overlap and count calls.
        .target(
            name: "CacheFakes", dependencies: ["CacheCore", "ImageOptions", nioCore, nioLocks],
            path: "Tests/CacheFakes",
            swiftSettings: swiftRules),
        // Helpers in C of the end-to-end tests, which share no code with the programs.
        .target(name: "CSpawn", path: "Tests/CSpawn", cSettings: cRules),
        .target(name: "CForeignPeers", path: "Tests/CForeignPeers", cSettings: cRules),
        .target(name: "CHostileFetcher", path: "Tests/CHostileFetcher", cSettings: cRules),
        .target(name: "CRawCalls", path: "Tests/CRawCalls", cSettings: cRules),
        .target(name: "CFibers", path: "Tests/CFibers", cSettings: cRules),
        // The domain over its fakes, decided by a seed (`make simulate`).
        .executableTarget(
            name: "thumbcached-simulation",
            dependencies: [
                "TestSupport", "CacheFakes", "CFibers", "CacheCore", "ImageOptions", "LinuxSupport", nioCore, nioLocks,
                logging, deque,
            ],
            path: "Tests/Simulation", swiftSettings: swiftRules),

        .testTarget(name: "JSONReaderTests", dependencies: ["TestSupport", "JSONReader"], swiftSettings: swiftRules),
        .testTarget(
            name: "LinuxSupportTests", dependencies: ["LinuxSupport", "CLinux", "CRawCalls", nioLocks],
            swiftSettings: swiftRules),
        .testTarget(
            name: "ThumbcacheProtocolTests",
            dependencies: ["TestSupport", "ThumbcacheProtocol", "ImageOptions", nioCore],
            swiftSettings: swiftRules),
        .testTarget(
            name: "ThumbcacheTests",
            dependencies: [
                "Thumbcache", "ThumbcacheProtocol", nioCore, nioPosix, nioLocks, logging,
                .product(name: "NIOEmbedded", package: "swift-nio"),
            ],
            swiftSettings: swiftRules),
        .testTarget(
            name: "CacheCoreTests",
            dependencies: [
                "TestSupport", "CacheFakes", "CacheCore", "ImageOptions", "LinuxSupport", nioCore, nioLocks, logging,
            ],
            swiftSettings: swiftRules),
        .testTarget(
            name: "SimulationTests", dependencies: ["thumbcached-simulation"], exclude: ["seeds.txt"],
            swiftSettings: swiftRules),
        .testTarget(
            name: "DiskStoreTests",
            dependencies: [
                "TestSupport", "DiskStore", "CacheCore", "LinuxSupport", "CLinux", nioCore, nioLocks, logging,
            ],
            swiftSettings: swiftRules),
        .testTarget(
            name: "OriginsTests",
            dependencies: ["Origins", "HelperProtocol", "ProgramSupport", "CacheCore", "LinuxSupport", nioCore],
            swiftSettings: swiftRules),
        .testTarget(
            name: "ImageFetcherTests",
            dependencies: [
                "TestSupport", "CacheFakes", "ImageFetcher", "HelperProtocol", "Origins", "CacheCore", "SocketLoops",
                nioCore, nioPosix, nioLocks, logging,
            ],
            swiftSettings: swiftRules),
        .testTarget(
            name: "HelperClientTests",
            dependencies: [
                "HelperClient", "HelperProtocol", "Origins", "CacheCore", "ImageOptions", "LinuxSupport", nioCore,
                nioLocks,
                logging,
            ],
            swiftSettings: swiftRules),
        .target(
            name: "CImageProbe", path: "Tests/CImageProbe", cSettings: cRules + glibHeaders,
            linkerSettings: ["vips", "gobject-2.0", "glib-2.0"].map { .linkedLibrary($0) }),
        .testTarget(
            name: "RendererTests",
            dependencies: [
                "HelperClient", "HelperProtocol", "CacheCore", "CacheFakes", "CImageProbe", "CRenderer", "ImageOptions",
                "LinuxSupport", "CLinux", nioCore, nioLocks, logging,
            ],
            exclude: ["Images"], swiftSettings: swiftRules),
        .testTarget(
            name: "SocketLoopsTests", dependencies: ["SocketLoops", "CLinux", nioCore, nioLocks, logging, deque],
            swiftSettings: swiftRules),
        .testTarget(
            name: "DaemonServerTests",
            dependencies: [
                "TestSupport", "CacheFakes", "DaemonServer", "SocketLoops", "CacheCore", "ThumbcacheProtocol",
                nioCore, nioPosix, nioLocks, logging,
            ],
            swiftSettings: swiftRules),
        .testTarget(
            name: "ThumbcachedTests",
            dependencies: [
                "TestSupport", "CacheFakes", "ProgramSupport", "Origins", "DaemonServer", "thumbcached",
                "thumbcachectl",
                "Thumbcache", "HelperClient", "HelperProtocol", "CacheCore", "ThumbcacheProtocol", "LinuxSupport",
                nioCore, nioPosix,
                nioLocks, logging,
            ],
            swiftSettings: swiftRules),
        .testTarget(
            name: "HTTPTests",
            dependencies: [
                "CacheFakes", "thumbcached-http", "Thumbcache", "ProgramSupport", "LinuxSupport", nioCore, nioPosix,
                nioHTTP1, nioLocks, logging,
            ],
            swiftSettings: swiftRules),
        .testTarget(
            name: "EndToEndTests",
            dependencies: ["CSpawn", "Thumbcache", nioCore], exclude: ["python"],
            swiftSettings: swiftRules),
    ],
    swiftLanguageModes: [.v6]
)

if !hasRenderer {
    // Without it the daemon serves images only in the sizes that origins send.
    let renderer = ["CRenderer", "thumbcached-renderer", "CImageProbe", "RendererTests"]
    package.targets.removeAll { renderer.contains($0.name) }
    package.products.removeAll { renderer.contains($0.name) }
}

// Programs that only `make bench` needs.
if Context.environment["THUMBCACHED_BENCH"] != nil {
    package.targets.append(
        .executableTarget(
            name: "FloorServer", dependencies: [nioCore, nioHTTP1, nioPosix], path: "bench/floor",
            swiftSettings: swiftRules))
    package.targets.append(
        .executableTarget(
            name: "ClientBench", dependencies: ["Thumbcache", nioCore, nioLocks, nioPosix], path: "bench/client",
            swiftSettings: swiftRules))
}

if isFuzzing {
    // Only tests can import an executable target, so each program becomes a library without its entry point.
    package.products = []
    package.targets.removeAll { $0.isTest }
    let programs = [
        "thumbcached", "thumbcached-fetcher", "thumbcached-renderer", "thumbcachectl", "thumbcached-http",
    ]
    for program in programs {
        guard let index = package.targets.firstIndex(where: { $0.name == program }) else { continue }
        package.targets[index] = .target(
            name: program, dependencies: package.targets[index].dependencies, exclude: ["Main.swift"],
            swiftSettings: swiftRules + fuzzRules)
    }
    // The decoders of the package in fleet, without its servers and their TLS libraries.
    package.dependencies.append(.package(url: "https://github.com/vapor/jwt-kit", from: "5.7.1"))
    let jwtKit = Target.Dependency.product(name: "JWTKit", package: "jwt-kit")
    let decoders: [(name: String, sources: [String], dependencies: [Target.Dependency])] = [
        (
            "Fleet", ["Stream", "Redis/RedisAddress.swift", "Redis/RedisConnection.swift"],
            ["Thumbcache", "ThumbcacheProtocol", "LinuxSupport", nioCore]
        ),
        ("thumbcached-relay", ["Decisions/Decision.swift", "Decisions/Position.swift"], ["Fleet", "LinuxSupport"]),
        (
            "thumbcached-oidc",
            ["Token", "Keys/KeySet.swift", "Keys/KeyStore.swift", "HTTP/ClientAddress.swift", "HTTP/LogoutForm.swift"]
                + ["Publishing/IDTemplate.swift"],
            ["Thumbcache", "JSONReader", "LinuxSupport", nioCore, logging, jwtKit]
        ),
    ]
    package.targets += decoders.map { decoder in
        let path = "fleet/Sources/\(decoder.name)"
        let files = FileManager.default.subpaths(atPath: "\(Context.packageDirectory)/\(path)") ?? []
        let others = files.filter { file in
            file.hasSuffix(".swift") && !decoder.sources.contains { file == $0 || file.hasPrefix("\($0)/") }
        }
        return .target(
            name: decoder.name, dependencies: decoder.dependencies, path: path, exclude: others,
            swiftSettings: swiftRules + fuzzRules)
    }
    package.targets.append(.target(name: "CFuzzMain", path: "Tests/CFuzzMain", cSettings: cRules))
    let nioEmbedded = Target.Dependency.product(name: "NIOEmbedded", package: "swift-nio")
    let fuzzers: [(name: String, underTest: [Target.Dependency])] = [
        ("ConfigurationFuzzer", ["thumbcached", "CacheCore", "DaemonServer", "ThumbcacheProtocol"]),
        ("DecoderFuzzer", ["ThumbcacheProtocol", nioCore]),
        ("DirectoryEntryFuzzer", ["ImageFetcher", "CacheCore", nioCore]),
        ("EntryFuzzer", ["DiskStore", "CacheCore", nioCore]),
        ("FetcherReportFuzzer", ["HelperProtocol", "ThumbcacheProtocol", "CacheCore", "LinuxSupport", nioCore]),
        ("HelperMessageFuzzer", ["HelperProtocol", "CacheCore", "ImageOptions", "LinuxSupport", nioCore]),
        ("HTTPRequestFuzzer", ["thumbcached-http", "Thumbcache", nioCore, nioEmbedded, nioHTTP1]),
        (
            "LogoutTokenFuzzer",
            ["thumbcached-oidc", "Fleet", "Thumbcache", "JSONReader", "LinuxSupport", nioLocks, jwtKit]
        ),
        ("PrinterFuzzer", ["thumbcachectl", "ThumbcacheProtocol", nioCore]),
        ("RepairFuzzer", ["thumbcached-renderer", nioCore]),
        ("ReplyFuzzer", ["thumbcachectl", "thumbcached-http", "Thumbcache", "ThumbcacheProtocol", nioCore]),
        ("ResponseFuzzer", ["ImageFetcher", "CacheCore"]),
        ("ServiceRecordFuzzer", ["ImageFetcher", "Origins", nioCore]),
        ("SnifferFuzzer", ["CacheCore", nioCore]),
        ("StreamFuzzer", ["thumbcached-relay", "Fleet", "ThumbcacheProtocol", nioCore]),
        ("TokenResponseFuzzer", ["ImageFetcher", "CacheCore"]),
        ("URLFuzzer", ["ImageFetcher", "Origins", "CacheCore", nioCore]),
    ]
    let present = fuzzers.filter {
        FileManager.default.fileExists(atPath: "\(Context.packageDirectory)/Tests/Fuzz/\($0.name)")
            && (hasRenderer || $0.name != "RepairFuzzer")
    }
    package.targets += present.map { fuzzer in
        .executableTarget(
            name: fuzzer.name, dependencies: fuzzer.underTest + ["CFuzzMain"], path: "Tests/Fuzz/\(fuzzer.name)",
            swiftSettings: swiftRules + fuzzRules,
            linkerSettings: [.unsafeFlags(["-sanitize=fuzzer,address"])])
    }
}
