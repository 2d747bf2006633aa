import Thumbcache

// The code of the article Showing-Images. TutorialTests compares it with the article and runs it.

func showContacts(
    of user: ThumbcacheID, _ people: [ThumbcacheID], socket: String,
    show: @escaping @Sendable (ThumbcacheID, ThumbcacheImage?) async -> Void
) async throws {
    let client = ThumbcacheClient(path: socket)
    let images = ThumbcacheImages(client, byteLimit: 16 << 20)
    try await withThrowingTaskGroup { group in
        group.addTask { await client.run() }
        group.addTask { await images.run() }
        try await client.logIn(user)
        for person in people {
            let image: ThumbcacheImage?
            do {
                image = try await images.get(user, person, size: 64)
            } catch ThumbcacheError.server(.timeout, _), ThumbcacheError.server(.origin, _) {
                // The origin failed and no image is cached: show a placeholder.
                image = nil
            }
            await show(person, image)
        }
        _ = try await client.logOut(user)
        group.cancelAll()
    }
}
