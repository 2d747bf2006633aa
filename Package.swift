// swift-tools-version: 6.2

import Foundation
import PackageDescription

// The rules every Swift target is built by: no warning survives, and an import
// shows what a file really uses.
let swiftRules: [SwiftSetting] = [
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("ExistentialAny"),
]

// With THUMBCACHED_FUZZ set the decoders are built for libFuzzer, together with the programs that drive them
// (see `make fuzz`). Unsafe flags would keep an ordinary build of this package from being a dependency.
let isFuzzing = Context.environment["THUMBCACHED_FUZZ"] != nil
let fuzzRules: [SwiftSetting] =
    isFuzzing ? [.unsafeFlags(["-sanitize=fuzzer,address", "-parse-as-library"])] : []

let cRules: [CSetting] = [
    .enableWarning("all"),
    .enableWarning("extra"),
    .treatAllWarnings(as: .error),
]

// Optional parts, each with the headers that it needs. THUMBCACHED_PARTS names the parts to build, separated by commas
// (`make` sets it); without that variable a part is built if its headers are installed.
let optionalParts = ["renderer": ["vips/vips.h", "seccomp.h"], "federation": ["ares.h"]]
func isBuilt(_ part: String) -> Bool {
    if let parts = Context.environment["THUMBCACHED_PARTS"] {
        return parts.split(separator: ",").contains { $0 == part }
    }
    return (optionalParts[part] ?? []).allSatisfy { header in
        ["/usr/include", "/usr/local/include"].contains { FileManager.default.fileExists(atPath: "\($0)/\(header)") }
    }
}
let hasRenderer = isBuilt("renderer")
let hasFederation = isBuilt("federation")

// Where distributions have the headers of glib, which those of libvips want. Not by pkg-config: it also names -pthread,
// which the package manager warns of at each build.
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

// Listed in the order of the layers: a target imports only what stands above it.
let package = Package(
    name: "thumbcached",
    products: [
        .executable(name: "thumbcached", targets: ["thumbcached"]),
        .executable(name: "thumbcached-fetcher", targets: ["thumbcached-fetcher"]),
        .executable(name: "thumbcached-renderer", targets: ["thumbcached-renderer"]),
        .executable(name: "thumbcachectl", targets: ["thumbcachectl"]),
        .executable(name: "thumbcached-exporter", targets: ["thumbcached-exporter"]),
        .library(name: "Thumbcache", targets: ["Thumbcache"]),
        // Logging, settings and confinement of a program, without the cache: for the package in `fleet`.
        .library(
            name: "ProgramSupport",
            targets: ["ProgramSupport", "LinuxSupport", "JSONReader", "CLinux", "ThumbcacheProtocol"]),
        // For the tests alone: it is loaded into daemons whose peers are to be other accounts than they are.
        .library(name: "ForeignPeers", type: .dynamic, targets: ["CForeignPeers"]),
        // The same: it is loaded into a fetcher, and does what somebody would who has broken into it.
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
            name: "CDNS", cSettings: cRules + (hasFederation ? [.define("CDNS_HAS_CARES")] : []),
            linkerSettings: (hasFederation ? [.linkedLibrary("cares")] : []) + [.linkedLibrary("resolv")]),
        .target(name: "CLinux", cSettings: cRules),
        .target(
            name: "LinuxSupport", dependencies: ["CLinux", nioCore, nioLocks, deque],
            swiftSettings: swiftRules + fuzzRules),

        // JSON of untrusted senders: no recursion, bounded depth, no traps.
        .target(name: "JSONReader", dependencies: ["LinuxSupport"], swiftSettings: swiftRules + fuzzRules),

        // Event loops: of the socket, and of downloads.
        .target(
            name: "SocketLoops", dependencies: ["LinuxSupport", "CLinux", nioCore, nioLocks, logging, deque, heap],
            swiftSettings: swiftRules + fuzzRules),

        // What travels on the socket.
        .target(
            name: "ThumbcacheProtocol", dependencies: ["LinuxSupport", nioCore],
            swiftSettings: swiftRules + fuzzRules),

        // The client: a library for other packages.
        .target(
            name: "Thumbcache",
            dependencies: ["ThumbcacheProtocol", "LinuxSupport", nioCore, nioPosix, nioLocks, logging],
            swiftSettings: swiftRules),

        // The domain.
        .target(
            name: "CacheCore", dependencies: ["LinuxSupport", nioCore, nioLocks, logging, deque],
            swiftSettings: swiftRules + fuzzRules),

        // Program support: logging and settings.
        .target(
            name: "ProgramSupport",
            dependencies: [
                "ThumbcacheProtocol", "LinuxSupport", nioLocks, logging, .product(name: "TOMLKit", package: "TOMLKit"),
            ],
            swiftSettings: swiftRules + fuzzRules),

        // What an origin may be asked: its URLs, the ones that clients may name, the addresses that may be reached.
        .target(
            name: "Origins",
            dependencies: ["CacheCore", "LinuxSupport", "COpenSSL", nioCore, nioLocks],
            swiftSettings: swiftRules + fuzzRules + (hasFederation ? [.define("FEDERATION")] : [])),

        // What the domain needs from the world.
        .target(
            name: "DiskStore",
            dependencies: ["CacheCore", "LinuxSupport", "COpenSSL", "CLinux", nioCore, nioLocks, logging],
            swiftSettings: swiftRules + fuzzRules),
        .target(
            name: "HelperProtocol", dependencies: ["ThumbcacheProtocol", "CacheCore", "LinuxSupport", nioCore],
            swiftSettings: swiftRules + fuzzRules),
        .target(
            name: "HelperClient",
            dependencies: [
                "HelperProtocol", "Origins", "CacheCore", "SocketLoops", "LinuxSupport", "CLinux", nioCore, nioLocks,
                logging, deque,
            ],
            swiftSettings: swiftRules + fuzzRules),
        .target(
            name: "ImageFetcher",
            dependencies: [
                "HelperProtocol", "Origins", "CacheCore", "SocketLoops", "JSONReader", "LinuxSupport", "CCurl", "CDNS",
                "COpenSSL", nioCore, nioLocks, logging, deque,
            ],
            swiftSettings: swiftRules + fuzzRules),

        // The socket.
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
                "ThumbcacheProtocol", "CacheCore", "HelperProtocol", "ImageFetcher", "SocketLoops", "ProgramSupport",
                "LinuxSupport", "CLinux", nioCore, nioLocks, logging, arguments,
            ],
            swiftSettings: swiftRules),

        // The process that decodes pictures: it has no keys, no store, no network, and a worker for each user.
        .target(
            name: "CRenderer", cSettings: cRules + glibHeaders,
            linkerSettings: ["vips", "gobject-2.0", "glib-2.0", "seccomp"].map { .linkedLibrary($0) }),
        .executableTarget(
            name: "thumbcached-renderer",
            dependencies: [
                "CRenderer", "HelperProtocol", "ThumbcacheProtocol", "ProgramSupport", "LinuxSupport", "CLinux",
                nioCore, arguments,
            ],
            swiftSettings: swiftRules),

        .executableTarget(
            name: "thumbcachectl",
            dependencies: [
                "ThumbcacheProtocol", "Thumbcache", "CacheCore", "DiskStore", "HelperProtocol", "LinuxSupport",
                "CLinux", nioCore, arguments,
            ],
            swiftSettings: swiftRules),

        .executableTarget(
            name: "thumbcached-exporter",
            dependencies: [
                "ThumbcacheProtocol", "Thumbcache", "ProgramSupport", "LinuxSupport", "CLinux", nioCore, nioPosix,
                nioHTTP1, nioLocks, logging, arguments,
            ],
            swiftSettings: swiftRules),

        // Stand-ins for disk, network and clock, which force an overlap and count calls.
        .target(
            name: "CacheFakes", dependencies: ["CacheCore", nioCore, nioLocks], path: "Tests/CacheFakes",
            swiftSettings: swiftRules),
        // The end-to-end tests share no code with what they test.
        .target(name: "CSpawn", path: "Tests/CSpawn", cSettings: cRules),
        .target(name: "CForeignPeers", path: "Tests/CForeignPeers", cSettings: cRules),
        .target(name: "CHostileFetcher", path: "Tests/CHostileFetcher", cSettings: cRules),
        .target(name: "CRawCalls", path: "Tests/CRawCalls", cSettings: cRules),

        .testTarget(name: "JSONReaderTests", dependencies: ["JSONReader"], swiftSettings: swiftRules),
        .testTarget(
            name: "LinuxSupportTests", dependencies: ["LinuxSupport", "CLinux", "CRawCalls", nioLocks],
            swiftSettings: swiftRules),
        .testTarget(
            name: "ThumbcacheProtocolTests", dependencies: ["ThumbcacheProtocol", nioCore],
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
            dependencies: ["CacheFakes", "CacheCore", "LinuxSupport", nioCore, nioLocks, logging],
            swiftSettings: swiftRules),
        .testTarget(
            name: "DiskStoreTests",
            dependencies: ["DiskStore", "CacheCore", "LinuxSupport", "CLinux", nioCore, nioLocks, logging],
            swiftSettings: swiftRules),
        .testTarget(
            name: "OriginsTests", dependencies: ["Origins", "CacheCore", nioCore], swiftSettings: swiftRules),
        .testTarget(
            name: "ImageFetcherTests",
            dependencies: [
                "ImageFetcher", "HelperProtocol", "Origins", "CacheCore", "SocketLoops", nioCore, nioPosix, nioLocks,
                logging,
            ],
            swiftSettings: swiftRules),
        .testTarget(
            name: "HelperClientTests",
            dependencies: ["HelperClient", "HelperProtocol", "CacheCore", "LinuxSupport", nioCore, nioLocks, logging],
            swiftSettings: swiftRules),
        .target(
            name: "CPictureProbe", path: "Tests/CPictureProbe", cSettings: cRules + glibHeaders,
            linkerSettings: ["vips", "gobject-2.0", "glib-2.0"].map { .linkedLibrary($0) }),
        .testTarget(
            name: "RendererTests",
            dependencies: [
                "HelperClient", "HelperProtocol", "CacheCore", "CacheFakes", "CPictureProbe", "LinuxSupport", "CLinux",
                nioCore, nioLocks, logging,
            ],
            exclude: ["Pictures"], swiftSettings: swiftRules),
        .testTarget(
            name: "SocketLoopsTests", dependencies: ["SocketLoops", "CLinux", nioCore, nioLocks, logging, deque],
            swiftSettings: swiftRules),
        .testTarget(
            name: "DaemonServerTests",
            dependencies: [
                "CacheFakes", "DaemonServer", "SocketLoops", "CacheCore", "ThumbcacheProtocol", nioCore, nioPosix,
                nioLocks, logging,
            ],
            swiftSettings: swiftRules),
        .testTarget(
            name: "ThumbcachedTests",
            dependencies: [
                "CacheFakes", "ProgramSupport", "DaemonServer", "thumbcached", "thumbcachectl", "Thumbcache",
                "HelperClient", "HelperProtocol", "CacheCore", "ThumbcacheProtocol", "LinuxSupport", nioCore, nioPosix,
                nioLocks, logging,
            ],
            swiftSettings: swiftRules),
        .testTarget(
            name: "ExporterTests",
            dependencies: ["thumbcached-exporter", "Thumbcache", nioCore, nioPosix, nioHTTP1, nioLocks, logging],
            swiftSettings: swiftRules),
        .testTarget(
            name: "EndToEndTests",
            dependencies: ["CSpawn", "Thumbcache", nioCore], exclude: ["python"],
            swiftSettings: swiftRules),
    ],
    swiftLanguageModes: [.v6]
)

if !hasRenderer {
    // The daemon then serves images only in the sizes that origins send.
    let renderer = ["CRenderer", "thumbcached-renderer", "CPictureProbe", "RendererTests"]
    package.targets.removeAll { renderer.contains($0.name) }
    package.products.removeAll { renderer.contains($0.name) }
}

// What `make bench` holds the daemon against, and nobody else needs.
if Context.environment["THUMBCACHED_BENCH"] != nil {
    package.targets.append(
        .executableTarget(
            name: "FloorServer", dependencies: [nioCore, nioPosix], path: "bench/floor",
            swiftSettings: swiftRules))
    package.targets.append(
        .executableTarget(
            name: "ClientBench", dependencies: ["Thumbcache"], path: "bench/client", swiftSettings: swiftRules))
}

if isFuzzing {
    // A program cannot be imported but by tests: here each of ours is a library, without its entry.
    package.products = []
    package.targets.removeAll { $0.isTest }
    let programs = [
        "thumbcached", "thumbcached-fetcher", "thumbcached-renderer", "thumbcachectl", "thumbcached-exporter",
    ]
    for program in programs {
        guard let index = package.targets.firstIndex(where: { $0.name == program }) else { continue }
        package.targets[index] = .target(
            name: program, dependencies: package.targets[index].dependencies, exclude: ["Main.swift"],
            swiftSettings: swiftRules + fuzzRules)
    }
    package.targets.append(.target(name: "CFuzzMain", path: "Tests/CFuzzMain", cSettings: cRules))
    let fuzzers: [(name: String, underTest: [Target.Dependency])] = [
        ("AnswerFuzzer", ["ImageFetcher", "CacheCore"]),
        ("ConfigurationFuzzer", ["thumbcached", "CacheCore"]),
        ("DecoderFuzzer", ["ThumbcacheProtocol", nioCore]),
        ("EntryFuzzer", ["DiskStore", "CacheCore", nioCore]),
        ("FetcherReportFuzzer", ["HelperProtocol", "ThumbcacheProtocol", "CacheCore", "LinuxSupport", nioCore]),
        ("PrinterFuzzer", ["thumbcachectl", "ThumbcacheProtocol", nioCore]),
        ("SnifferFuzzer", ["CacheCore", nioCore]),
        ("TokenAnswerFuzzer", ["ImageFetcher", "CacheCore"]),
        ("URLFuzzer", ["ImageFetcher", "Origins", "CacheCore", nioCore]),
    ]
    let present = fuzzers.filter {
        FileManager.default.fileExists(atPath: "\(Context.packageDirectory)/Tests/Fuzz/\($0.name)")
    }
    package.targets += present.map { fuzzer in
        .executableTarget(
            name: fuzzer.name, dependencies: fuzzer.underTest + ["CFuzzMain"], path: "Tests/Fuzz/\(fuzzer.name)",
            swiftSettings: swiftRules + fuzzRules,
            linkerSettings: [.unsafeFlags(["-sanitize=fuzzer,address"])])
    }
}
