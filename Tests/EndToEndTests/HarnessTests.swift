import Foundation
import Testing

extension EndToEnd {
    /// Tests of the test support, without the daemon.
    struct HarnessTests {
        @Test func `a test and its child tasks run on a thread of their own`() async {
            #expect(OnItsOwnThread.isHere)
            async let child = OnItsOwnThread.isHere
            #expect(await child)
        }

        @Test func `make-images is deterministic, and its images are distinct and have the requested sizes`() throws {
            try withMachine { machine in
                let tool = "\(Files.repository)/tools/make-images"
                for name in ["a", "b"] {
                    try machine.runSuccessfully([tool, machine.path(name), "50", "--largest", "70000"])
                }
                let names = try FileManager.default.contentsOfDirectory(atPath: machine.path("a")).sorted()
                let images = try names.map { try read(machine.path("a/\($0)")) }
                #expect(names.count == 50)
                #expect(try images == names.map { try read(machine.path("b/\($0)")) })
                #expect(Set(images).count == 50)
                #expect(images.map(\.count).min() == 1_024)
                #expect(images.map(\.count).max() == 70_000)
            }
        }

        @Test(arguments: [64, 65, 200, 300, 320, 321, 8_192])
        func `a GIF has the requested size`(size: Int) {
            #expect(TestImage.gif("bob", size: size).count == size)
            #expect(TestImage.gif("bob", size: size) != TestImage.gif("eve", size: size))
        }

        @Test func `nginx serves a directory and logs each request once`() throws {
            try withMachine { machine in
                let images = try machine.makeDirectory("images")
                try write(TestImage.gif("bob"), to: "\(images)/bob.gif")
                let nginx = try Nginx(machine, serving: images)
                #expect(try nginx.requests() == [])
                let url = "\(nginx.url)/bob"
                // Ignores proxy variables, which another test may have set in this process.
                let fetch = """
                    import sys, urllib.request as u
                    sys.stdout.buffer.write(u.build_opener(u.ProxyHandler({})).open(sys.argv[1]).read())
                    """
                let fetched = try machine.run(["python3", "-c", fetch, url])
                #expect(fetched.output == TestImage.gif("bob"), "\(fetched.errors)")
                #expect(try nginx.requests() == ["/bob.gif 200"])
            }
        }

        @Test func `the origin delays a response until its gate opens`() throws {
            let origin = try GatedOrigin { _ in [.wait("gate"), .send(GatedOrigin.response([1, 2, 3])), .close] }
            defer { origin.end() }
            let connection = try connectTCP(origin.port)
            defer { close(connection) }
            let request = Array("GET /bob HTTP/1.1\r\nHost: x\r\n\r\n".utf8)
            #expect(send(connection, request, request.count, 0) == request.count)
            try origin.waitForRequests(1)
            #expect(origin.requests.first?.path == "/bob")
            var byte: UInt8 = 0
            #expect(recv(connection, &byte, 1, CInt(MSG_DONTWAIT)) == -1)
            origin.open("gate")
            var answer: [UInt8] = []
            while recv(connection, &byte, 1, 0) > 0 { answer.append(byte) }
            #expect(answer.suffix(3) == [1, 2, 3])
        }

        @Test func `exit status and output of a program are captured`() throws {
            try withMachine { machine in
                let finished = try machine.run(["sh", "-c", "cat; echo no >&2; exit 3"], input: Array("yes".utf8))
                #expect(finished.status == 3)
                #expect(finished.text == "yes")
                #expect(finished.errors == "no\n")
                let child = try machine.start(["sleep", "1000"])
                #expect(child.exitStatus() == nil)
                child.end()
                #expect(child.exitStatus() == 128 + SIGKILL)
            }
        }

        @Test func `the end of a test kills its processes and removes its directory`() throws {
            var directory = ""
            var pid: pid_t = 0
            try withMachine { machine in
                directory = machine.directory
                pid = try machine.start(["sleep", "1000"]).pid
            }
            #expect(kill(pid, 0) == -1 && errno == ESRCH)
            #expect(!Files.exists(directory))
        }
    }
}
