// swift-tools-version: 6.2

import PackageDescription

// The same rules as in the root package.
let swiftRules: [SwiftSetting] = [
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("ExistentialAny"),
]

let nioCore = Target.Dependency.product(name: "NIOCore", package: "swift-nio")
let nioPosix = Target.Dependency.product(name: "NIOPosix", package: "swift-nio")
let nioHTTP1 = Target.Dependency.product(name: "NIOHTTP1", package: "swift-nio")
let nioLocks = Target.Dependency.product(name: "NIOConcurrencyHelpers", package: "swift-nio")
let nioSSL = Target.Dependency.product(name: "NIOSSL", package: "swift-nio-ssl")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let arguments = Target.Dependency.product(name: "ArgumentParser", package: "swift-argument-parser")
let client = Target.Dependency.product(name: "Thumbcache", package: "thumbcached")
let support = Target.Dependency.product(name: "ProgramSupport", package: "thumbcached")

// A separate package, so that building the root package does not compile the TLS, HTTP and JWT dependencies.
let package = Package(
    name: "thumbcached-fleet",
    products: [
        .executable(name: "thumbcached-relay", targets: ["thumbcached-relay"]),
        .executable(name: "thumbcached-oidc", targets: ["thumbcached-oidc"]),
    ],
    dependencies: [
        .package(name: "thumbcached", path: ".."),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1", traits: []),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0"),
        .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.2"),
        .package(url: "https://github.com/vapor/jwt-kit", from: "5.7.1"),
    ],
    targets: [
        // The stream of logouts for many machines, and connections to its server.
        .target(
            name: "Fleet",
            dependencies: [
                client, support, nioCore, nioPosix, nioSSL, .product(name: "NIOTLS", package: "swift-nio"),
            ],
            swiftSettings: swiftRules),

        // Forwards published logouts to the daemon of this machine.
        .executableTarget(
            name: "thumbcached-relay",
            dependencies: ["Fleet", client, support, nioCore, nioPosix, nioLocks, logging, arguments],
            swiftSettings: swiftRules),

        // Receives logouts from an OpenID Connect provider over HTTP, and publishes them.
        .executableTarget(
            name: "thumbcached-oidc",
            dependencies: [
                "Fleet", client, support, nioCore, nioPosix, nioHTTP1, nioLocks, nioSSL, logging, arguments,
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "HummingbirdTLS", package: "hummingbird"),
                .product(name: "JWTKit", package: "jwt-kit"),
                .product(name: "CCurl", package: "thumbcached"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
            ],
            swiftSettings: swiftRules),

        .testTarget(
            name: "RelayTests",
            dependencies: ["thumbcached-relay", "Fleet", client, support, nioCore, nioPosix, logging],
            swiftSettings: swiftRules),
        .testTarget(
            name: "OIDCTests",
            dependencies: [
                "thumbcached-oidc", "Fleet", client, support, nioCore, nioPosix, nioHTTP1, nioLocks, logging,
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
            ],
            exclude: ["python"], swiftSettings: swiftRules),
        // Shares its harness with the root package's end-to-end tests, by symbolic links.
        .target(name: "CSpawn", path: "Tests/CSpawn"),
        .testTarget(
            name: "FleetEndToEndTests", dependencies: ["CSpawn", client, nioCore], exclude: ["provider.py"],
            swiftSettings: swiftRules),
    ],
    swiftLanguageModes: [.v6]
)
